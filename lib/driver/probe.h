/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_PROBE_H
#define GLK_DRIVER_PROBE_H

/*
 * Whether the driver makes pages on a NUMA node of the host, tried in a process of its own: drivers
 * before r595 may crash there on machines whose nodes are not alike, and that process then crashes in
 * place of ours. Inside the CUDA backend, and what the program and its tests share.
 */
#include <stddef.h>
#include <stdint.h>

/* What came of it; also the exit status of the program. */
enum glk_probe {
	GLK_PROBE_MADE = 0,
	GLK_PROBE_REFUSED = 1,
	GLK_PROBE_CRASHED = 2,
	GLK_PROBE_LATE = 3,   /* it had not answered in time, and was ended */
	GLK_PROBE_UNABLE = 4, /* no such process, or none in which the driver works */
	GLK_PROBE_LATER =
		5, /* the system had no room for a process; not of the program */
};

/*
 * Runs `program`, a whole path, with a libcuda to load and a node, and waits for it, `limit` ns at most
 * and a second more if the system cannot end it. The children that the program of the user has, what it
 * is told of them, and what it has open are not touched.
 * Thread: any; it takes no signal meanwhile.
 */
enum glk_probe glk_probe_run(
	const char *program, const char *library, int node, int64_t limit);

/* Where the program lies, which is found from where this library lies. 0, or -ENOENT. */
int glk_probe_find(char *path, size_t size);

/* A part of a sentence: "crashed". */
const char *glk_probe_text(enum glk_probe probe);

#endif
