/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_LZ4_H
#define GLK_TIER_LZ4_H

/*
 * Bytes made smaller and what they were again, by liblz4, which is loaded when the first context asks for it.
 * They go in chunks of 256 KiB, each for itself; one that does not shrink is kept as it is. A thread makes 0.5
 * to 1 GB/s smaller and has 2 to 5 GB/s back.
 */
#include "base/atomic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_LZ4_CHUNK ((size_t)256 << 10)

/* At most so many bytes into `room` bytes at `to`, which begin with the sizes of the chunks. How many there are;
 * 0: they do not fit, or `stop` says that nobody wants them any more. */
size_t glk_lz4_pack(const char *from, size_t bytes, char *to, size_t room,
	const glk_atomic(bool) * stop);
/* The same bytes again. False: what was packed is not what it was. */
bool glk_lz4_unpack(const char *from, size_t packed, char *to, size_t bytes);

#endif
