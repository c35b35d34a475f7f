/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_CHECK_H
#define GLK_SOFT_CHECK_H

/*
 * The wrapper that knows the rules of the driver and answers each broken one with -EINVAL and
 * a sentence that names it, before the driver sees the call. At the end it counts what was
 * left: an error in the log and -EBUSY.
 */
#include "driver/driver.h"

/*
 * Takes `inner`, a backend or a fault wrapper over one. 0, -ENOMEM, -EOPNOTSUPP (the granule
 * of the driver does not go with 2 MiB), or the error of the driver; `inner` is then
 * untouched.
 */
int glk_check_open(struct glk_drv *inner, struct glk_drv **ret_drv);

#endif
