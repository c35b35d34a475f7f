#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The end of `meson install`: the configuration, which belongs to who runs the machine and is
# written only where there is none or the one that an earlier install wrote; and the loader's
# cache. What was done is noted for uninstall.sh. What could not be done fails the install, also
# since meson before 1.1 shows nothing of a script that succeeds.
#
#	install.sh CONF_FILE CONF_FOLDER LIBDIR [alone]
#
# The last word says that nothing else lies below the prefix.
set -eu
conf=$1
folder=${DESTDIR:-}$2
place=$folder/$(basename "$conf")
libdir=$3
alone=${4:-}
root=${DESTDIR:-}
[ -n "$root" ] || [ -z "$alone" ] || root=$MESON_INSTALL_PREFIX
note=$MESON_BUILD_ROOT/meson-logs/install-glake
PATH=$PATH:/usr/sbin:/sbin # of ldconfig, where others than root do not look

say() {
	[ -n "${MESON_INSTALL_QUIET:-}" ] || echo "$*"
}

# Whether the file is one that an install wrote and nobody changed.
is_ours() {
	[ -f "$1" ] && [ ! -L "$1" ] && { cmp -s "$1" "$note.conf" || cmp -s "$1" "$conf"; }
}

fail() {
	echo "glake: $*" >&2
	status=1
}

put_conf() {
	echo "conf $place" >>"$note.txt"
	if [ -e "$place" ] || [ -L "$place" ]; then
		is_ours "$place" || {
			say "Keeping $place"
			return
		}
	fi
	if mkdir -p "$folder" && install -m 0644 "$conf" "$place"; then
		say "Installing $conf to $folder"
		cp "$conf" "$note.conf"
	else
		fail "$place cannot be written; all else is installed, and all keys are at their defaults"
	fi
}

# Whether the loader looks into the folder by itself.
is_known() {
	ldconfig -v -N -X 2>/dev/null | sed -n 's|^\(/[^:]*\):.*|\1|p' | while read -r known; do
		[ "$(readlink -f "$known")" != "$(readlink -f "$1")" ] || echo yes
	done | grep -q yes
}

tell_the_loader() {
	is_known "$libdir" || return 0
	echo "ldconfig" >>"$note.txt"
	say "Running ldconfig"
	ldconfig || fail "programs find the library in $libdir once root has run ldconfig"
}

if [ -n "${MESON_INSTALL_DRY_RUN:-}" ]; then
	say "Would install $conf to $folder unless there is one"
	exit 0
fi
was=$(sed -n 's/^conf //p' "$note.txt" 2>/dev/null || true)
[ "$was" = "$place" ] || rm -f "$note.conf"
rm -f "$note.txt"
echo "root $root" >"$note.txt"
status=0
put_conf
[ -n "${DESTDIR:-}" ] || tell_the_loader
exit $status
