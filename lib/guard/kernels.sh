#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Makes kernels.ptx.h from kernels.cu, here or in another folder; needs nvcc. The text asks for no more of
# the driver than it uses.
#
#	kernels.sh [FOLDER DECLARATION]
set -eu
cd "${1-$(dirname "$0")}"
{
	echo '/* SPDX-License-''Identifier: LGPL-2.1-or-later */'
	echo '/* Made by kernels.sh from kernels.cu. */'
	echo '/* clang-format off */'
	echo "${2-const char glk_guard_text[]} ="
	nvcc -ptx -arch=compute_75 -o - kernels.cu |
		sed -E 's/^\.version .*/.version 7.0/; s/ *\/\/.*//; /used_bytes_mask/d
			s/_ZN[0-9]+_INTERNAL_[0-9a-f]{8}_[0-9]+_kernels_cu_[0-9a-f]{8}[0-9]+/glk_/g; s/[[:space:]]+/ /g
			/^ ?$/d; s/^ //; s/\\/\\\\/g; s/"/\\"/g' |
		awk 'length(line $0) > 85 { print "\t\"" line "\\n\""; line = "" }
			{ line = line (line ? " " : "") $0 } END { print "\t\"" line "\\n\"" }'
	echo '	;'
} > kernels.ptx.new
mv kernels.ptx.new kernels.ptx.h
