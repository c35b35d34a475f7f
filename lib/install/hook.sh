#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# After meson has set up a build folder: lets `ninja uninstall` end with uninstall.sh. meson has
# steps at the end of an install, but none at the end of its opposite, and keeps that name for
# itself. Where build.ninja does not look as expected it stays as it is, and an uninstall leaves
# the configuration.
#
#	hook.sh SCRIPT
set -eu
cd "$MESON_BUILD_ROOT"
[ -f build.ninja ] || exit 0
cp "$1" meson-private/uninstall.sh
sed "s|^build uninstall: phony meson-internal__uninstall\$|build uninstall: phony glake-uninstall\\
\\
build glake-uninstall: CUSTOM_COMMAND PHONY \\|\\| meson-internal__uninstall\\
 COMMAND = sh meson-private/uninstall.sh\\
 pool = console|" build.ninja >build.ninja.hooked
mv build.ninja.hooked build.ninja
