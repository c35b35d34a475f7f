/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_STAGE_H
#define GLK_TIER_IO_STAGE_H

/* What a path needs of its GPUs, made at its first use: see io.h. Under the lock. */
#include "tier/io/io.h"

/* Staging memory of a GPU that lends its link, which another may use; streams and events of both for one
 * way. 0; -ENOMEM: there is no room for it at present, or the first is suspended; or the driver's error. */
int glk_stage_ready(struct glk_io *io, int relay, int target, int turn);
/* An event of a GPU, made at first. 0 or the driver's error. */
int glk_stage_event(struct glk_io *io, int gpu, struct glk_drv_event **event);
/* Ends all of it, when what is under way has finished. */
void glk_stage_fini(struct glk_io *io);

#endif
