/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents of an elastic block that are read where they lie, on the GPU or away, in the order of a stream and without
 * moving: a table says where each part of the range is, and the work that reads by it is queued while the block is
 * claimed. What is away stays as it is until that work has passed, for later copies are behind it. What is encrypted is
 * plain meanwhile, and the call waits for the work.
 *
 * Cost		a step for each piece of the range, and one for each part
 */
#include "base/error.h"
#include "cache/asked.h"
#include "cache/cache.h"

#include <errno.h>
#include <string.h>

_Static_assert(GLK_ROWS == GLK_STORE_CHUNK, "a place of the table is that of a chunk");

static uint32_t run_at(const struct glk_arena *arena, const struct glk_extent *e,
	uint32_t slot, struct glk_stretch *ret_stretch)
{
	struct glk_piece p = glk_part_piece(arena, e, slot);

	*ret_stretch = p.s;
	return glk_seal_run(arena->gpu, p.word);
}

/* Contents in a range, one after the other, from a slot on; 0: there is none any more. */
static uint32_t next_run(const struct glk_arena *arena, const struct glk_extent *e,
	struct glk_stretch in, uint32_t *slot, struct glk_stretch *ret_stretch)
{
	struct glk_stretch s = glk_part_kept(&arena->map, e, *slot, in.last);
	uint32_t run = 0;

	while (s.first <= s.last && !run) {
		run = run_at(arena, e, s.first, ret_stretch);
		*slot = ret_stretch->last + 1;
		if (!run)
			s = glk_part_kept(&arena->map, e, *slot, in.last);
	}
	return run;
}

/* All contents of the range are lent, or those before a slot are again the store's. */
static void end(const struct glk_arena *arena, const struct glk_extent *e,
	struct glk_stretch in, uint32_t before, struct glk_stream *on)
{
	struct glk_stretch s;
	uint32_t slot = in.first, run;

	while ((run = next_run(arena, e, in, &slot, &s)) && s.first < before) {
		glk_move_lent(&arena->gpu->mover, run, on);
		glk_cipher_cover(&arena->gpu->mover, run);
	}
}

static int begin(struct glk_arena *arena, const struct glk_extent *e,
	struct glk_stretch in, struct glk_stream *on)
{
	struct glk_mover *mover = &arena->gpu->mover;
	struct glk_stretch s;
	uint32_t slot = in.first, run;
	int err = 0;

	while (!err && (run = next_run(arena, e, in, &slot, &s))) {
		err = glk_pack_loosen(mover, run);
		if (!err)
			err = glk_cipher_bare(mover, run);
		if (!err) {
			err = glk_move_lend(mover, run, on);
			if (err)
				glk_cipher_cover(mover, run);
		}
		if (err)
			end(arena, e, in, s.first, on);
	}
	return err;
}

/* Where all of the range lies. A content may begin before it and end behind it. */
static void find(const struct glk_arena *arena, const struct glk_extent *e,
	struct glk_stretch in, uint64_t *places)
{
	const struct glk_map *map = &arena->map;
	uint64_t each = glk_slot_bytes(map) / GLK_ROWS, addr, bytes;
	struct glk_stretch s = glk_part_next(map, e, in.first, in.last, false), part;
	uint32_t slot = in.first, run;

	memset(places, 0, (in.last - in.first + 1) * each * sizeof(*places));
	for (; s.first <= s.last; s = glk_part_next(map, e, s.last + 1, in.last, false)) {
		glk_part_span(map, e, s, &addr);
		for (uint64_t i = 0; i < (s.last - s.first + 1) * each; i++)
			places[(s.first - in.first) * each + i] = addr + i * GLK_ROWS;
	}
	while ((run = next_run(arena, e, in, &slot, &s))) {
		part.first = s.first < in.first ? in.first : s.first;
		part.last = s.last > in.last ? in.last : s.last;
		bytes = glk_part_span(map, e, part, &addr);
		glk_move_places(&arena->gpu->mover, run,
			(part.first - s.first) * each * GLK_ROWS, bytes,
			places + (part.first - in.first) * each);
	}
}

static int read_rows(struct glk_arena *arena, struct glk_extent *e, uint32_t id,
	const struct glk_asking *how)
{
	struct glk_streams *streams = &arena->gpu->streams;
	const struct glk_rows *rows = how->arg;
	struct glk_mover *mover = &arena->gpu->mover;
	struct glk_stretch in;
	struct glk_stream *on;
	struct glk_use use;
	bool holds;
	int err = glk_portion_check(e, &rows->portion), failed = 0;

	if (err)
		return err;
	in = glk_portion_slots(&arena->map, e, &rows->portion, true);
	on = glk_stream_enter(streams, id);
	if (rows->read->streams && !glk_clock_finished(streams, rows->read))
		err = glk_clock_sync_use(streams, rows->read);
	if (err)
		return err;
	/* encryption that begins while the work is queued is another's to hold */
	holds = mover->store.cipher;
	if (holds)
		glk_cipher_hold(mover);
	err = begin(arena, e, in, on);
	if (err)
		goto out;
	find(arena, e, in, rows->places);
	glk_lock_pause(&arena->gpu->lock);
	err = rows->launch(rows->arg);
	glk_lock_resume(&arena->gpu->lock);
	/* what is plain meanwhile is so until that has passed */
	use = glk_stream_use(on, glk_clock_tick(streams, on));
	if (holds)
		failed = glk_clock_sync_use(streams, &use);
	end(arena, e, in, in.last + 1, on);
	*rows->read = glk_stream_use(on, glk_clock_tick(streams, on));
out:
	if (holds)
		glk_cipher_let_go(mover);
	return err ? err : failed;
}

int glk_cache_rows(struct glk_cache *cache, uint64_t addr, const struct glk_rows *rows,
	struct CUstream_st *stream)
{
	struct glk_asking how = {
		.fn = read_rows, .takes = true, .arg = (void *)(uintptr_t)rows};

	return glk_asked(cache, addr, stream, &how);
}
