#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Every page of the manual as HTML, with an index: MANDOC FOLDER PAGE...
set -eu
mandoc=$1 folder=$2
shift 2
mkdir -p "$folder"
{
	echo '<!DOCTYPE html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
	echo '<title>glake: the manual</title><h1>glake: the manual</h1><ul>'
} >"$folder/index.html.new"
for page; do
	name=$(basename "$page")
	grep -q '^\.so ' "$page" && continue # of another page, which has it
	"$mandoc" -T html -O man=%N.%S.html "$page" >"$folder/$name.html"
	about=$(sed -n 's/^\.Nd //p' "$page" | head -n 1 | sed 's/&/\&amp;/g; s/</\&lt;/g')
	printf '<li><a href="%s.html">%s</a>: %s\n' "$name" "$name" "$about" >>"$folder/index.html.new"
done
echo '</ul>' >>"$folder/index.html.new"
mv "$folder/index.html.new" "$folder/index.html"
echo "$folder/index.html"
