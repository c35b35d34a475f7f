/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_OPEN_H
#define GLK_SOFT_OPEN_H

/* Which driver there is below a context: CUDA or the software device, and what wraps it. */
#include "driver/driver.h"

/* Whether a text is what driver.fault may be. 0; -EINVAL and a record. */
int glk_drv_fault_check(const char *rules);

/*
 * Opens the driver the configuration asks for (driver.backend, driver.check, driver.fault),
 * always inside a count wrapper. With backend `auto`, CUDA is tried first, and when it cannot
 * be had the software device is opened, a warning says so once in a process, and *ret_why says in
 * one sentence why (a buffer of `why_size` bytes, "" when CUDA was taken or not wanted).
 *
 * Gives an instance to be ended with glk_drv_close. 0, -ENODEV (CUDA asked for and not to be
 * had: the record names the cause), -ENOMEM, -EINVAL.
 */
int glk_drv_open(const struct glk_conf *conf, char *why, size_t why_size,
	struct glk_drv **ret_drv);

#endif
