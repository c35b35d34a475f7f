/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages of the host take the place of pages of the GPU: see exchange.h. They are the ones that cost: 12
 * ms a GiB to map and 5 to unmap, in pages of 8 MiB, against 3 and 2 for pages of the GPU. So each is
 * mapped once, where it stays, and it is the pages of the GPU that are mapped a second time, in a window,
 * from where the contents are copied:
 *
 *	prepare	pages of the host are had, mapped nowhere; the pages of the GPU come into a window, leave
 *		the addresses of the blocks, and the new ones come there. Nothing uses the blocks: the
 *		plan is closed, and the work that is known has finished
 *	finish	the window is empty again, and the pages of the GPU are free
 *
 * Until the finish the contents are in the pages of the GPU, which come back where the driver refuses a
 * step, or the copy fails. Where the GPU cannot be waited for, the blocks have the new pages, behind the
 * copy, and the old ones stay in the window, out of use.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/exchange.h"
#include "cache/part.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>

/* Times that pages are tried to be unmapped that are in the way of the contents. */
#define TRIES 8

static uint64_t run_bytes(const struct glk_exchange *x)
{
	return (uint64_t)(x->run.last - x->run.first + 1) << x->map->shift;
}

/* Pages in use that the driver has mapped elsewhere, too. */
static void keep(const struct glk_exchange *x)
{
	for (uint32_t slot = x->run.first; slot <= x->run.last;) {
		uint32_t id = x->map->page[slot];

		if (id)
			glk_map_page(x->map, id)->kept = true;
		slot += id ? glk_page_slots(x->map, glk_map_page(x->map, id)) : 1;
	}
}

/* The old pages come into the window, leave the run, and the new ones come there. */
static int turn(struct glk_exchange *x)
{
	uint32_t old = glk_swap_take(x->map, x->run.first, x->run.last);
	int err = glk_window_fill(x, old);

	if (err) {
		glk_swap_settle(x->map, x->run.first, x->run.last);
	} else {
		err = glk_exchange_swap(x, old);
		if (err)
			glk_window_close(x);
	}
	if (!err)
		x->old = old;
	else if (x->window->kept)
		keep(x);
	return err;
}

int glk_exchange_lower(struct glk_exchange *x)
{
	struct glk_streams *streams = &x->arena->gpu->streams;
	int err = 0;

	glk_exchange_gather(x);
	if (!glk_clock_finished(streams, &x->use))
		err = glk_clock_sync_use(streams, &x->use);
	if (!err)
		err = glk_window_open(x, run_bytes(x));
	if (err)
		return err;
	glk_exchange_tally(x, false);
	err = turn(x);
	glk_exchange_tally(x, true);
	return err;
}

/* The copy has failed, and nothing is under way: the old pages come back. */
static void undo(struct glk_exchange *x)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_map *map = x->map;
	uint32_t new;
	int err = -EIO;

	glk_exchange_tally(x, false);
	new = glk_swap_take(map, x->busy.first, x->busy.last);
	for (int i = 0; i < TRIES && err; i++)
		err = glk_swap_unmap(map, x->busy.first, x->busy.last);
	if (!err) {
		glk_exchange_put_old(x, x->old);
		glk_swap_put_back(map, new);
		x->old = 0;
	} else {
		glk_warn("GPU %d: what lay at 0x%" PRIx64
			 " is lost: it was not copied, and "
			 "the driver unmaps nothing there",
			x->arena->gpu->device, glk_slot_addr(map, x->busy.first));
	}
	glk_swap_settle(map, x->run.first, x->run.last);
	glk_exchange_tally(x, true);
	glk_error_back(&why);
}

int glk_exchange_lowered(struct glk_exchange *x)
{
	int err = x->err, failed;

	glk_exchange_used(x);
	glk_exchange_shut(x);
	if (!x->idle) {
		glk_window_abandon(x);
		glk_window_lose(x, x->old);
		return err;
	}
	if (err)
		undo(x);
	failed = glk_window_close(x);
	if (failed && !x->old)
		keep(x);
	if (failed)
		glk_window_lose(x, x->old);
	else
		glk_swap_put_back(x->map, x->old);
	return err ? err : failed;
}
