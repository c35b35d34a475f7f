/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The software device: memory made of a sparse file, addresses made of PROT_NONE maps, streams
 * made of queues. It is the default where there is no GPU and the judge in tests: memory that
 * was unmapped is not readable by luck, work runs when it is told to, and every call adds its
 * cost on an H200 to a modelled clock.
 *
 * Guarantees	aliases are real aliases; an address without rights faults; a page takes host
 *		memory only where it is written; the same calls give the same pages
 * Threads	one lock for everything; the modelled clock is summed without it
 */
#include "soft/state.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

void glk_soft_charge(struct soft *soft, enum glake_call call, size_t count)
{
	int64_t ns = soft->cost[call] * (int64_t)count;

	glk_add_relaxed(&soft->ns[call], ns);
	glk_times_share(&soft->times[call], (uint64_t)ns);
}

void glk_soft_enter(struct soft *soft)
{
	glk_lock(&soft->lock);
	soft->turn(soft);
}

int glk_soft_place(const struct soft *soft, struct glk_place place, uint8_t *ret_place)
{
	bool gpu = place.kind == GLK_PLACE_GPU;
	int count = gpu ? soft->gpus : soft->nodes;

	if (place.id < 0 || place.id >= count)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%s %d does not exist, the software device has %d",
			gpu ? "GPU" : "NUMA node", place.id, count);
	*ret_place = (uint8_t)(gpu ? place.id : soft->gpus + place.id);
	return 0;
}

int glk_soft_figures(struct glk_drv *drv, struct glake_driver_stats *ret_stats)
{
	struct soft *soft = soft_of(drv);

	ret_stats->now_ns = 0;
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		ret_stats->ns[i] = glk_load_relaxed(&soft->ns[i]);
		ret_stats->now_ns += ret_stats->ns[i];
	}
	return 0;
}

const struct glk_times *glk_soft_times(struct glk_drv *drv)
{
	return soft_of(drv)->times;
}

/* What tests ask of the device as a whole. */

struct soft *glk_soft_below(struct glk_drv *drv)
{
	while (drv->inner)
		drv = drv->inner;
	if (!strcmp(drv->ops->name, "soft"))
		return soft_of(drv);
	glk_error(-EINVAL, GLAKE_ERROR_INVAL, "this is the %s driver, no software device",
		drv->ops->name);
	return NULL;
}

int glk_soft_clock(struct glk_drv *drv, int64_t *ret_ns)
{
	struct soft *soft = glk_soft_below(drv);
	struct glake_driver_stats stats;

	if (!soft)
		return -EINVAL;
	glk_soft_figures(&soft->drv, &stats);
	*ret_ns = stats.now_ns;
	return 0;
}

int glk_soft_resident(struct glk_drv *drv, uint64_t *ret_bytes)
{
	struct soft *soft = glk_soft_below(drv);
	struct stat st;

	if (!soft)
		return -EINVAL;
	if (fstat(soft->file.fd, &st))
		return glk_error_native(-errno, GLAKE_ERROR_DRIVER, "fstat", errno,
			"the file of the software device");
	*ret_bytes = (uint64_t)st.st_blocks * 512;
	return 0;
}
