/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_COUNT_H
#define GLK_DRIVER_COUNT_H

/*
 * The outermost wrapper: calls and nanoseconds of each kind, for glake_driver_stats_get. It
 * also carries the completed operation table of the backend below.
 */
#include "driver/driver.h"

/* Takes `inner`, a backend or a stack of wrappers over one. 0 or -ENOMEM (inner untouched). */
int glk_count_open(struct glk_drv *inner, struct glk_drv **ret_drv);

#endif
