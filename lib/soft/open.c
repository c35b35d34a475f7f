/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Chooses the backend and builds the stack over it: count(backend), with `check` and `fault`
 * in between as configured. The software device is always checked, for there the library is
 * tested; faults stand right above the backend, so that `check` sees them as the driver's.
 */
#include "soft/open.h"

#include "base/atomic.h"
#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "driver/count.h"
#include "driver/cuda.h"
#include "driver/ops.h"
#include "soft/check.h"
#include "soft/fault.h"
#include "soft/fault_rule.h"
#include "soft/soft.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* enum glake_backend, as the choices of driver.backend are numbered. */
static const bool wants_cuda[] = {[GLAKE_BACKEND_AUTO] = true,
	[GLAKE_BACKEND_SOFT] = false,
	[GLAKE_BACKEND_CUDA] = true};

/* Once a process: memory of the software device is memory that no kernel can use. */
static void warn_of_soft(const char *why)
{
	static glk_atomic(bool) warned;
	bool before = false;

	/* pairs with itself: one thread says it */
	if (glk_cas_acq_rel(&warned, &before, true))
		glk_warn("this is the software device, for CUDA does not work here: %s. "
			 "driver.backend=soft says that it is meant, cuda that it is not",
			why);
}

static int backend_open(
	const struct glk_conf *conf, char *why, size_t why_size, struct glk_drv **ret_drv)
{
	struct glake_error error = {.sz = sizeof(error)};
	int err;

	if (why_size)
		why[0] = '\0';
	if (wants_cuda[conf->driver_backend]) {
		err = glk_cuda_open(conf, ret_drv);
		if (!err || conf->driver_backend == GLAKE_BACKEND_CUDA)
			return err;
		glake_last_error(&error);
		if (why_size)
			snprintf(why, why_size, "%s", error.text);
		if (!conf->no_soft_warning)
			warn_of_soft(error.text);
	}
	return glk_soft_open(conf, ret_drv);
}

int glk_drv_open(
	const struct glk_conf *conf, char *why, size_t why_size, struct glk_drv **ret_drv)
{
	struct glk_drv *drv;
	bool check;
	int err;

	err = backend_open(conf, why, why_size, &drv);
	if (err)
		return err;
	check = conf->driver_check || !strcmp(drv->ops->name, "soft");
	if (conf->driver_fault[0])
		err = glk_fault_open(drv, &drv);
	if (!err && check)
		err = glk_check_open(drv, &drv);
	if (!err)
		err = glk_count_open(drv, &drv);
	/* Only now, so that no rule strikes what the wrappers ask while they open. */
	if (!err && conf->driver_fault[0])
		err = glk_fault_set(drv, conf->driver_fault);
	if (err)
		drv->ops->close(drv);
	else
		*ret_drv = drv;
	return err;
}

int glk_drv_fault_check(const char *rules)
{
	struct glk_fault_rule parsed[GLK_FAULT_RULES];
	size_t count;

	return glk_fault_parse(rules, parsed, &count);
}
