#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Debian packages: libglake0, libglake-dev, glake-tools, python3-glake.
#
#	deb.sh SOURCE BUILD VERSION
#
# debhelper wants a debian folder in a source tree that it may write to. That is a copy of the
# tree below the build folder; the packages, and what lintian says of them, lie in BUILD/package.
set -eu
source=$1 place=$2/package version=$3
tree=$place/deb/glake-$version

for program in dpkg-buildpackage dh dh_python3; do
	if ! command -v $program >/dev/null; then
		echo "deb: there is no $program: t/setup package brings it" >&2
		exit 1
	fi
done
said=$(dpkg-parsechangelog -l "$source/lib/package/debian/changelog" -S Version)
if [ "${said%-*}" != "$version" ]; then
	echo "deb: the changelog of Debian is about $said, and this is $version" >&2
	exit 1
fi

rm -rf "$place/deb"
mkdir -p "$tree"
(cd "$source" && if [ -e .git ] && command -v git >/dev/null; then
	git ls-files
else
	find . -name 'build*' -prune -o -name '.git*' -prune -o -type f -print
fi | while read -r name; do [ ! -e "$name" ] || echo "$name"; done | tar -cf - -T -) |
	tar -xf - -C "$tree"
cp -r "$source/lib/package/debian" "$tree/debian"
(cd "$tree" && dpkg-buildpackage -b -us -uc -j"$(nproc)")
rm -f "$place"/*.deb "$place"/*.changes "$place"/*.buildinfo
mv "$place"/deb/*.deb "$place"/deb/*.changes "$place"/deb/*.buildinfo "$place"
if command -v lintian >/dev/null; then
	# what is made here is no upload to Debian, which would close a bug
	lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs "$place"/*.changes
else
	echo "deb: not looked at by lintian, which is not installed"
fi
ls "$place"/*.deb
