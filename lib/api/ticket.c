/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of contents on their way: see glake/ticket.h. */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>

#include <glake/ticket.h>
#include <glake/tier.h>

/* The context, the GPU that an address is of, and the table. */
static int begin(struct glake *ctx, void *ptr, struct glake_ticket **ret_ticket,
	struct glk_cache **ret_cache)
{
	int err = glk_context_owner(ctx, ptr, ret_cache);

	if (!err && !ret_ticket)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the ticket");
	return err ? err : glk_ticket_ready();
}

/* Of a block, or a portion of it. */
static int move(struct glake *ctx, void *ptr, const struct glk_portion *portion,
	struct CUstream_st *stream, int kind, struct glake_ticket **ret_ticket)
{
	struct glk_ticket t = {.owner = (uintptr_t)ctx,
		.addr = (uint64_t)(uintptr_t)ptr,
		.kind = kind,
		.state = GLAKE_TICKET_QUEUED};
	struct glk_cache *cache;
	int err = begin(ctx, ptr, ret_ticket, &cache), cancel;

	if (err)
		return err;
	cancel = glk_cancel_off();
	t.device = cache->device;
	t.asked = glk_clock_ns();
	err = glk_cache_move(
		cache, t.addr, stream, kind == GLAKE_TICKET_FETCH, portion, &t.told);
	if (!err)
		*ret_ticket = (struct glake_ticket *)(uintptr_t)glk_ticket_new(&t);
	glk_prefetch_pump(cache);
	glk_cancel_restore(cancel);
	return err;
}

int glake_spill_ticket(struct glake *ctx, void *ptr, struct CUstream_st *stream,
	struct glake_ticket **ret_ticket)
{
	return move(ctx, ptr, NULL, stream, GLAKE_TICKET_SPILL, ret_ticket);
}

int glake_fetch_ticket(struct glake *ctx, void *ptr, struct CUstream_st *stream,
	struct glake_ticket **ret_ticket)
{
	return move(ctx, ptr, NULL, stream, GLAKE_TICKET_FETCH, ret_ticket);
}

/* A ticket that nobody wants is none. */
static int move_range(struct glake *ctx, void *ptr, const struct glk_portion *portion,
	struct CUstream_st *stream, int kind, struct glake_ticket **ret_ticket)
{
	struct glk_cache *cache;
	int err, cancel;

	if (ret_ticket)
		return move(ctx, ptr, portion, stream, kind, ret_ticket);
	err = glk_context_owner(ctx, ptr, &cache);
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_move(cache, (uint64_t)(uintptr_t)ptr, stream,
		kind == GLAKE_TICKET_FETCH, portion, NULL);
	glk_prefetch_pump(cache);
	glk_cancel_restore(cancel);
	return err;
}

int glake_spill_range(struct glake *ctx, void *ptr, size_t offset, size_t bytes,
	struct CUstream_st *stream, struct glake_ticket **ret_ticket)
{
	const struct glk_portion portion = {offset, bytes};

	return move_range(ctx, ptr, &portion, stream, GLAKE_TICKET_SPILL, ret_ticket);
}

int glake_fetch_range(struct glake *ctx, void *ptr, size_t offset, size_t bytes,
	struct CUstream_st *stream, struct glake_ticket **ret_ticket)
{
	const struct glk_portion portion = {offset, bytes};

	return move_range(ctx, ptr, &portion, stream, GLAKE_TICKET_FETCH, ret_ticket);
}

int glake_prefetch(struct glake *ctx, void *ptr, struct CUstream_st *stream,
	int64_t deadline, int priority, struct glake_ticket **ret_ticket)
{
	struct glk_ticket t = {.owner = (uintptr_t)ctx,
		.addr = (uint64_t)(uintptr_t)ptr,
		.kind = GLAKE_TICKET_PREFETCH,
		.state = GLAKE_TICKET_QUEUED,
		.deadline = deadline};
	struct glake_ticket *none;
	struct glk_cache *cache;
	int err = begin(ctx, ptr, ret_ticket ? ret_ticket : &none, &cache), cancel;

	if (!err && deadline < 0)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no time is negative");
	if (err)
		return err;
	cancel = glk_cancel_off();
	t.device = cache->device;
	t.asked = glk_clock_ns();
	err = glk_cache_prefetch(
		cache, t.addr, stream, deadline, priority, ret_ticket ? &t : NULL);
	if (!err && ret_ticket)
		*ret_ticket = (struct glake_ticket *)(uintptr_t)t.number;
	glk_cancel_restore(cancel);
	return err;
}

/* What is behind a ticket, and its GPU. */
static int find(struct glake_ticket *ticket, struct glk_ticket *ret_ticket,
	struct glk_cache **ret_cache)
{
	struct glk_context *context;
	int err = glk_ticket_read((uintptr_t)ticket, ret_ticket);

	return err ? err
		   : glk_context_device((struct glake *)ret_ticket->owner,
			     ret_ticket->device, &context, ret_cache);
}

int glake_ticket_get(struct glake_ticket *ticket, struct glake_ticket_info *ret_info)
{
	struct glake_ticket_info info = {.sz = sizeof(info)};
	struct glk_cache *cache;
	struct glk_ticket t;
	int err = find(ticket, &t, &cache), cancel;

	if (!err)
		err = glk_sized_out(ret_info, &info, sizeof(info));
	if (err)
		return err;
	cancel = glk_cancel_off();
	glk_prefetch_pump(cache);
	err = glk_cache_ticket_look(cache, &t);
	glk_io_rest(cache->io);
	glk_cancel_restore(cancel);
	if (err)
		return err;
	info.state = t.state;
	info.kind = t.kind;
	info.device = t.device;
	info.error = t.error;
	info.address = (void *)(uintptr_t)t.addr;
	info.bytes = t.told.bytes;
	info.asked_ns = t.asked;
	info.begun_ns = t.begun;
	info.ended_ns = t.ended;
	info.deadline_ns = t.deadline;
	return glk_sized_out(ret_info, &info, sizeof(info));
}

int glake_ticket_wait(struct glake_ticket *ticket, int64_t ns)
{
	struct glk_cache *cache;
	struct glk_ticket t;
	int err = find(ticket, &t, &cache), cancel;

	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_ticket_wait(cache, &t, ns);
	glk_io_rest(cache->io);
	glk_cancel_restore(cancel);
	return err;
}

int glake_ticket_cancel(struct glake_ticket *ticket)
{
	struct glk_cache *cache;
	struct glk_ticket t;
	int err = find(ticket, &t, &cache);

	return err ? err : glk_cache_prefetch_cancel(cache, &t);
}

int glake_ticket_close(struct glake_ticket *ticket)
{
	return ticket ? glk_ticket_close((uintptr_t)ticket) : 0;
}

const char *glake_ticket_state_name(int state)
{
	static const char *const names[] = {
		"queued", "copying", "done", "failed", "cancelled"};

	return state < 0 || state > GLAKE_TICKET_CANCELLED ? "unknown" : names[state];
}

const char *glake_ticket_kind_name(int kind)
{
	static const char *const names[] = {"spill", "fetch", "prefetch"};

	return kind < 0 || kind > GLAKE_TICKET_PREFETCH ? "unknown" : names[kind];
}
