/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every call of the driver that a request makes fails, one after the other: once, from then
 * on, and with the device lost; and so does every table that it wants. After each fault the
 * answer is a documented one, the books agree with each other and with the device, nothing
 * was lost that a later end does not give back, and without the fault the same request works.
 */
#include "faults_scenes.h"

static const char *const calls[] = {"reserve", "unreserve", "create", "release", "map",
	"unmap", "set_access", "event_new", "event_free", "event_record", "event_query",
	"stream_wait", "stream_sync", "device_sync", "event_sync", "stream_facts",
	"stream_owner", "stream_new", "user_event_record", "user_event_wait"};

/* Answers that a request may give to a driver that failed with `code`. */
static bool is_documented(int err, int code)
{
	return !err || err == code || err == -ENOMEM || err == -EIO || err == -ENODEV;
}

static bool complain(const struct scene *scene, const char *fault, const char *what)
{
	tap_note(
		"%s, %s: %s; the record: %s", scene->name, fault, what, rig_error().text);
	return false;
}

/* A kernel on the block that was given: the device refuses it where access was not granted. */
static bool is_usable(struct rig *rig, uint64_t addr)
{
	struct CUstream_st *stream = rig->stream[rig->streams - 1];
	struct glake_block block;

	return glk_cache_query(&rig->cache, addr, &block) ||
		!glk_soft_work(rig->drv, 0, stream, addr, block.given, true);
}

/* The state after a fault, then without it. */
static bool recovers(struct rig *rig, const struct scene *scene, const char *fault,
	const struct glake_stats *before, int err, uint64_t *at)
{
	struct glake_stats s = rig_figures(rig);

	if (err && (s.live != before->live || s.live_blocks != before->live_blocks))
		return complain(scene, fault, "a request that failed left a trace");
	if (s.reserved > s.budget)
		return complain(scene, fault, "the budget is passed");
	if (!rig_is_sound(rig))
		return complain(scene, fault, "the books do not agree");
	if (!err)
		return is_usable(rig, *at) || complain(scene, fault, "no access");
	/* memory that the driver keeps is not to be had */
	if (s.budget != UINT64_MAX)
		glk_store_relaxed(&rig->cache.node->budget, s.budget + s.lost);
	if (scene->act(rig, at))
		return complain(scene, fault, "it does not work without the fault");
	if (!rig_is_sound(rig))
		return complain(scene, fault, "the books do not agree at the end");
	return is_usable(rig, *at) || complain(scene, fault, "no access at the end");
}

/* A function of the program that is told before a move is told after it. */
static int hear(const struct glake_move *move, void *arg)
{
	*(int *)arg += move->is_over ? -1 : 1;
	return 0;
}

/* One run of a scene under a fault: whether it struck, and whether all was well. */
static bool strike(
	const struct scene *scene, const char *fault, int code, bool *ret_struck)
{
	uint64_t at = 0, passed = 0, failed = 0;
	struct glake_stats before;
	struct rig_end end;
	struct rig rig;
	bool fine;
	int err, moves = 0;

	rig_open(&rig, scene->settings);
	scene->prepare(&rig, &at);
	glk_cache_hear(&rig.cache, 0, hear, &moves);
	before = rig_figures(&rig);
	if (glk_fault_set(rig.drv, fault))
		tap_bail(rig_error().text);
	err = scene->act(&rig, &at);
	glk_fault_count(rig.drv, &passed, &failed);
	*ret_struck = failed > 0;
	glk_fault_set(rig.drv, "off");
	fine = is_documented(err, code) ||
		complain(scene, fault, "not a documented answer");
	if (!failed && err)
		fine = complain(scene, fault, "fails without a fault");
	if (moves)
		fine = complain(scene, fault, "a move is begun and not over");
	glk_cache_hear(&rig.cache, 0, NULL, NULL);
	fine = fine && recovers(&rig, scene, fault, &before, err, &at);
	end = rig_end(&rig);
	/* addresses of a pool that the driver keeps cost no memory */
	if ((scene->act == act_begin || scene->act == act_release) && end.device &&
		strstr(rig_error().text,
			"0 pages, 0 mappings, 1 reservations, 0 events "
			"and 0 streams left"))
		end.device = 0;
	if (fine && (end.cache || end.device))
		fine = complain(scene, fault, "something is left");
	return fine;
}

static void enumerate(const struct scene *scene)
{
	static const char *const kinds[] = {"nth", "from"};
	static const char *const names[] = {"ENOMEM", "EIO"};
	static const int codes[] = {-ENOMEM, -EIO};
	unsigned runs = 0;
	bool fine = true;
	char fault[96];

	for (size_t call = 0; call < sizeof(calls) / sizeof(*calls); call++) {
		for (int way = 0; way < 4; way++) {
			bool struck = true;

			for (int n = 1; struck && n < 300; n++, runs++) {
				snprintf(fault, sizeof(fault), "%s:%s=%d:err=%s",
					calls[call], kinds[way & 1], n, names[way >> 1]);
				fine &= strike(scene, fault, codes[way >> 1], &struck);
			}
		}
	}
	ok(fine, "%s: each call fails, %u runs", scene->name, runs);
	runs = 0;
	for (bool struck = true; struck; runs++) {
		snprintf(fault, sizeof(fault), "any:nth=%u:sticky=1", runs + 1);
		fine &= strike(scene, fault, -ENODEV, &struck);
	}
	ok(fine, "%s: the device is lost at each call, %u runs", scene->name, runs);
}

/* Each table that a request wants cannot be had. */
static bool starve(const struct scene *scene, uint32_t n, bool *ret_struck)
{
	struct glake_stats before;
	struct rig_end end;
	uint64_t at = 0;
	char fault[32];
	struct rig rig;
	bool fine;
	int err;

	snprintf(fault, sizeof(fault), "table %u", n);
	rig_open(&rig, scene->settings);
	scene->prepare(&rig, &at);
	before = rig_figures(&rig);
	glk_region_fail_after(n);
	err = scene->act(&rig, &at);
	glk_region_fail_after(0);
	*ret_struck = err;
	fine = !err || err == -ENOMEM ||
		complain(scene, fault, "not a documented answer");
	if (err && rig_error().error_class != GLAKE_ERROR_NOMEM_HOST)
		fine = complain(scene, fault, "not the class of the host's memory");
	fine = fine && recovers(&rig, scene, fault, &before, err, &at);
	end = rig_end(&rig);
	if (end.cache || end.device)
		fine = complain(scene, fault, "something is left");
	return fine;
}

/* One end with the n-th of a call failing: the answers, and whether it was there at all. */
static struct rig_end end_under(const char *call, int n, bool *ret_struck)
{
	uint64_t at = 0, passed = 0, failed = 0;
	struct rig_end end;
	char fault[64];
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=136MiB", NULL});
	prepare_stitch(&rig, &at);
	act_stitch(&rig, &at);
	rig_free(&rig, rig_single(&rig, 4 * MIB, rig.stream[0]), rig.stream[0]);
	glk_event_poll(&rig.cache.streams);
	snprintf(fault, sizeof(fault), "%s:nth=%d", call, n);
	glk_fault_set(rig.drv, fault);
	end.cache = glk_cache_fini(&rig.cache, &end.live);
	glk_pool_fini(&rig.pool);
	glk_fault_count(rig.drv, &passed, &failed);
	*ret_struck = failed > 0;
	glk_fault_set(rig.drv, "off");
	while (rig.streams--)
		rig.drv->ops->stream_free(rig.drv, 0, rig.stream[rig.streams]);
	end.device = glk_drv_close(rig.drv);
	return end;
}

/*
 * At the end too: a refusal to take memory back is made up for. Addresses and events that the
 * driver keeps cost no memory; they are told by its own end.
 */
static void ends(void)
{
	static const struct {
		const char *call;
		int told;
	} ways[] = {{"unmap", 0}, {"release", 0}, {"unreserve", -EBUSY},
		{"event_free", -EBUSY}};
	unsigned runs = 0;
	bool fine = true;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		bool struck = true;

		for (int n = 1; struck && n < 300; n++, runs++) {
			struct rig_end end = end_under(ways[i].call, n, &struck);
			int told = struck ? ways[i].told : 0;

			if (!end.cache && end.device == told && end.live == 9)
				continue;
			tap_note("%s %d: %d, %d, %zu live", ways[i].call, n, end.cache,
				end.device, end.live);
			fine = false;
		}
	}
	ok(fine, "the end: each call fails once, %u runs", runs);
}

/* By chance, many at once: the second fault falls into the undoing of the first. */
static void pairs(uint64_t seed)
{
	uint64_t state = seed_thread(seed, 1), addr[64] = {0};
	bool sound = true, answered = true, usable = true;
	struct glake_stats s;
	struct rig_end end;
	char fault[64];
	struct rig rig;

	rig_open(
		&rig, (const char *const[]){"pool.budget=400MiB", "map.aliases=3", NULL});
	rig_stream(&rig);
	rig_stream(&rig);
	/* as many as it takes, whatever comes of chance */
	for (int n = 0; n < 3000 || (!rig_figures(&rig).lost && n < 300000); n++) {
		uint64_t *a = &addr[seed_below(&state, 64)], unused;
		struct CUstream_st *stream = rig.stream[seed_below(&state, 2)];
		uint32_t flags = seed_below(&state, 20) ? 0 : GLAKE_ALLOC_CONTIGUOUS;
		int err;

		if (n % 10 == 0) {
			snprintf(fault, sizeof(fault), "any:p=%d:seed=%d:err=%s", 60000,
				n + 1, n % 20 ? "EIO" : "ENOMEM");
			glk_fault_set(rig.drv, fault);
		}
		if (*a) {
			answered &= !rig_free(&rig, *a, stream);
			*a = 0;
		} else {
			err = rig_try(
				&rig, 1 + seed_below(&state, 24 * MIB), stream, flags, a);
			answered &= is_documented(err, -EIO);
			if (err)
				*a = 0;
			else
				usable &= is_usable(&rig, *a);
		}
		if (!seed_below(&state, 50))
			glk_cache_trim(&rig.cache, 0, false, &unused);
		if (n % 10 != 9)
			continue;
		glk_fault_set(rig.drv, "off");
		s = rig_figures(&rig);
		sound = sound && rig_is_sound(&rig) && s.reserved <= s.budget;
		/* so that there is always something to be had */
		glk_store_relaxed(&rig.cache.node->budget, 400 * MIB + s.lost);
	}
	glk_fault_set(rig.drv, "off");
	s = rig_figures(&rig);
	tap_note("%" PRIu64 " served, %" PRIu64 " MiB lost", s.allocs, s.lost >> 20);
	ok(answered, "one call in 16 fails: each answer is a documented one");
	ok(usable, "each block can be used");
	ok(sound, "the books agree all the time");
	ok(s.lost > 0, "some memory was kept by the driver");
	end = rig_end(&rig);
	is_int(end.cache, 0, "at the end all of it goes back");
	is_int(end.device, 0, "nothing is left");
}

static glk_atomic(int) odd_messages;

/* What the driver keeps is told, hundreds of times here; nothing else is. */
static void listen(int level, const char *line, void *arg)
{
	if (strstr(line, "could not be unmapped and stays out of use") ||
		strstr(line, "the soft driver is closed with 0 pages, 0 mappings, "))
		return;
	glk_add_relaxed(&odd_messages, 1);
	tap_note("log: %s", line);
}

int main(void)
{
	bool fine = true;
	unsigned runs = 0;

	/* thousands of GPUs are opened and closed */
	if (tap_storms_take_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	glake_log_hook(listen, NULL, GLAKE_LOG_WARNING);
	for (size_t i = 0; i < sizeof(scenes) / sizeof(*scenes); i++) {
		bool struck = true;

		enumerate(&scenes[i]);
		for (uint32_t n = 1; struck && n < 300; n++, runs++)
			fine &= starve(&scenes[i], n, &struck);
	}
	ok(fine, "no memory for a table, %u runs", runs);
	ends();
	pairs(seed_start());
	is_int(glk_load_relaxed(&odd_messages), 0, "nothing else was to be told");
	return tap_done();
}
