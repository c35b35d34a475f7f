/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_GPU_SMASH_H
#define GLK_GPU_SMASH_H

/* How a module of text for the driver begins, with smash(address, bytes): by one thread, none of them is what it was. */
#define GPU_SMASH_PTX                                                                    \
	".version 7.0\n"                                                                 \
	".target sm_70\n"                                                                \
	".address_size 64\n"                                                             \
	".visible .entry smash(.param .u64 a, .param .u64 n)\n"                          \
	"{\n"                                                                            \
	".reg .b64 %rd<3>;\n"                                                            \
	".reg .b16 %h<2>;\n"                                                             \
	".reg .pred %p<2>;\n"                                                            \
	"ld.param.u64 %rd1, [a];\n"                                                      \
	"ld.param.u64 %rd2, [n];\n"                                                      \
	"LOOP:\n"                                                                        \
	"setp.eq.u64 %p1, %rd2, 0;\n"                                                    \
	"@%p1 bra DONE;\n"                                                               \
	"ld.global.u8 %h1, [%rd1];\n"                                                    \
	"xor.b16 %h1, %h1, 255;\n"                                                       \
	"st.global.u8 [%rd1], %h1;\n"                                                    \
	"add.u64 %rd1, %rd1, 1;\n"                                                       \
	"sub.u64 %rd2, %rd2, 1;\n"                                                       \
	"bra LOOP;\n"                                                                    \
	"DONE:\n"                                                                        \
	"ret;\n"                                                                         \
	"}\n"

#endif
