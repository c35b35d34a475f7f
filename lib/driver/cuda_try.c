/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether pages can be made on a NUMA node of the host, found out once in a process for each node that
 * is asked for, in another process (probe.h); three times at most where there is none to be had. A driver
 * that has not answered in time is not asked again, of whatever node: who waits for it waits once. From CUDA
 * 13.2 on, the driver r595, nobody is asked: its cuMemCreate answers with an error where it would have
 * crashed before.
 */
#include "driver/cuda_state.h"
#include "driver/probe.h"

#include "base/lock.h"
#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#define VERSION_MENDED 13020
#define NODES	       1024 /* of Linux */

/* A file may come, and there may be room for a process again; so often it is tried. */
#define TRIES 3

/* Initialising the driver takes 0.3 s, and several where eight processes do at once. */
#define LIMIT (INT64_C(20) * 1000000000)

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_DRIVER);
static struct {
	const void *from; /* that was asked; a process has one, but tests have more */
	unsigned char end[NODES];   /* 0: not known yet; else an enum glk_probe, and 1 */
	unsigned char tries[NODES]; /* without an answer */
	bool silent;		    /* it has not answered in time */
} tried;			    /* under lock */
static int64_t patience = LIMIT;    /* likewise */

void glk_cuda_node_patience(int64_t ns)
{
	glk_lock(&lock);
	patience = ns ? ns : LIMIT;
	glk_unlock(&lock);
}

static enum glk_probe probe_now(const struct glk_cuda_lib *lib, int node)
{
	char program[PATH_MAX];
	enum glk_probe probe;
	struct link_map *map;

	if (tried.silent)
		return GLK_PROBE_LATE;
	if (glk_probe_find(program, sizeof(program)) ||
		dlinfo(lib->handle, RTLD_DI_LINKMAP, &map))
		return GLK_PROBE_UNABLE;
	probe = glk_probe_run(program, map->l_name, node, patience);
	tried.silent = probe == GLK_PROBE_LATE;
	return probe;
}

/* Whether another try might say more: not counted where there was no room for a process. */
static bool may_pass(enum glk_probe probe, int node)
{
	if (probe == GLK_PROBE_LATER)
		return true;
	return probe == GLK_PROBE_UNABLE && ++tried.tries[node] < TRIES;
}

int glk_cuda_node_try(struct glk_drv *drv, int node, bool always)
{
	const struct glk_cuda_lib *lib = glk_cuda_of(drv)->lib;
	enum glk_probe probe;
	bool passes = false;
	int err;

	err = glk_cuda_alive(glk_cuda_of(drv));
	if (err)
		return err;
	if (node < 0 || node >= NODES)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "there is no NUMA node %d", node);
	if (lib->version >= VERSION_MENDED && !always)
		return 0;
	glk_lock(&lock);
	if (tried.from != lib->handle)
		memset(&tried, 0, sizeof(tried));
	tried.from = lib->handle;
	if (!tried.end[node]) {
		probe = probe_now(lib, node);
		passes = may_pass(probe, node);
		if (!passes)
			tried.end[node] = (unsigned char)(probe + 1);
		if (probe)
			glk_info(
				"pages of NUMA node %d: in a process that tried, the driver %s",
				node, glk_probe_text(probe));
	}
	if (!passes)
		probe = (enum glk_probe)(tried.end[node] - 1);
	glk_unlock(&lock);
	if (probe == GLK_PROBE_MADE)
		return 0;
	return glk_error(passes ? -EAGAIN : -EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"pages of NUMA node %d: the driver %s in a process that tried", node,
		glk_probe_text(probe));
}
