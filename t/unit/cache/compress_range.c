/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents that are compressed, of blocks that go and come in ranges: by chance, with and without hashes,
 * while the thread that compresses is at work or when it has done all. A model knows of each page of a
 * block whether it is away and what was written there last; all that is here is looked at.
 */
#include "tier/lz4.h"
#include "tier/pack.h"

#include "range_parts.h"
#include "seed.h"

#define BLOCKS 6
#define SLOTS  16 /* of a block, at most */
#define PAGE   (2 * MIB)

static struct rig rig;
static struct CUstream_st *a;
static bool stepped;   /* streams run when they are told to */
static bool encrypted; /* with security.level=3 */

struct model {
	struct held h;
	struct CUstream_st *stream;
	unsigned slots;
	bool gone[SLOTS], noise[SLOTS];
	uint32_t writes[SLOTS];
};

static void set_up(const char *setting, const char *other)
{
	rig_open(&rig,
		(const char *const[]){"tier.compress=lz4", "tier.compress_rest=0s",
			"soft.host_memory=1GiB", setting, other, NULL});
	a = rig_stream(&rig);
	if (encrypted && glk_cache_encrypt(&rig.cache))
		tap_bail(rig_error().text);
}

/* ---- The model ---- */

static size_t begin_of(const struct model *m, unsigned slot)
{
	uint64_t at = (m->h.addr / PAGE + slot) * PAGE;

	return at > m->h.addr ? (size_t)(at - m->h.addr) : 0;
}

static size_t end_of(const struct model *m, unsigned slot)
{
	size_t end = begin_of(m, slot + 1);

	return end > m->h.size ? m->h.size : end;
}

static uint64_t word_of(const struct model *m, unsigned slot, size_t at)
{
	uint64_t word = m->h.mark + ((uint64_t)m->writes[slot] << 24) + (at >> 14);
	uint64_t noise = (word + at) * UINT64_C(0x9e3779b97f4a7c15);

	noise = (noise ^ noise >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return m->noise[slot] ? noise ^ noise >> 32 : word;
}

/* Words between two that are looked at: all are written, and a place is missed in turn. */
#define LOOKED 31

static void write_slot(struct model *m, unsigned slot, bool noise)
{
	m->writes[slot]++;
	m->noise[slot] = noise;
	for (size_t at = (begin_of(m, slot) + 7) & ~(size_t)7; at + 8 <= end_of(m, slot);
		at += 8)
		*(uint64_t *)(m->h.addr + at) = word_of(m, slot, at);
}

static bool is_whole(const struct model *m)
{
	for (unsigned slot = 0; slot < m->slots; slot++) {
		size_t at = (begin_of(m, slot) + 7) & ~(size_t)7;

		for (; !m->gone[slot] && at + 8 <= end_of(m, slot); at += 8 * LOOKED) {
			if (*(uint64_t *)(m->h.addr + at) != word_of(m, slot, at)) {
				tap_note("slot %u at %zu of %zu", slot, at, m->h.size);
				return false;
			}
		}
	}
	return true;
}

static int make(struct model *m, size_t size, struct CUstream_st *stream, uint64_t *state)
{
	int err;

	*m = (struct model){.stream = stream};
	err = plan_take(&rig, &m->h, size, stream);
	m->slots = err ? 0
		       : (unsigned)((m->h.addr + size - 1) / PAGE - m->h.addr / PAGE + 1);
	for (unsigned slot = 0; slot < m->slots; slot++)
		write_slot(m, slot, state && seed_below(state, 3) == 0);
	return err;
}

/* A call for a range, and whether it answered what it has to and left what it has to. */
static bool move(struct model *m, size_t offset, size_t bytes, bool to_gpu)
{
	bool gone[SLOTS] = {0};
	unsigned moves = 0, in = 0, here = 0;
	uint64_t away = 0;
	int wanted, err;

	for (unsigned slot = 0; slot < m->slots; slot++) {
		size_t begin = begin_of(m, slot), end = end_of(m, slot);
		bool hit = to_gpu ? offset < end && offset + bytes > begin
				  : offset <= begin && offset + bytes >= end;

		in += hit;
		here += !m->gone[slot];
		moves += hit && m->gone[slot] == to_gpu;
		gone[slot] = hit ? !to_gpu : m->gone[slot];
		away += gone[slot] ? end - begin : 0;
	}
	wanted = !to_gpu && !here ? -EALREADY : !in ? -EINVAL : moves ? 0 : -EALREADY;
	err = to_gpu ? fetch_range(&rig, &m->h, offset, bytes, m->stream)
		     : spill_range(&rig, &m->h, offset, bytes, m->stream);
	if (err != wanted)
		tap_note("%zu at %zu of %zu, %s: %d, not %d: %s", bytes, offset,
			m->h.size, to_gpu ? "back" : "away", err, wanted,
			rig_error().text);
	if (!err)
		memcpy(m->gone, gone, sizeof(gone));
	return err == wanted && (err || away_of(&rig, &m->h) == away);
}

/* ---- By chance ---- */

static bool move_some(struct model *m, uint64_t *state)
{
	bool to_gpu = seed_below(state, 2), all = seed_below(state, 4) == 0;
	size_t offset = all ? 0 : seed_below(state, m->h.size);
	size_t bytes = all ? m->h.size : 1 + seed_below(state, m->h.size - offset);

	/* often to a border, where pieces meet */
	if (!all && seed_below(state, 3) == 0)
		bytes = m->h.size - offset;
	else if (!all && seed_below(state, 2))
		offset = 0;
	return move(m, offset, bytes, to_gpu);
}

/* The GPU is suspended and resumed. */
static bool turn(uint64_t *state)
{
	struct glake_suspended did;
	int err = glk_cache_suspend(&rig.cache, false, &did);

	if (seed_below(state, 2))
		range_settle(&rig);
	err = err ? err : glk_cache_resume(&rig.cache, false, &did);
	if (err)
		tap_note("%d: %s", err, rig_error().text);
	return !err;
}

/* A call that fails leaves what was there, or what has come; then all comes, and is what it was. */
static bool fails(struct model *m, uint64_t *state)
{
	static const char *const calls[] = {
		"copy", "host_lock", "event_record", "stream_wait", "event_sync", "map"};
	size_t offset = seed_below(state, m->h.size);
	size_t bytes = 1 + seed_below(state, m->h.size - offset);
	uint64_t call = seed_below(state, 7);
	char rule[64];
	int err;

	if (call < 6)
		snprintf(rule, sizeof(rule), "%s:nth=%d:err=EIO", calls[call],
			1 + (int)seed_below(state, 3));
	if (call < 6 ? glk_fault_set(rig.drv, rule) : 0)
		return false;
	if (call == 6)
		glk_region_fail_after(1);
	err = seed_below(state, 2) ? fetch_range(&rig, &m->h, offset, bytes, m->stream)
				   : spill_range(&rig, &m->h, offset, bytes, m->stream);
	glk_region_fail_after(0);
	glk_fault_set(rig.drv, "off");
	err = glk_cache_fetch(&rig.cache, m->h.addr, m->stream);
	if (err && err != -EALREADY)
		tap_note("%s: %d: %s", call < 6 ? rule : "region", err, rig_error().text);
	memset(m->gone, 0, sizeof(m->gone));
	if (stepped)
		glk_soft_run_all(rig.drv);
	tap_expect_log(tap.logs - tap.expected);
	return (!err || err == -EALREADY) && is_whole(m);
}

/* Some of what is queued runs, the copies to the host now and then before all others. */
static void run_some(uint64_t *state)
{
	struct CUstream_st *streams[] = {
		rig.cache.mover.out_channel.main, rig.cache.mover.back_channel.main, a};

	for (uint64_t n = seed_below(state, 6); n && streams[0]; n--) {
		struct CUstream_st *stream = streams[seed_below(state, 3)];

		while (!glk_soft_step(rig.drv, 0, stream) && seed_below(state, 8))
			;
	}
}

/* Moves and frees of which nothing has run yet, or some. */
static bool step_held(struct model *m, uint64_t *state)
{
	bool good = true;

	run_some(state);
	if (seed_below(state, 10)) {
		good = move_some(m, state);
	} else {
		good = !rig_free(&rig, m->h.addr, a);
		m->h.addr = 0;
	}
	run_some(state);
	return good;
}

static bool step(struct model *list, uint64_t *state)
{
	struct model *m = &list[seed_below(state, BLOCKS)];
	uint64_t what = seed_below(state, 48), unused;
	bool good = true;

	if (stepped && m->h.addr && seed_below(state, 4))
		return step_held(m, state);
	if (stepped)
		glk_soft_run_all(rig.drv);
	if (!m->h.addr)
		return !make(m,
			(1 + seed_below(state, 14)) * MIB + seed_below(state, 8) * 65536 +
				512,
			a, state);
	if (what < 2) {
		good = is_whole(m) && !rig_free(&rig, m->h.addr, a);
		m->h.addr = 0;
		return good;
	}
	if (what == 2)
		return turn(state);
	if (what == 4 || what == 5)
		return fails(m, state);
	if (what == 3)
		return !glk_cache_trim(&rig.cache, 0, false, &unused);
	if (what < 14)
		range_settle(&rig);
	else if (what < 30)
		nanosleep(&(struct timespec){.tv_nsec = (long)seed_below(state, 4000000)},
			NULL);
	for (unsigned slot = 0; slot < m->slots; slot++) {
		if (!m->gone[slot] && seed_below(state, 6) == 0)
			write_slot(m, slot, seed_below(state, 3) == 0);
	}
	good = move_some(m, state);
	if (stepped)
		glk_soft_run_all(rig.drv);
	return is_whole(m) && good;
}

static void by_chance(uint64_t seed, unsigned nth, const char *verify)
{
	int steps = tap_storms_take_long() ? 30 : STORM_SIZE(500), n = 0, torn = 0,
	    packed = 0;
	struct model list[BLOCKS] = {0};
	uint64_t state = seed_thread(seed, nth);

	stepped = nth > 1;
	set_up(verify, stepped ? "soft.streams=stepped" : NULL);
	/* As many as it takes: in a few steps nothing may go that shrinks. It is looked at when all has been
	 * packed that waits, which no load changes. */
	for (; (n < steps || packed <= steps / 16) && n < 32 * steps && !torn; n++) {
		torn += !step(list, &state);
		if (n % 8)
			continue;
		if (stepped)
			glk_soft_run_all(rig.drv);
		range_settle(&rig);
		torn += !rig_is_sound(&rig);
		packed += rig_figures(&rig).packed > 0;
	}
	ok(!torn, "%s%s%s: %d steps, something is packed at %d looks", verify,
		encrypted ? ", encrypted" : "", stepped ? ", held" : "", n, packed);
	ok(packed > steps / 16, "  so they are often");
	for (int i = 0; i < BLOCKS; i++) {
		struct model *m = &list[i];

		if (stepped)
			glk_soft_run_all(rig.drv);

		if (!m->h.addr)
			continue;
		range_settle(&rig);
		torn += i % 2 && !is_whole(m);
		if (i % 2 && away_of(&rig, &m->h)) {
			torn += !move(m, 0, m->h.size, true);
			if (stepped)
				glk_soft_run_all(rig.drv);
			torn += !is_whole(m);
		}
		torn += rig_free(&rig, m->h.addr, a) != 0;
	}
	ok(!torn, "  all comes back, or is freed where it is");
	range_settle(&rig);
	is_int((int64_t)rig_figures(&rig).packed, 0, "  and nothing is kept");
	is_int((int64_t)rig_figures(&rig).store_used, 0, "  of the store neither");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* ---- Threads ---- */

struct worker {
	pthread_t thread;
	struct CUstream_st *stream;
	uint64_t state;
	int torn;
};

/* Each with blocks of its own; nobody waits for what compresses. */
static void *work(void *arg)
{
	struct model list[BLOCKS] = {0};
	struct worker *w = arg;

	for (int n = 0; n < (tap_storms_take_long() ? 10 : STORM_SIZE(300)) && !w->torn;
		n++) {
		struct model *m = &list[seed_below(&w->state, 3)];
		bool good = true;

		if (!m->h.addr) {
			good = !make(m, (1 + seed_below(&w->state, 8)) * MIB + 65536,
				w->stream, &w->state);
		} else if (seed_below(&w->state, 12) == 0) {
			good = is_whole(m) && !rig_free(&rig, m->h.addr, w->stream);
			m->h.addr = 0;
		} else {
			nanosleep(&(struct timespec){.tv_nsec = (long)seed_below(
							     &w->state, 6000000)},
				NULL);
			good = move_some(m, &w->state) && is_whole(m);
		}
		w->torn += !good;
	}
	for (int i = 0; i < BLOCKS; i++)
		w->torn += list[i].h.addr && rig_free(&rig, list[i].h.addr, w->stream);
	return NULL;
}

static void among_others(uint64_t seed, const char *verify)
{
	struct worker w[3] = {{0}};
	int torn = 0;

	set_up(verify, NULL);
	for (unsigned i = 0; i < 3; i++) {
		w[i].state = seed_thread(seed, 10 + i);
		w[i].stream = rig_stream(&rig);
	}
	for (int i = 0; i < 3; i++)
		pthread_create(&w[i].thread, NULL, work, &w[i]);
	for (int i = 0; i < 3; i++) {
		pthread_join(w[i].thread, NULL);
		torn += w[i].torn;
	}
	ok(!torn, "%s: threads send ranges, and have them back", verify);
	range_settle(&rig);
	is_int((int64_t)rig_figures(&rig).packed, 0, "nothing is kept");
	is_int((int64_t)rig_figures(&rig).store_used, 0, "of the store neither");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* ---- One at a time ---- */

/* Memory of the store that a copy to the host has still to write to, for a block that was freed since,
 * serves a content that is made what it was. */
static void behind_a_copy(const char *verify)
{
	struct model m, other;
	bool good = true;

	set_up("soft.streams=stepped", verify);
	good = !make(&m, 20 * MIB, a, NULL) && move(&m, 0, m.h.size, false);
	glk_soft_run_all(rig.drv);
	range_settle(&rig);
	ok(good && rig_figures(&rig).packed == m.h.size, "a content is packed");
	good = !make(&other, 20 * MIB, a, NULL);
	good = good && move(&other, 0, other.h.size, false);
	good = good && !rig_free(&rig, other.h.addr, a);
	ok(good, "another one is on its way, and freed");
	good = move(&m, 0, 6 * MIB, true);
	glk_soft_run_all(rig.drv);
	ok(good && is_whole(&m), "a range of the first one comes");
	good = move(&m, 0, m.h.size, true);
	glk_soft_run_all(rig.drv);
	ok(good && is_whole(&m), "and the rest of it, as it was");
	good = !rig_free(&rig, m.h.addr, a);
	ok(good, "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Idle memory of the host, of what lay there in place, goes back for the room that the content needs. */
static void has_idle_memory(void)
{
	struct held two, three;
	struct model one;
	bool good;

	set_up("tier.place=host", "tier.host=160MiB");
	good = !make(&one, 20 * MIB, a, NULL) && move(&one, 0, one.h.size, false);
	range_settle(&rig);
	ok(good && rig_figures(&rig).packed == one.h.size, "a content is packed");
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
	good = !plan_take(&rig, &two, 48 * MIB, a) &&
		!plan_take(&rig, &three, 48 * MIB, a);
	ok(good && rig_figures(&rig).placed == 48 * MIB,
		"a block lies on the host in place");
	ok(plan_drop(&rig, &three, a) && plan_drop(&rig, &two, a), "and is freed");
	ok(rig_figures(&rig).host_held > 112 * MIB, "its memory idles");
	good = move(&one, 0, 4 * MIB, true);
	ok(good && is_whole(&one), "a range comes");
	ok(move(&one, 0, one.h.size, true) && is_whole(&one), "and the rest of it");
	ok(!rig_free(&rig, one.h.addr, a), "it is freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	uint64_t seed = seed_start();

	tap_plan_later();
	if (glk_pack_able()) {
		tap_skip("ranges of what is compressed", "the library has no lz4");
		return tap_done();
	}
	behind_a_copy("tier.verify=no");
	has_idle_memory();
	if (!tap_one_thread_takes_long()) {
		by_chance(seed, 0, "tier.verify=no");
		by_chance(seed, 2, "tier.verify=no");
	}
	among_others(seed, "tier.verify=no");
#ifdef GLK_XXHASH
	if (!tap_one_thread_takes_long())
		by_chance(seed, 1, "tier.verify=yes");
	among_others(seed, "tier.verify=yes");
#endif
	if (!glk_cipher_able()) {
		encrypted = true;
		behind_a_copy("tier.verify=no");
		for (unsigned nth = 0; nth < 4 && !tap_one_thread_takes_long(); nth += 2)
			by_chance(seed, nth, "tier.verify=no");
		among_others(seed, "tier.verify=no");
	}
	return tap_done();
}
