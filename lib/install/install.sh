#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The end of `meson install`: the configuration, which belongs to who runs the machine and is
# written only where there is none or the one that an earlier install wrote; the loader's cache;
# and a word on what is left to do. What was done is noted for uninstall.sh.
#
#	install.sh CONF_FILE CONF_FOLDER LIBDIR PATHS_FILE
#
# PATHS_FILE is "" for a prefix of the system.
set -eu
conf=$1
folder=${DESTDIR:-}$2
place=$folder/$(basename "$conf")
libdir=$3
paths=$4
root=${DESTDIR:-}
[ -n "$root" ] || [ -z "$paths" ] || root=$MESON_INSTALL_PREFIX
note=$MESON_BUILD_ROOT/meson-logs/install-glake
PATH=$PATH:/usr/sbin:/sbin # of ldconfig, where others than root do not look

say() {
	[ -n "${MESON_INSTALL_QUIET:-}" ] || echo "$*"
}

# Whether the file is one that an install wrote and nobody changed.
is_ours() {
	[ -f "$1" ] && [ ! -L "$1" ] && { cmp -s "$1" "$note.conf" || cmp -s "$1" "$conf"; }
}

put_conf() {
	if [ -e "$place" ] || [ -L "$place" ]; then
		is_ours "$place" || {
			say "Keeping $place"
			return
		}
	fi
	if mkdir -p "$folder" && install -m 0644 "$conf" "$place"; then
		say "Installing $conf to $folder"
		cp "$conf" "$note.conf"
		echo "conf $place" >>"$note.txt"
	else
		echo "glake: $place cannot be written; without it all keys are at their defaults"
	fi
}

# Whether the loader looks into the folder by itself.
is_known() {
	ldconfig -v -N -X 2>/dev/null | sed -n 's|^\(/[^:]*\):.*|\1|p' | while read -r known; do
		[ "$(readlink -f "$known")" != "$(readlink -f "$1")" ] || echo yes
	done | grep -q yes
}

tell_loader() {
	if ! is_known "$libdir"; then
		[ -z "$paths" ] || echo "glake: for a shell that is to find it:  . $paths"
	elif [ "$(id -u)" != 0 ]; then
		echo "glake: for programs to find it, run as root: ldconfig"
	elif ldconfig; then
		say "Running ldconfig"
		echo "ldconfig" >>"$note.txt"
	else
		echo "glake: ldconfig failed; programs may not find the library before it has run"
	fi
}

if [ -n "${MESON_INSTALL_DRY_RUN:-}" ]; then
	say "Would install $conf to $folder unless there is one"
	exit 0
fi
was=$(sed -n 's/^conf //p' "$note.txt" 2>/dev/null || true)
[ "$was" = "$place" ] || rm -f "$note.conf"
rm -f "$note.txt"
echo "root $root" >"$note.txt"
put_conf
[ -n "${DESTDIR:-}" ] || tell_loader
