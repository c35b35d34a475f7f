/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STRESS_ORACLE_H
#define GLK_STRESS_ORACLE_H

/*
 * A judge of the order of work on a GPU that shares nothing with the library nor with the
 * software device's own: vector clocks over what reaches the driver. It stands between the
 * two, sees every record and every wait, be it of the program or of the library, and knows
 * of each piece of work the bytes of the physical pages it touches.
 *
 * Two pieces of work that touch the same bytes, one of them writing, must be ordered: the
 * earlier has run when the later is queued, or the clock of the later's stream includes it.
 * Work that a graph captures is judged by the clocks of the capture.
 *
 * The software device is to be stepped, so that what has run can be told by what is left.
 */
#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORACLE_STREAMS 64 /* of a program, those that ended included */

struct oracle;

/* Puts itself between the library and an instance of the driver. */
struct oracle *oracle_new(struct glk_drv *drv);
void oracle_free(struct oracle *o);
/* Forgets the streams and events of the last program; all work has run. */
void oracle_reset(struct oracle *o);

/* Queues a kernel and judges it: NULL, or what is wrong. On a capturing stream it becomes a node
 * of the graph. */
const char *oracle_work(struct oracle *o, struct CUstream_st *stream, uint64_t addr,
	size_t size, bool write);
/* A graph of so many nodes was launched on a stream, which queued so many operations; then each
 * of its nodes, in order. */
void oracle_launched(
	struct oracle *o, struct CUstream_st *stream, uint32_t queued, unsigned nodes);
const char *oracle_replayed(struct oracle *o, struct CUstream_st *stream, uint64_t addr,
	size_t size, bool write);

/* A stream begins a capture; the capture of all streams ends. */
void oracle_capture(struct oracle *o, struct CUstream_st *stream);
void oracle_capture_end(struct oracle *o);
bool oracle_captures(struct oracle *o, struct CUstream_st *stream);

/* Pieces of work that were judged against others, for the figures. */
uint64_t oracle_judged(const struct oracle *o);

#endif
