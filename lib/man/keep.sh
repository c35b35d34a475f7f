#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Installs a configuration file unless there is one: that belongs to who runs the machine.
# keep.sh FILE FOLDER
set -eu
folder="${DESTDIR:-}$2"
place="$folder/$(basename "$1")"
if [ -e "$place" ] || [ -L "$place" ]; then
	echo "Keeping $place"
	exit 0
fi
if [ -n "${MESON_INSTALL_DRY_RUN:-}" ]; then
	echo "Would install $1 to $folder"
	exit 0
fi
echo "Installing $1 to $folder"
mkdir -p "$folder"
install -m 0644 "$1" "$place"
