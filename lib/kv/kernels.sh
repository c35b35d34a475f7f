#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Makes kernels.ptx.h of this folder, as that of the sanitizer.
set -eu
cd "$(dirname "$0")"
exec ../guard/kernels.sh "$PWD" 'static const char kernels_text[]'
