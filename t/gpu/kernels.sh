#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Makes kernels.ptx.h of this folder, as the library's.
set -eu
cd "$(dirname "$0")"
exec ../../lib/guard/kernels.sh "$PWD" 'static const char kernels_ptx[]'
