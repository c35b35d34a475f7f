#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The end of `ninja uninstall`, in the build folder: takes away what meson's own part leaves. That
# is the configuration, if nobody changed it since it was installed; what Python compiled from
# the module; folders that are empty then; and the library's place in the loader's cache.
set -eu
log=meson-logs/install-log.txt
note=meson-logs/install-glake
PATH=$PATH:/usr/sbin:/sbin

[ -f "$log" ] || exit 0

# Empty folders, from this one up to the root of the install; of a system's prefix, which has
# folders of others that are empty too, only what is surely ours.
leave() {
	folder=$1
	while case $folder/ in "${root:-/nowhere}"/*) ;; *) is_leaf "$folder" ;; esac; do
		rmdir "$folder" 2>/dev/null || return 0
		echo "Deleted: $folder"
		folder=$(dirname "$folder")
	done
}

is_leaf() {
	case $1 in
	*/glake | */__pycache__) ;;
	/usr/local/libexec | /usr/local/*/cmake | /usr/local/*/pkgconfig | /usr/local/*/man[1-9]) ;;
	/usr/local/*/bash-completion | /usr/local/*/bash-completion/completions) ;;
	/usr/local/*/zsh | /usr/local/*/zsh/site-functions) ;;
	/usr/local/lib/systemd | /usr/local/lib/systemd/system | /usr/local/lib/systemd/user | /usr/local/lib/sysusers.d) ;;
	*) return 1 ;;
	esac
}

noted() {
	sed -n "s/^$1 //p" "$note.txt" 2>/dev/null || true
}

logged() {
	grep -v '^#' "$log" || true
}

root=$(noted root)
place=$(noted conf)
if [ -n "$place" ] && [ -e "$place" ]; then
	if cmp -s "$place" "$note.conf"; then
		rm "$place"
		echo "Deleted: $place"
		leave "$(dirname "$place")"
	else
		echo "Keeping $place, which is not as it was installed"
	fi
fi

logged | while read -r path; do
	case $path in
	*.py)
		cache=$(dirname "$path")/__pycache__
		rm -f "$cache/$(basename "$path" .py)".*.pyc
		leave "$cache"
		;;
	esac
	if [ -d "$path" ]; then # made by the install, and not empty before
		if rmdir "$path" 2>/dev/null; then echo "Deleted: $path"; fi
	else
		leave "$(dirname "$path")"
	fi
done

if grep -qs '^ldconfig' "$note.txt"; then
	if ldconfig; then echo "Running ldconfig"; fi
fi
rm -f "$note.txt" "$note.conf"
