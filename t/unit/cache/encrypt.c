/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that go to the host are encrypted there, and come back as they were: security.level=3. */
#include "move/away.h"
#include "tier/cipher.h"

#include "sent_parts.h"

#include <string.h>

static void set_up(const char *setting, const char *other)
{
	rig_open(&rig,
		(const char *const[]){"soft.host_memory=1GiB", setting, other, NULL});
	a = rig_stream(&rig);
	if (glk_cache_encrypt(&rig.cache))
		tap_bail(rig_error().text);
}

/* Four words that no other content has, again and again. */
struct content {
	uint64_t addr, word;
	size_t size;
};

#define PERIOD ((size_t)32)

static uint64_t contents;

static int take(struct content *c, size_t size)
{
	int err;

	*c = (struct content){
		.size = size, .word = ++contents * UINT64_C(0x9e3779b97f4a7c15)};
	err = rig_try(&rig, size, a, 0, &c->addr);
	for (uint64_t i = 0; !err && i < 4; i++)
		((uint64_t *)c->addr)[i] = c->word + i;
	for (size_t done = PERIOD; !err && done < size; done *= 2)
		memcpy((char *)c->addr + done, (char *)c->addr,
			done < size - done ? done : size - done);
	return err;
}

static bool holds(const struct content *c)
{
	const uint64_t *words = (const uint64_t *)c->addr;
	bool right = true;

	for (uint64_t i = 0; i < 4; i++)
		right &= words[i] == c->word + i;
	return right && !memcmp(words, words + 4, c->size - PERIOD);
}

static int spill(const struct content *c)
{
	return spill_at(c->addr);
}

static int fetch(const struct content *c)
{
	return fetch_at(c->addr);
}

static bool drop(struct content *c)
{
	bool same = holds(c);
	int err = rig_free(&rig, c->addr, a);

	c->addr = 0;
	return same && !err;
}

/* Of megabytes, again and again, which the thread sanitizer need not follow. */
__attribute__((no_sanitize("thread"))) static bool is_zero(const void *p, size_t bytes)
{
	const uint64_t *word = p;
	size_t i = 0;

	while (i < bytes / sizeof(*word) && !word[i])
		i++;
	return i == bytes / sizeof(*word);
}

/* Whether a content is found in the store, in what was packed, or anything is left in a landing. */
static bool shows(const struct content *c)
{
	struct glk_store *store = &rig.cache.mover.store;
	uint64_t words[] = {c->word, c->word + 1, c->word + 2, c->word + 3};
	bool found = false;

	for (uint32_t i = 0; i < store->pieces * GLK_STORE_CHUNKS; i++) {
		const char *base = store->piece[i / GLK_STORE_CHUNKS].base,
			   *at = base + i % GLK_STORE_CHUNKS * GLK_STORE_CHUNK;

		/* what was never written to costs a page of each chunk */
		found |= base && !is_zero(at, 64) &&
			memmem(at, GLK_STORE_CHUNK, words, sizeof(words));
	}
	for (uint32_t id = 1; id <= glk_load_relaxed(&store->runs.used); id++) {
		const struct glk_packed *packed = glk_store_at(store, id)->packed;

		found |= packed && memmem(packed->data, packed->used, words, 8);
	}
	if (store->cipher->landing.base)
		found |= !is_zero(store->cipher->landing.base, 2 * GLK_CIPHER_HALF);
	if (store->pack && store->pack->landing.base)
		found |= !is_zero(store->pack->landing.base, GLK_PACK_LAND);
	if (store->pack && store->pack->plain)
		found |= !is_zero(store->pack->plain, 2 * GLK_PACK_UNIT);
	return found;
}

/* Whether memory would be in a core dump. */
static bool is_dumped(const void *of)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	unsigned long at = (uintptr_t)of, begin, end;
	bool here = false, dumped = true;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			here = at >= begin && at < end;
		if (here && !strncmp(line, "VmFlags:", 8))
			dumped = !strstr(line, " dd");
	}
	if (maps)
		fclose(maps);
	return dumped;
}

static int check(uint64_t *ret_count)
{
	*ret_count = 0;
	return glk_cache_check_away(&rig.cache, ret_count);
}

static void comes_and_goes(const char *compress)
{
	size_t sizes[] = {300 << 10, 5 * MIB, 70 * MIB + 512, 4 * MIB, 33 * MIB};
	bool packs = compress != NULL;
	struct content c[5];
	int torn = 0, shown = 0;
	uint64_t count;

	set_up(compress, packs ? "tier.compress_rest=0s" : NULL);
	for (int i = 0; i < 5; i++) {
		torn += take(&c[i], sizes[i]) || spill(&c[i]);
		/* what is being packed is plain meanwhile */
		shown += !packs && shows(&c[i]);
	}
	settle();
	for (int i = 0; i < 5; i++)
		shown += shows(&c[i]);
	ok(!torn && !shown, "%s: nothing of what went is found on the host",
		packs ? "compressed" : "plain");
	ok(!packs || rig_figures(&rig).packed > 100 * MIB,
		"  it is packed where it can be");
	if (!packs) {
		is_int(check(&count), 0, "  a check finds nothing wrong");
		is_int((int64_t)count, 5, "  in five contents");
	}
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 5; i++) {
		torn += fetch(&c[i]) != 0;
		shown += shows(&c[i]);
		torn += !drop(&c[i]);
	}
	ok(!torn && !shown, "  it comes back as it was, and leaves nothing");
	ok(!is_dumped(rig.cache.mover.store.cipher->landing.base) &&
			(!packs ||
				(!is_dumped(rig.cache.mover.store.pack->plain) &&
					!is_dumped(rig.cache.mover.store.pack->landing
							   .base))),
		"  nor is what was plain for a moment in a core dump");
	settle();
	is_int((int64_t)rig_figures(&rig).store_used, 0, "  nothing is kept");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static uint32_t first_run(const struct content *c)
{
	const struct glk_range *range = glk_cache_range(&rig.cache, c->addr);

	return first_run_of(glk_arena_of(range),
		glk_extent_at(range->map, glk_lookup_first(range, c->addr)));
}

static struct glk_packed *packed_of(const struct content *c)
{
	return glk_store_at(&rig.cache.mover.store, first_run(c))->packed;
}

static char *place_of(const struct content *c)
{
	const struct glk_store *store = &rig.cache.mover.store;
	const struct glk_store_run *r = glk_store_at(store, first_run(c));

	return r->packed ? r->packed->data
			 : store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;
}

static void changed(const char *compress)
{
	struct content c, d;
	uint64_t count;
	char *at, *of;
	int torn = 0;

	set_up(compress, compress ? "tier.compress_rest=0s" : NULL);
	torn += take(&c, 9 * MIB) || take(&d, 9 * MIB) || spill(&c) || spill(&d);
	settle();
	at = place_of(&c);
	at[5] ^= 1;
	is_int(fetch(&c), -EIO, "one that was changed does not come");
	is_int(rig_error().error_class, GLAKE_ERROR_CORRUPT, "  its class");
	if (!compress) {
		is_int(check(&count), -EIO, "  a check says so");
		is_int(rig_error().error_class, GLAKE_ERROR_CORRUPT, "  its class");
		is_int(check(&count), -EIO, "  and again");
	}
	at[5] ^= 1;
	if (compress) {
		packed_of(&c)->tag.bytes += 1u << 30;
		is_int(fetch(&c), -EIO, "nor one whose number of bytes was changed");
		packed_of(&c)->tag.bytes -= 1u << 30;
	}
	of = place_of(&d);
	if (!compress) {
		char *kept = malloc(GLK_STORE_CHUNK);

		memcpy(kept, at, GLK_STORE_CHUNK);
		memcpy(at, of, GLK_STORE_CHUNK);
		is_int(fetch(&c), -EIO, "nor one in the place of another");
		memcpy(at, kept, GLK_STORE_CHUNK);
		free(kept);
	}
	tap_expect_log(tap.logs - tap.expected);
	torn += fetch(&c) || fetch(&d) || !drop(&c) || !drop(&d);
	ok(!torn, "as they were they come");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A content of which a chunk was changed is not made plain to be read where it lies, nor is any other chunk of it. */
static void changed_in_place(void)
{
	struct glk_mover *mover = &rig.cache.mover;
	struct content c;
	int torn = 0;
	uint32_t run;
	char *at;

	set_up(NULL, NULL);
	torn += take(&c, 40 * MIB) || spill(&c);
	run = first_run(&c);
	at = place_of(&c) + 20 * GLK_STORE_CHUNK;
	*at ^= 1;
	glk_lock(&rig.cache.lock);
	glk_cipher_hold(mover);
	is_int(glk_cipher_bare(mover, run), -EIO, "one that was changed is not read");
	glk_cipher_let_go(mover);
	glk_unlock(&rig.cache.lock);
	ok(!shows(&c), "  and nothing of it is plain");
	*at ^= 1;
	tap_expect_log(tap.logs - tap.expected);
	torn += fetch(&c) || !drop(&c);
	ok(!torn, "as it was it comes");
	rig_close(&rig, 0);
}

/* What went before is plain, and comes back too. */
static void begins_later(void)
{
	struct content c, d;
	uint64_t count;
	int torn = 0;

	rig_open(&rig, (const char *const[]){"soft.host_memory=1GiB", NULL});
	a = rig_stream(&rig);
	torn += take(&c, 5 * MIB) || take(&d, 5 * MIB) || spill(&c);
	is_int(glk_cache_encrypt(&rig.cache), 0, "contents are encrypted from now on");
	is_int(glk_cache_encrypt(&rig.cache), 0, "  as they are already");
	torn += spill(&d);
	ok(!torn && shows(&c) && !shows(&d), "  those that go from now on");
	is_int(check(&count), 0, "  a check");
	is_int((int64_t)count, 1, "  sees these");
	torn += fetch(&d) || fetch(&c) || spill(&c);
	ok(!torn && !shows(&c) && holds(&d), "  and those that go again");
	torn += fetch(&c) || !drop(&c) || !drop(&d);
	ok(!torn, "all come back");
	rig_close(&rig, 0);
}

/* Some chunks of a run are plain, as where encryption began while the content was made what it was. */
static void half_plain(void)
{
	static const struct {
		unsigned from, to;
	} plain[] = {{0, 3}, {5, 9}, {17, 20}};
	struct glk_store *store;
	struct content c;
	int torn = 0;

	set_up(NULL, NULL);
	store = &rig.cache.mover.store;
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
		const struct glk_store_run *r;
		char *at;

		torn += take(&c, 5 * MIB) || spill(&c);
		r = glk_store_at(store, first_run(&c));
		at = place_of(&c);
		for (unsigned k = plain[i].from; k < plain[i].to; k++) {
			struct glk_sodium_tag *tag = glk_cipher_tag(store, r) + k;
			char *chunk = at + k * GLK_STORE_CHUNK;

			torn += !glk_sodium_decrypt(chunk, chunk, (uintptr_t)chunk, tag);
			tag->number = 0;
		}
		torn += r->chunks != 20 || fetch(&c) || !drop(&c);
	}
	ok(!torn, "chunks that are plain come back beside those that are not");
	rig_close(&rig, 0);
}

/* What was compressed before encryption began is made what it was where others lay encrypted. */
static void loosened_later(void)
{
	const struct glk_portion some = {MIB, MIB};
	struct content c, d;
	int torn = 0;

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=1GiB", "tier.compress=lz4",
			"tier.compress_rest=0s", NULL});
	a = rig_stream(&rig);
	torn += take(&c, 9 * MIB) || spill(&c);
	settle();
	ok(!torn && rig_figures(&rig).packed == 9 * MIB, "a content is compressed");
	is_int(glk_cache_encrypt(&rig.cache), 0, "  others are encrypted from now on");
	torn += take(&d, 9 * MIB) || spill(&d);
	settle();
	torn += fetch(&d) || !drop(&d);
	is_int(glk_cache_move(&rig.cache, c.addr, a, true, &some, NULL), 0,
		"a part of the first one comes");
	ok(!shows(&c), "  and the rest does not show");
	torn += fetch(&c) || !drop(&c);
	ok(!torn, "all of it is what it was");
	rig_close(&rig, 0);
}

/* Another thread has contents encrypted from now on, and is at it. */
static int begin_meanwhile(void *arg)
{
	(void)arg;
	if (glk_cache_encrypt(&rig.cache))
		return -EIO;
	glk_lock(&rig.cache.lock);
	glk_cipher_hold(&rig.cache.mover);
	glk_unlock(&rig.cache.lock);
	return 0;
}

static void begins_beside_a_reader(void)
{
	uint64_t places[2 * MIB / GLK_ROWS], bytes, addr;
	struct glk_portion all = {0, 2 * MIB};
	struct glk_use read = {0};
	const struct glk_rows rows = {.portion = all,
		.places = places,
		.read = &read,
		.launch = begin_meanwhile};

	rig_open(&rig, (const char *const[]){"soft.host_memory=1GiB", NULL});
	a = rig_stream(&rig);
	if (glk_cache_elastic(&rig.cache, all.bytes, a, 0, &addr) ||
		glk_cache_commit(&rig.cache, addr, &all, 1, a, &bytes))
		tap_bail(rig_error().text);
	is_int(glk_cache_rows(&rig.cache, addr, &rows, a), 0,
		"rows are read while encryption begins");
	ok(rig.cache.mover.store.cipher->taken, "  which nobody else has ended");
	glk_lock(&rig.cache.lock);
	glk_cipher_let_go(&rig.cache.mover);
	glk_unlock(&rig.cache.lock);
	is_int(rig_free(&rig, addr, a), 0, "  it is freed");
	rig_close(&rig, 0);
}

/* Nothing lies on the host where kernels would read it. */
static void in_place(void)
{
	struct glake_suspended did;
	struct content c;
	int torn = 0;

	set_up(NULL, NULL);
	torn += take(&c, 20 * MIB);
	torn += glk_cache_suspend(&rig.cache, true, &did);
	ok(!torn && did.moved == 20 * MIB && !shows(&c) && !rig.cache.placed_blocks,
		"a suspension in place is one away");
	torn += glk_cache_resume(&rig.cache, true, &did);
	ok(!torn && holds(&c), "  which is over at once");
	torn += !drop(&c);
	rig_close(&rig, 0);

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=1GiB", "tier.place=host", NULL});
	is_int(glk_cache_encrypt(&rig.cache), -EINVAL, "tier.place has blocks there");
	rig_close(&rig, 0);
}

/* Small blocks of a tag are one content. */
static void with_a_tag(void)
{
	struct glake_suspended did;
	struct content c[20];
	int torn = 0, shown = 0;

	set_up(NULL, NULL);
	if (glk_cache_tag_open(&rig.cache, 0x101) || glk_seat_set_tag(&rig.cache, 0x101))
		tap_bail("no tag");
	glk_seat_leave(&rig.cache);
	for (int i = 0; i < 20; i++)
		torn += take(&c[i], (size_t)3000 + (size_t)i * 2048);
	glk_seat_set_tag(&rig.cache, 0);
	torn += glk_cache_tag_suspend(&rig.cache, 0x101, 0, &did);
	for (int i = 0; i < 20; i++)
		shown += shows(&c[i]);
	ok(!torn && !shown, "small blocks of a tag do not show");
	torn += glk_cache_tag_resume(&rig.cache, 0x101, &did);
	for (int i = 0; i < 20; i++)
		torn += !drop(&c[i]);
	ok(!torn, "  and come back");
	rig_close(&rig, 0);
}

/* What is made at the first time fails in a rig of its own each time; others fail in one, where all is made. */
static void every_call_fails(void)
{
	static const char *const rules[] = {"host_lock:nth=%d:err=EIO",
		"event_new:nth=%d:err=EIO", "copy:nth=%d:err=EIO",
		"event_record:nth=%d:err=EIO", "stream_wait:nth=%d:err=EIO",
		"event_sync:nth=%d:err=EIO",
		"event_record:nth=%d:err=EIO;device_sync:nth=1:err=EIO"};
	struct content c, d;
	bool anew = true;

	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		int failed = 0, torn = 0;
		bool struck = true;

		for (int nth = 1; nth < (tap_storms_take_long() ? 2 : 6) && struck;
			nth++) {
			char rule[80];

			if (anew) {
				set_up(NULL, NULL);
				torn += take(&c, 17 * MIB) || take(&d, 3 * MIB);
			}
			anew = i < 2;
			snprintf(rule, sizeof(rule), rules[i], nth);
			torn += glk_fault_set(rig.drv, rule) != 0;
			failed += spill(&c) != 0;
			failed += spill(&d) != 0;
			torn += !rig_is_sound(&rig);
			failed += fetch(&c) != 0;
			failed += fetch(&d) != 0;
			struck = rig_struck(&rig);
			glk_fault_set(rig.drv, "off");
			for (int k = 0; k < 2; k++) {
				int err = fetch(k ? &c : &d);

				torn += err && err != -EALREADY;
			}
			torn += rig.cache.mover.store.cipher && (shows(&c) || shows(&d));
			torn += !rig_is_sound(&rig) || !holds(&c) || !holds(&d);
			if (anew) {
				torn += !drop(&c) || !drop(&d);
				rig_close(&rig, 0);
			}
			tap_expect_log(tap.logs - tap.expected);
		}
		ok(!torn, "%s: %d times with an answer", rules[i], failed);
	}
	ok(drop(&c) && drop(&d), "all is as it was");
	rig_close(&rig, 0);
}

/* Memory of the library cannot be had, or there is no room on the host for the landing. */
static void no_memory(void)
{
	int torn = 0, refused = 0;
	struct content c;

	for (int nth = 1; nth < 12; nth++) {
		set_up(NULL, NULL);
		torn += take(&c, 6 * MIB) != 0;
		glk_region_fail_after((uint32_t)nth);
		refused += spill(&c) != 0;
		glk_region_fail_after(0);
		torn += fetch(&c) && fetch(&c) != -EALREADY;
		torn += !drop(&c) || !rig_is_sound(&rig);
		rig_close(&rig, 0);
		tap_expect_log(tap.logs - tap.expected);
	}
	ok(!torn && refused, "without memory: %d times refused, and nothing lost",
		refused);
	set_up("tier.host=64MiB", NULL);
	torn += take(&c, 6 * MIB);
	is_int(spill(&c), -ENOMEM, "no room on the host beside the store");
	is_int(rig_error().error_class, GLAKE_ERROR_LIMIT, "  its class");
	ok(!torn && drop(&c), "  it stays where it is");
	rig_close(&rig, 0);
}

/* Two at a time, of which one waits for the landing. */
static void *other(void *arg)
{
	struct content *c = arg;
	int torn = 0;

	for (int i = 0; i < 5; i++)
		torn += glk_cache_spill(&rig.cache, c->addr, a) ||
			glk_cache_fetch(&rig.cache, c->addr, a) || !holds(c);
	glk_seat_leave(&rig.cache);
	return torn ? arg : NULL;
}

static void threads(void)
{
	struct content c[3];
	pthread_t thread[3];
	int torn = 0;
	void *wrong;

	set_up(NULL, NULL);
	for (int i = 0; i < 3; i++)
		torn += take(&c[i], (size_t)(3 + i) * MIB);
	for (int i = 0; i < 3; i++)
		torn += pthread_create(&thread[i], NULL, other, &c[i]) != 0;
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &wrong);
		torn += wrong != NULL;
	}
	for (int i = 0; i < 3; i++)
		torn += shows(&c[i]) || !drop(&c[i]);
	ok(!torn, "contents of three threads come and go");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	if (glk_cipher_able()) {
		tap_skip("contents are encrypted", "the library has no libsodium");
		return tap_done();
	}
	comes_and_goes(NULL);
	changed(NULL);
	if (!glk_pack_able()) {
		comes_and_goes("tier.compress=lz4");
		changed("tier.compress=lz4");
		loosened_later();
	}
	half_plain();
	changed_in_place();
	begins_later();
	begins_beside_a_reader();
	in_place();
	with_a_tag();
	every_call_fails();
	no_memory();
	threads();
	return tap_done();
}
