/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What of a KV cache is committed: runs of pages by sequence and group, see kv.h. */
#include "kv/kv.h"

#include "base/error.h"
#include "base/parse.h"
#include "guard/guard.h"

#include <errno.h>
#include <inttypes.h>

void glk_kv_change_begin(struct glake_kv *kv, uint32_t slot)
{
	bool waits = false;

	while (kv->changing ||
		(slot == GLK_KV_ALL ? kv->pending > 0 : kv->sequence[slot].pending)) {
		waits = true;
		glk_lock_wait(&kv->lock, &kv->settled);
	}
	kv->waits += waits;
	kv->changing = true;
}

void glk_kv_change_end(struct glake_kv *kv)
{
	kv->changing = false;
	pthread_cond_broadcast(&kv->settled);
}

/* What the sequence is ready for, and when a page of it comes to lie in front of a window. */
void glk_kv_settle(struct glake_kv *kv, uint32_t slot)
{
	struct glk_kv_sequence *q = &kv->sequence[slot];

	q->ready = kv->shape.tokens;
	q->sheds = UINT32_MAX;
	for (uint32_t i = 0; i < kv->shape.groups; i++) {
		const struct glk_kv_group *g = &kv->shape.group[i];
		const struct glk_kv_run *run = glk_kv_run_at(kv, slot, i);
		uint32_t ready = glk_kv_ready(&kv->shape, i, run->end);
		uint64_t sheds;

		q->ready = ready < q->ready ? ready : q->ready;
		if (g->rule != GLAKE_KV_WINDOW || kv->shape.single)
			continue;
		/* the first page is in front of it with the token whose window begins in the next one */
		sheds = ((run->first + UINT64_C(1)) * kv->shape.page + g->row - 1) /
				g->row +
			g->window;
		q->sheds = sheds < q->sheds ? (uint32_t)sheds : q->sheds;
	}
	/* whoever would use it finds out */
	if (q->away)
		q->ready = 0;
}

size_t glk_kv_add_missing_of(const struct glake_kv *kv, uint32_t slot, uint32_t group,
	uint32_t tokens, size_t count)
{
	struct glk_kv_run want = glk_kv_pages(&kv->shape, group, tokens);
	struct glk_kv_run has = *glk_kv_run_at(kv, slot, group),
			  more = {.first = has.end, .end = want.end};

	/* what lies in front of a window is not had at first; later a run stays one */
	if (has.first == has.end)
		more.first = want.first > has.end ? want.first : has.end;
	if (more.first < more.end)
		kv->portion[count++] = glk_kv_portion(kv, slot, group, more);
	return count;
}

bool glk_kv_is_large(const struct glake_kv *kv, uint32_t lane, uint32_t lanes)
{
	for (uint32_t i = lane; i < lane + lanes && kv->shape.large; i++)
		if (kv->shape.group[kv->shape.lane_group[i]].rule != GLAKE_KV_ALL)
			return false;
	return kv->shape.large;
}

void glk_kv_note_large(const struct glake_kv *kv, struct glk_kv_run *run, uint32_t pages)
{
	uint64_t large = kv->cache->node->page_size[GLK_CLASS_LARGE];

	run->large |= large > kv->shape.page && pages * kv->shape.page >= large;
}

void glk_kv_note_missing_of(
	struct glake_kv *kv, uint32_t slot, uint32_t group, uint32_t tokens, bool large)
{
	struct glk_kv_run want = glk_kv_pages(&kv->shape, group, tokens);
	struct glk_kv_run *run = glk_kv_run_at(kv, slot, group);

	if (run->end >= want.end)
		return;
	if (run->first == run->end && run->end < want.first)
		run->first = want.first;
	if (large)
		glk_kv_note_large(kv, run, want.end - run->end);
	run->end = want.end;
}

size_t glk_kv_add_missing(
	const struct glake_kv *kv, uint32_t slot, uint32_t tokens, size_t count)
{
	for (uint32_t i = 0; i < kv->shape.groups; i++)
		count = glk_kv_add_missing_of(kv, slot, i, tokens, count);
	return count;
}

void glk_kv_note_missing(struct glake_kv *kv, uint32_t slot, uint32_t tokens, bool large)
{
	for (uint32_t i = 0; i < kv->shape.groups; i++)
		glk_kv_note_missing_of(kv, slot, i, tokens, large);
}

static uint64_t bytes_in(const struct glake_kv *kv, size_t count)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += kv->portion[i].bytes;
	return bytes;
}

static int is_above(const struct glake_kv *kv, uint64_t bytes)
{
	return glk_error(-EDQUOT, GLAKE_ERROR_LIMIT,
		"the KV cache may have %s of pages and has %s; %s more were asked for",
		glk_say_bytes(kv->limit).text, glk_say_bytes(kv->held).text,
		glk_say_bytes(bytes).text);
}

int glk_kv_may_commit(const struct glake_kv *kv, size_t count, uint64_t *ret_bytes)
{
	uint64_t bytes = bytes_in(kv, count);

	*ret_bytes = bytes;
	if (!kv->limit || !bytes)
		return 0;
	return kv->held >= kv->limit || bytes > kv->limit - kv->held ? is_above(kv, bytes)
								     : 0;
}

void glk_kv_note_commit(struct glake_kv *kv, uint64_t bytes)
{
	kv->held += bytes;
	kv->extends++;
	kv->pages += bytes / kv->shape.page;
}

void glk_kv_clear(struct glake_kv *kv, size_t count, struct CUstream_st *stream)
{
	if (!glk_guard_shares(kv->cache, kv->domains))
		return;
	for (size_t i = 0; i < count; i++)
		glk_guard_clear(kv->cache, kv->base + kv->portion[i].offset,
			kv->portion[i].bytes, stream);
}

int glk_kv_commit(
	struct glake_kv *kv, size_t count, struct CUstream_st *stream, uint32_t how)
{
	uint64_t bytes, wants;
	int err = glk_kv_may_commit(kv, count, &bytes);

	if (err)
		return err;
	glk_unlock(&kv->lock);
	err = glk_elastic_commit(
		kv->cache, kv->base, kv->portion, count, stream, how, &wants);
	if (!err)
		glk_kv_clear(kv, count, stream);
	glk_lock(&kv->lock);
	kv->wants = err == -ENOMEM ? wants : 0;
	if (!err)
		glk_kv_note_commit(kv, bytes);
	return err;
}

int glk_kv_decommit(struct glake_kv *kv, size_t count, struct CUstream_st *stream)
{
	uint64_t bytes, freed, unused;
	int err;

	glk_unlock(&kv->lock);
	err = glk_elastic_decommit(
		kv->cache, kv->base, kv->portion, count, stream, &bytes, &freed);
	/* what went before comes back, without what was in it, and is shared no more */
	if (err)
		glk_elastic_commit(kv->cache, kv->base, kv->portion, count, stream,
			GLK_COMMIT_INSISTS, &unused);
	glk_lock(&kv->lock);
	kv->shared -= bytes - freed;
	if (err)
		kv->held += bytes - freed;
	else
		kv->held -= freed;
	return err;
}
