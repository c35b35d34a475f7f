/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_SOFT_SETUP_H
#define GLK_UNIT_SOFT_SETUP_H

/* What the tests of this folder share: a configuration by hand, and the last record. */
#include "base/conf.h"
#include "driver/driver.h"
#include "soft/open.h"
#include "tap.h"

#include <glake/error.h>

#define GRANULE ((size_t)2 << 20)

static inline struct glk_conf setup_conf(void)
{
	return (struct glk_conf){
		.driver_backend = GLAKE_BACKEND_SOFT,
		.soft_gpus = 2,
		.soft_memory = 256 * GLK_MIB,
		.soft_nodes = 2,
		.soft_host_memory = 64 * GLK_MIB,
		.soft_streams = GLK_SOFT_STREAMS_WORKER,
		.soft_cost_reserve = 2700,
		.soft_cost_create = 8100,
		.soft_cost_map = 600,
		.soft_cost_set_access = 22600,
		.soft_cost_unmap = 15600,
		.soft_cost_release = 9800,
		.soft_cost_event = 200,
	};
}

static inline struct glake_error setup_error(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static inline struct glk_drv *setup_open(const struct glk_conf *conf)
{
	struct glk_drv *drv = NULL;

	if (glk_drv_open(conf, NULL, 0, &drv))
		tap_bail(setup_error().text);
	return drv;
}

static inline struct glk_place setup_gpu(int id)
{
	return (struct glk_place){GLK_PLACE_GPU, id};
}

/* Read and write for one GPU. */
static inline struct glk_grant setup_grant(int gpu)
{
	return (struct glk_grant){{GLK_PLACE_GPU, gpu}, GLK_ACCESS_WRITE};
}

/* Checks an errno value and a part of the record's text. */
#define breaks(call, err, part)                                                          \
	do {                                                                             \
		is_int(call, err, #call);                                                \
		has_str(setup_error().text, part, "  names the rule");                   \
	} while (0)

#endif
