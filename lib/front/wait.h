/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_WAIT_H
#define GLK_FRONT_WAIT_H

#include <glake/glake.h>

#include <stdbool.h>

/*
 * Waits for a stream of a GPU, or with NULL for all work of that GPU. Whether that went well; on the
 * software device nothing is waited for, as nothing but tests runs there.
 */
bool glk_front_wait(struct glake *ctx, int device, struct CUstream_st *stream);

#endif
