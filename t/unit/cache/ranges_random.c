/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ranges of many blocks go and come by chance, as whole blocks do, while others need their memory, the
 * GPU and a tag are suspended in all ways, and blocks are freed. A model knows of each page of a block
 * whether it is away and what was written there last; what is here is looked at word by word. With hashes too, and
 * while a thread compresses what is away.
 */
#include "cache/tag/tag.h"
#include "range_parts.h"
#include "tier/lz4.h"
#include "tier/pack.h"

#include <stdlib.h>
#include <time.h>

#define BLOCKS 10
#define SLOTS  16 /* of a block, at most */
#define TAG    0x101u

static struct rig rig;
static struct CUstream_st *a, *b;

struct model {
	struct held h;
	bool tagged, gone[SLOTS];
	uint32_t writes[SLOTS];
};

/* The part of a block that lies in one of its slots. */
static size_t begin_of(const struct model *m, unsigned slot)
{
	uint64_t at = ((m->h.addr >> 21) + slot) << 21;

	return at > m->h.addr ? (size_t)(at - m->h.addr) : 0;
}

static unsigned slots_of(const struct model *m)
{
	return (unsigned)(((m->h.addr + m->h.size - 1) >> 21) - (m->h.addr >> 21) + 1);
}

static size_t end_of(const struct model *m, unsigned slot)
{
	size_t end = begin_of(m, slot + 1);

	return end > m->h.size ? m->h.size : end;
}

static uint64_t word_of(const struct model *m, unsigned slot, size_t at)
{
	return m->h.mark + ((uint64_t)m->writes[slot] << 32) + at;
}

/* Bytes between two words: nine pages, and no power of two, so that all places are met. */
#define STEP (9 * 4096 + 248)

static size_t first_of(const struct model *m, unsigned slot)
{
	return (begin_of(m, slot) + 7) & ~(size_t)7;
}

/* The next word after one; the last is at the end. */
static size_t next_of(const struct model *m, unsigned slot, size_t at)
{
	size_t last = (end_of(m, slot) - 8) & ~(size_t)7;

	return at < last && at + STEP > last ? last : at + STEP;
}

static void write_slot(struct model *m, unsigned slot)
{
	m->writes[slot]++;
	for (size_t at = first_of(m, slot); at + 8 <= end_of(m, slot);
		at = next_of(m, slot, at))
		*(uint64_t *)(m->h.addr + at) = word_of(m, slot, at);
}

static bool is_whole(const struct model *m)
{
	for (unsigned slot = 0; slot < slots_of(m); slot++) {
		size_t at = first_of(m, slot);

		for (; !m->gone[slot] && at + 8 <= end_of(m, slot);
			at = next_of(m, slot, at)) {
			if (*(uint64_t *)(m->h.addr + at) != word_of(m, slot, at)) {
				tap_note("slot %u at %zu of %zu", slot, at, m->h.size);
				return false;
			}
		}
	}
	return true;
}

static uint64_t gone_of(const struct model *m)
{
	uint64_t bytes = 0;

	for (unsigned slot = 0; slot < slots_of(m); slot++)
		bytes += m->gone[slot] ? end_of(m, slot) - begin_of(m, slot) : 0;
	return bytes;
}

static int make(struct model *m, struct CUstream_st *stream)
{
	size_t size = ((size_t)(rand() % 12 + 1) << 20) + (size_t)(rand() % 4) * 100000 +
		500000;
	int err;

	*m = (struct model){.tagged = rand() % 3 == 0};
	if (m->tagged)
		rig_set_tag(&rig, TAG);
	err = plan_take(&rig, &m->h, size, stream);
	rig_set_tag(&rig, 0);
	for (unsigned slot = 0; !err && slot < slots_of(m); slot++)
		write_slot(m, slot);
	return err;
}

/* What a call for a range has to answer, and leaves. */
static int expect(
	const struct model *m, size_t offset, size_t bytes, bool to_gpu, bool *ret_gone)
{
	unsigned moves = 0, in = 0;

	for (unsigned slot = 0; slot < slots_of(m); slot++) {
		bool touched =
			offset < end_of(m, slot) && offset + bytes > begin_of(m, slot);
		bool covered =
			offset <= begin_of(m, slot) && offset + bytes >= end_of(m, slot);
		bool hit = to_gpu ? touched : covered;

		in += hit;
		moves += hit && m->gone[slot] == to_gpu;
		ret_gone[slot] = hit ? !to_gpu : m->gone[slot];
	}
	if (!to_gpu && gone_of(m) == m->h.size)
		return -EALREADY;
	return !in ? -EINVAL : moves ? 0 : -EALREADY;
}

/* A call for a range, or for all. Whether it did what it has to. */
static bool move(struct model *m, struct CUstream_st *stream)
{
	bool to_gpu = rand() % 2, all = rand() % 8 == 0, gone[SLOTS] = {0};
	size_t offset = all ? 0 : (size_t)rand() % m->h.size;
	size_t bytes = all ? m->h.size : 1 + (size_t)rand() % (m->h.size - offset);
	int wanted, err;

	/* often to a border, where pieces meet */
	if (rand() % 2 && !all)
		bytes = m->h.size - offset;
	else if (rand() % 2 && !all)
		offset = 0;
	wanted = expect(m, offset, bytes, to_gpu, gone);
	if (all && rand() % 2)
		err = to_gpu ? glk_cache_fetch(&rig.cache, m->h.addr, stream)
			     : glk_cache_spill(&rig.cache, m->h.addr, stream);
	else
		err = to_gpu ? fetch_range(&rig, &m->h, offset, bytes, stream)
			     : spill_range(&rig, &m->h, offset, bytes, stream);
	if (err == -ENOMEM && to_gpu) {
		/* some of it may have come */
		err = glk_cache_spill(&rig.cache, m->h.addr, stream);
		memset(m->gone, true, sizeof(m->gone));
		return !err || err == -EALREADY;
	}
	if (err != wanted)
		tap_note("%zu at %zu of %zu, %s: %d, not %d: %s", bytes, offset,
			m->h.size, to_gpu ? "back" : "away", err, wanted,
			rig_error().text);
	if (!err)
		memcpy(m->gone, gone, sizeof(gone));
	return err == wanted && away_of(&rig, &m->h) == gone_of(m);
}

static int resume(void)
{
	struct glake_suspended did;
	int err = glk_cache_resume(&rig.cache, false, &did);

	if (err == -ENOMEM) {
		uint64_t budget = glk_load_relaxed(&rig.cache.node->budget);

		glk_store_relaxed(&rig.cache.node->budget, UINT64_MAX);
		err = glk_cache_resume(&rig.cache, false, &did);
		glk_store_relaxed(&rig.cache.node->budget, budget);
	}
	return err;
}

/* All goes and comes, once with its tag. Whether it did, with nothing of the GPU held meanwhile where
 * all goes. */
static bool turn(int way)
{
	struct glake_suspended did;
	int err;

	if (way == 0)
		return !glk_cache_tag_suspend(&rig.cache, TAG, 0, &did) &&
			!glk_cache_tag_resume(&rig.cache, TAG, &did);
	if (!leaves(&rig, way != 1))
		return false;
	err = resume();
	if (err || rig_figures(&rig).placed)
		tap_note("resumed: %d: %s", err, rig_error().text);
	return !err && !rig_figures(&rig).placed;
}

static bool step(struct model *list, bool turns)
{
	struct CUstream_st *stream = rand() % 2 ? a : b;
	struct model *m = &list[rand() % BLOCKS];
	uint64_t unused;
	bool good = true;

	if (!m->h.addr)
		return make(m, stream) == 0 ||
			rig_error().error_class == GLAKE_ERROR_NOMEM_DEVICE;
	if (rand() % 16 == 0) {
		good = is_whole(m) && !rig_free(&rig, m->h.addr, stream);
		m->h.addr = 0;
	} else if (rand() % 60 == 0) {
		good = !glk_cache_trim(&rig.cache, 0, false, &unused);
	} else if (turns && rand() % 40 == 0) {
		good = turn(rand() % 3);
	} else {
		for (unsigned slot = 0; slot < slots_of(m); slot++) {
			if (!m->gone[slot] && rand() % 4 == 0)
				write_slot(m, slot);
		}
		good = move(m, stream) && is_whole(m);
	}
	return good;
}

static void program(unsigned seed, const char *const *settings, bool turns)
{
	struct model list[BLOCKS] = {0};
	int steps = tap_storms_take_long() ? 50 : 400, n = 0, torn = 0, packed = 0;

	srand(seed);
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	if (glk_cache_tag_open(&rig.cache, TAG))
		tap_bail("no tag");
	glk_store_relaxed(&rig.cache.node->budget, turns ? 400 * MIB : 40 * MIB);
	for (; n < steps && !torn; n++) {
		torn += !step(list, turns);
		/* what comes to the GPU finds no page of the host that was left there */
		torn += rig_figures(&rig).placed > 0;
		if (n % 8)
			continue;
		range_settle(&rig);
		torn += !rig_is_sound(&rig);
		packed += rig_figures(&rig).packed > 0;
	}
	for (int i = 0; i < BLOCKS; i++)
		torn += list[i].h.addr && !is_whole(&list[i]);
	ok(!torn, "seed %u: %d steps, something is compressed at %d looks", seed, n,
		packed);
	ok(!rig.cache.mover.store.pack || packed, "  as it should be");
	for (int i = 0; i < BLOCKS; i++) {
		if (list[i].h.addr)
			rig_free(&rig, list[i].h.addr, a);
	}
	range_settle(&rig);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	static const char *const plain[] = {"policy.bins=0", NULL};
	static const char *const verified[] = {"tier.verify=yes", NULL};
	static const char *const packed[] = {"tier.compress=lz4", "tier.compress_rest=0s",
		"soft.host_memory=1GiB", NULL};
	static const char *const turning[] = {
		"soft.host_memory=2GiB", "tier.host=1GiB", NULL};

	tap_plan_later();
	for (unsigned seed = 1; seed < 3; seed++)
		program(seed, seed % 2 ? plain : verified, false);
	for (unsigned seed = 4; seed < 7; seed++)
		program(seed, turning, true);
	if (!glk_pack_able())
		program(7, packed, false);
	return tap_done();
}
