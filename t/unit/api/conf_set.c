/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Keys that change while a context is open: which do, by whom, and what they do there. */
#include "unit/base/conf_found.h"

#include "base/atomic.h"
#include "base/conf_table.h"

#include <glake/glake.h>

#include <pthread.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static const char *const settings[] = {"driver.backend=soft", "soft.memory=256MiB", NULL};
static const char *const defaults[] = {"map.aliases=5", NULL};

static void value_is(struct glake *ctx, enum glk_conf_id id, const char *text, int origin)
{
	struct glake_conf_value value = {.sz = sizeof(value)};

	is_int(glake_conf_value_get(ctx, id, &value), 0, "a value");
	is_str(value.text, text, "as text");
	is_int(value.origin, origin, "of that origin");
}

static void refused(
	struct glake *ctx, const char *key, const char *text, int err, const char *why)
{
	struct glake_error record = {.sz = sizeof(record)};

	is_int(glake_conf_set(ctx, key, text), err, "refused");
	glake_last_error(&record);
	has_str(record.text, why, key ? key : "no key");
}

/* The table says it once for all: the pages and the tool read it there. */
static void table(void)
{
	struct glake_conf_key key = {.sz = sizeof(key)};
	int live = 0;

	for (size_t i = 0; !glake_conf_key_get(i, &key); i++) {
		const struct glk_conf_key *row = glk_conf_key(i);

		is_int(key.live, row->live, key.key);
		live += key.live;
		if (!key.live)
			continue;
		ok(row->type != GLK_TYPE_TEXT, "what may change is no text");
		ok(glk_conf_changed_by(i), "and a function does it");
	}
	ok(live >= 7, "%d keys may change", live);
}

/* Each key that the table marks takes its default, and every other is refused. */
static void every_key(struct glake *ctx)
{
	struct glake_conf_key key = {.sz = sizeof(key)};
	char name[64];

	for (size_t i = 0; !glake_conf_key_get(i, &key); i++) {
		snprintf(name, sizeof(name), "%s.%s", key.section, key.key);
		is_int(glake_conf_set(ctx, name, key.default_value),
			key.live ? 0 : -EPERM, name);
	}
}

static void set(struct glake *ctx)
{
	struct glake_device device;
	size_t budget = 0;
	void *block[3];

	is_int(glake_conf_set(ctx, "pool.budget", "32MiB"), 0, "a budget");
	value_is(ctx, GLK_CONF_pool_budget, "32MiB", GLAKE_CONF_OPTION);
	is_int(glake_budget_get(ctx, 0, &budget), 0, "is that");
	is_int(budget, 32 * MIB, "of the GPU");
	is_int(glake_alloc(ctx, 0, 64 * MIB, NULL, 0, &block[0]), -ENOMEM, "and holds");
	is_int(glake_conf_set(ctx, "tier.place", "host"), 0,
		"blocks may lie on the host");
	is_int(glake_alloc(ctx, 0, 64 * MIB, NULL, 0, &block[0]), 0, "and do");
	is_int(glake_conf_set(ctx, "tier.place", "gpu"), 0, "and may not");
	is_int(glake_alloc(ctx, 0, 64 * MIB, NULL, 0, &block[1]), -ENOMEM, "any more");
	is_int(glake_conf_set(ctx, "pool.budget", "50%"), 0, "half of the GPU");
	value_is(ctx, GLK_CONF_pool_budget, "50%", GLAKE_CONF_OPTION);
	device.sz = sizeof(device);
	is_int(glake_device_get(ctx, 0, &device) | glake_budget_get(ctx, 0, &budget), 0,
		"is a budget");
	is_int(budget, (int64_t)device.memory / 2, "  of so many bytes");
	is_int(glake_conf_set(ctx, "pool.budget", ""), 0, "nothing");
	glake_budget_get(ctx, 0, &budget);
	ok(budget == SIZE_MAX, "  is none");
	is_int(glake_conf_set(ctx, "pool.budget", "32MiB"), 0, "one more");
	is_int(glake_conf_set(ctx, "pool.budget", "0"), 0, "no budget");
	is_int(glake_alloc(ctx, 0, 64 * MIB, NULL, 0, &block[1]), 0, "which is lifted");
	is_int(glake_conf_set(ctx, "tier.host", "16MiB"), 0, "less memory of the host");
	is_int(glake_spill(ctx, block[1], NULL), -ENOMEM, "than goes there");
	is_int(glake_conf_set(ctx, "tier.host", "0"), 0, "as much as there is");
	is_int(glake_spill(ctx, block[1], NULL), 0, "is enough");
	is_int(glake_free(ctx, block[1], NULL), 0, "a block goes");
	is_int(glake_free(ctx, block[0], NULL), 0, "and the other");
	is_int(glake_conf_set(ctx, "policy.target", "1.1"), 0, "a ratio");
	value_is(ctx, GLK_CONF_policy_target, "1.1", GLAKE_CONF_OPTION);
	refused(ctx, "pool.budget", "much", -EINVAL, "not a size");
	refused(ctx, "policy.target", "0.5", -EINVAL, "out of range");
	refused(ctx, "map.aliases", "256", -EINVAL, "out of range");
	refused(ctx, "map.aliaser", "2", -ENOENT, "did you mean map.aliases?");
	refused(ctx, "aliases", "2", -ENOENT, "unknown key");
	refused(ctx, "", "2", -ENOENT, "unknown key");
	refused(ctx, ".", "2", -ENOENT, "unknown key");
	refused(ctx, "soft.gpus", "2", -EPERM, "cannot change while the program runs");
	refused(ctx, NULL, "2", -EINVAL, "no key");
	refused(ctx, "map.aliases", NULL, -EINVAL, "no value");
	value_is(ctx, GLK_CONF_map_aliases, "5", GLAKE_CONF_DEFAULT);
}

static size_t reserved(struct glake *ctx)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	return glake_stats_get(ctx, 0, &stats) ? SIZE_MAX : stats.reserved;
}

/* The program rests already. */
static void rest(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .no_conf_file = 1, .settings = settings};
	void *block = NULL;
	struct glake *ctx;

	is_int(glake_open(&options, &ctx), 0, "another context");
	is_int(glake_alloc(ctx, 0, 100 * MIB, NULL, 0, &block), 0, "a block");
	is_int(glake_free(ctx, block, NULL), 0, "  freed");
	ok(reserved(ctx) >= 100 * MIB, "  whose memory stays");
	is_int(glake_conf_set(ctx, "pool.rest", "10ms"), 0, "until pool.rest is set");
	while (reserved(ctx) > 32 * MIB)
		usleep(1000);
	is_int(glake_conf_set(ctx, "pool.rest", "0"), 0, "and unset");
	is_int(glake_close(ctx, NULL), 0, "it closes");
}

static void reload(struct glake *ctx)
{
	size_t budget = 0;

	value_is(ctx, GLK_CONF_map_aliases, "5", GLAKE_CONF_DEFAULT);
	value_is(ctx, GLK_CONF_pool_budget, "64MiB", GLAKE_CONF_FILE);
	write_text("[pool]\nbudget = 48MiB\npages = 100\n[map]\naliases = 3\n");
	found_none();
	is_int(glake_conf_reload(ctx, on_finding, &found), 0, "another file");
	value_is(ctx, GLK_CONF_pool_budget, "48MiB", GLAKE_CONF_FILE);
	glake_budget_get(ctx, 0, &budget);
	is_int(budget, 48 * MIB, "the budget is that of the file");
	value_is(ctx, GLK_CONF_map_aliases, "3", GLAKE_CONF_FILE);
	is_int(found.count, 1, "a key that cannot change is told of");
	is_found(0, 0, 3, "pool.pages", "it stays '1048576' here, and is '100'");
	value_is(ctx, GLK_CONF_pool_pages, "1048576", GLAKE_CONF_DEFAULT);
	write_text("[pool]\nbudget = 40MiB\n[policy]\ntarget = none\n");
	found_none();
	is_int(glake_conf_reload(ctx, on_finding, &found), -EINVAL, "one that is wrong");
	is_found(0, -EINVAL, 4, "policy.target", "not a ratio");
	value_is(ctx, GLK_CONF_pool_budget, "48MiB", GLAKE_CONF_FILE);
	write_text("[pool]\nbudget = 40MiB\nsmall_page = 4MiB\nlarge_page = 6MiB\n");
	found_none();
	is_int(glake_conf_reload(ctx, on_finding, &found), -EINVAL,
		"one of keys that do not go together");
	is_found(0, -EINVAL, 4, "pool.large_page", "no multiple of pool.small_page");
	value_is(ctx, GLK_CONF_pool_budget, "48MiB", GLAKE_CONF_FILE);
	write_text("[map]\naliases = 3\n");
	chmod(found_path, 0666);
	is_int(glake_conf_reload(ctx, NULL, NULL), -EACCES, "one that others may write");
	value_is(ctx, GLK_CONF_pool_budget, "48MiB", GLAKE_CONF_FILE);
	chmod(found_path, 0600);
	is_int(glake_conf_set(ctx, "pool.budget", "56MiB"), 0, "what the program sets");
	write_text("[pool]\nbudget = 40MiB\n");
	is_int(glake_conf_reload(ctx, NULL, NULL), 0, "a file");
	value_is(ctx, GLK_CONF_pool_budget, "56MiB", GLAKE_CONF_OPTION);
	value_is(ctx, GLK_CONF_map_aliases, "5", GLAKE_CONF_DEFAULT);
	unlink(found_path);
	is_int(glake_conf_reload(ctx, NULL, NULL), -ENOENT, "a named file that has gone");
	value_is(ctx, GLK_CONF_pool_budget, "56MiB", GLAKE_CONF_OPTION);
}

/* A budget that the program has set for one GPU is not the file's any more; that of the other is. */
static void reload_own(struct glake_options *options)
{
	static const char *const two[] = {
		"driver.backend=soft", "soft.memory=256MiB", "soft.gpus=2", NULL};
	size_t budget[2];
	struct glake *ctx;

	options->settings = two;
	write_text("[pool]\nbudget = 64MiB\n");
	if (!is_int(glake_open(options, &ctx), 0, "a context with two GPUs"))
		return;
	is_int(glake_budget_set(ctx, 1, 24 * MIB), 0, "a budget for one");
	is_int(glake_budget_set(ctx, 0, 0), -EINVAL, "and one that is refused");
	write_text("[pool]\nbudget = 48MiB\n");
	is_int(glake_conf_reload(ctx, NULL, NULL), 0, "another file");
	glake_budget_get(ctx, 0, &budget[0]);
	glake_budget_get(ctx, 1, &budget[1]);
	is_int(budget[0], 48 * MIB, "is for the other");
	is_int(budget[1], 24 * MIB, "and not for the one");
	is_int(glake_budget_set(ctx, 1, SIZE_MAX), 0, "it is lifted");
	write_text("");
	is_int(glake_conf_reload(ctx, NULL, NULL), 0, "a file without one");
	write_text("[pool]\nbudget = 40MiB\n");
	is_int(glake_conf_reload(ctx, NULL, NULL), 0, "and one with");
	glake_budget_get(ctx, 0, &budget[0]);
	glake_budget_get(ctx, 1, &budget[1]);
	is_int(budget[0], 40 * MIB, "again for the other");
	ok(budget[1] == SIZE_MAX, "lifted it stays");
	is_int(glake_conf_set(ctx, "pool.budget", "32MiB"), 0, "the key is set");
	glake_budget_get(ctx, 1, &budget[1]);
	is_int(budget[1], 32 * MIB, "for all GPUs");
	is_int(glake_close(ctx, NULL), 0, "it closes");
}

static glk_atomic(bool) ends;

static void *turn(void *arg)
{
	static const char *const values[][2] = {{"map.aliases", "2"},
		{"map.aliases", "9"}, {"policy.target", "1"}, {"policy.target", "1.2"},
		{"tier.place", "host"}, {"tier.place", "gpu"},
		{"stream.internal_dependencies", "no"},
		{"stream.internal_dependencies", "yes"}, {"pool.budget", "64MiB"},
		{"pool.budget", "0"}, {"tier.host", "64MiB"}, {"tier.host", "0"}};
	struct glake_conf_value value = {.sz = sizeof(value)};
	int wrong = 0;

	for (unsigned i = 0; !glk_load_relaxed(&ends); i++) {
		wrong += glake_conf_set(arg, values[i % 12][0], values[i % 12][1]) != 0;
		wrong += glake_conf_value_get(arg, GLK_CONF_map_aliases, &value) != 0;
		wrong += glake_conf_reload(arg, NULL, NULL) != 0;
	}
	return (void *)(intptr_t)wrong;
}

/* Two that turn all keys, while blocks come and go. */
static void meanwhile(struct glake *ctx)
{
	pthread_t threads[2];
	void *block[8] = {0}, *wrong;
	int failed = 0;

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, turn, ctx);
	for (unsigned i = 0; i < 2000; i++) {
		void **one = &block[i % 8];

		if (*one)
			failed += glake_free(ctx, *one, NULL) != 0;
		*one = NULL;
		glake_alloc(ctx, 0, (i % 7 + 1) * MIB / 2, NULL, 0, one);
	}
	glk_store_relaxed(&ends, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &wrong);
		is_int((intptr_t)wrong, 0, "all was taken");
	}
	is_int(failed, 0, "while blocks came and went");
	for (int i = 0; i < 8; i++)
		glake_free(ctx, block[i], NULL);
}

int main(void)
{
	struct glake_options options = {.sz = sizeof(options),
		.conf_file = found_path,
		.settings = settings,
		.defaults = defaults};
	struct glake *ctx;
	size_t leaked;

	tap_plan_later();
	clear_environment();
	make_folder();
	table();
	write_text("[pool]\nbudget = 64MiB\n");
	if (!is_int(glake_open(&options, &ctx), 0, "a context"))
		return tap_done();
	reload(ctx);
	set(ctx);
	every_key(ctx);
	write_text("");
	meanwhile(ctx);
	is_int(glake_close(ctx, &leaked), 0, "it closes");
	is_int(leaked, 0, "with nothing left");
	reload_own(&options);
	rest();
	is_int(glake_conf_set(ctx, "pool.budget", "0"), -ESTALE, "a closed context");
	is_int(glake_conf_reload(ctx, NULL, NULL), -ESTALE, "likewise");
	return tap_done();
}
