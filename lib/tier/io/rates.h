/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_RATES_H
#define GLK_TIER_IO_RATES_H

/*
 * What links carry, as it was measured, in a file for later processes: io.rates. A line for each GPU
 * and version of the driver,
 *
 *	13000 GPU-5ab3...-... 55500 390000
 *
 * the version, the GPU, and MB (10^6 bytes) a second of its links to the host and to other GPUs.
 *
 * Read	if it is a regular file, of root or of the user of this process, that no others can write;
 *	one that is none, or that cannot be understood, is as good as no file, and a warning says so
 * Written	in a new file beside it, which takes its place; what it says of other GPUs and versions
 *		stays. One that others own or can write is left as it is
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_RATES_MAX  64 /* GPUs of a process */
#define GLK_RATES_UUID 48
#define GLK_RATES_PATH 4096

struct glk_rate {
	int version;
	char uuid[GLK_RATES_UUID];
	uint32_t host, peer; /* MB a second */
};

/* What a text of the configuration stands for: a path, or "auto" for the user's folder for such files;
 * false: there is none. */
bool glk_rates_path(const char *text, char *ret_path, size_t size);
/* Those of `count` GPUs, named in `rates`, that the file knows: their rates are set, and the others' 0. */
void glk_rates_read(const char *path, struct glk_rate *rates, size_t count);
/* The file says this from now on. A warning where it cannot. */
void glk_rates_write(const char *path, const struct glk_rate *rates, size_t count);

#endif
