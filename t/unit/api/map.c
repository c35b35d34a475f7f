/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The walk of addresses and the report of a refusal, by the public functions. */
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;

static void open_soft(void)
{
	static const char *const settings[] = {"soft.gpus=2", "driver.fault=off",
		"pool.budget=64MiB", "map.span=8GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx))
		tap_bail("no context");
}

static const char *last_text(void)
{
	static struct glake_error error;

	error.sz = sizeof(error);
	glake_last_error(&error);
	return error.text;
}

struct sums {
	unsigned runs, live, stop;
	uint64_t memory;
};

static int add(const struct glake_run *run, void *arg)
{
	struct sums *sums = arg;

	sums->runs++;
	sums->live += run->state == GLAKE_RUN_LIVE;
	sums->memory += run->sz == sizeof(*run) ? run->gpu_bytes : 0;
	/* any function may be called from here */
	return glake_query(ctx, (void *)(uintptr_t)run->address,
		       &(struct glake_block){.sz = sizeof(struct glake_block)}) ==
				-ESTALE ||
			(sums->stop && sums->runs == sums->stop)
		? 77
		: 0;
}

static void map(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct sums sums = {0};
	void *one, *two;

	is_int(glake_map(ctx, 0, 0, NULL, NULL), -EINVAL, "a walk for nobody");
	is_int(glake_map(ctx, 2, 0, add, &sums), -EINVAL, "of no GPU");
	is_int(glake_map(ctx, -1, 0, add, &sums), -EINVAL, "nor of that");
	is_int(glake_map(ctx, 0, 0, add, &sums), 0, "of a GPU that was not used");
	is_int(sums.runs, 0, "has no runs");
	glake_alloc(ctx, 0, 10 * MIB, NULL, 0, &one);
	glake_alloc(ctx, 0, 1000, NULL, 0, &two);
	is_int(glake_map(ctx, 0, 0, add, &sums), 0, "of one that was");
	glake_stats_get(ctx, 0, &stats);
	is_int(sums.live, 2, "has its blocks");
	is_int((int64_t)sums.memory, (int64_t)stats.reserved, "and its memory");
	sums = (struct sums){.stop = 1};
	is_int(glake_map(ctx, 0, 0, add, &sums), 77,
		"what the function says is the answer");
	is_int(sums.runs, 1, "and the end");
	is_int(glake_map(ctx, 0, UINT64_MAX, add, &sums), 0,
		"behind all there is nothing");
	is_str(glake_run_state_name(GLAKE_RUN_LIMBO), "limbo", "a state has a name");
	ok(!glake_run_state_name(-1) && !glake_run_state_name(GLAKE_RUN_STATES),
		"what is none has none");
	for (int i = 0; i < GLAKE_RUN_STATES; i++)
		if (!glake_run_state_name(i))
			tap_bail("a state has no name");
}

static void refusal(void)
{
	char text[8192], advice[1024];
	size_t length = 0;
	void *ptr;

	is_int(glake_refusal_text(ctx, 0, 0, text, sizeof(text), NULL), -ENOENT,
		"none so far");
	has_str(last_text(), "has refused no request", "is said");
	is_int(glake_alloc(ctx, 0, 60 * MIB, NULL, 0, &ptr), -ENOMEM,
		"a request is refused");
	has_str(last_text(), "no room for", "the error is that of the request");
	is_int(glake_refusal_text(ctx, 0, 2, text, sizeof(text), NULL), -EINVAL,
		"no such form");
	is_int(glake_refusal_text(ctx, 0, 0, NULL, 0, NULL), -EINVAL,
		"no place for a text");
	is_int(glake_refusal_text(ctx, 9, 0, text, sizeof(text), NULL), -EINVAL,
		"no such GPU");
	is_int(glake_refusal_text(ctx, 1, 0, text, sizeof(text), NULL), -ENOENT,
		"the other GPU refused nothing");
	is_int(glake_refusal_text(ctx, 0, GLAKE_REFUSAL_ADVICE, NULL, 0, &length), 0,
		"its length");
	is_int(glake_refusal_text(ctx, 0, GLAKE_REFUSAL_ADVICE, advice, length, NULL),
		-ENOSPC, "a buffer one too small");
	is_int(glake_refusal_text(ctx, 0, GLAKE_REFUSAL_ADVICE, advice, length + 1, NULL),
		0, "one that is as long");
	is_int((int64_t)strlen(advice), (int64_t)length, "has all of it");
	is_int(glake_refusal_text(
		       ctx, 0, GLAKE_REFUSAL_WHOLE, text, sizeof(text), &length),
		0, "the whole report");
	has_str(text, advice, "has the same advice");
}

static size_t no_blocks(uint64_t *cursor, struct glake_origin *ret, size_t room)
{
	(void)ret;
	*cursor += room;
	return 0;
}

static size_t no_calls(uint64_t stack, char *ret_text, size_t room)
{
	(void)ret_text;
	return stack && room ? 0 : 1;
}

/* What they answer at the socket is for flow/front_stacks. */
static void origins(void)
{
	struct glake_origins o = {
		.sz = sizeof(o), .blocks = no_blocks, .calls = no_calls};

	is_int(glake_origins_set(&o), 0, "somebody knows who asks");
	is_int(glake_origins_set(NULL), 0, "and nobody again");
	o.calls = NULL;
	is_int(glake_origins_set(&o), -EINVAL, "one who has no calls");
	o.calls = no_calls;
	o.sz--;
	is_int(glake_origins_set(&o), -EINVAL, "a structure that is short");
	o.sz += 2;
	is_int(glake_origins_set(&o), -E2BIG, "one of a newer library");
}

static void in_a_child(void)
{
	struct sums sums = {0};
	char text[64];
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(glake_map(ctx, 0, 0, add, &sums) != -ENODEV ||
			glake_refusal_text(ctx, 0, 0, text, sizeof(text), NULL) !=
				-ENODEV);
	ok(waitpid(pid, &status, 0) == pid && !status, "a forked child has neither");
}

int main(void)
{
	struct sums sums = {0};

	tap_plan_later();
	open_soft();
	map();
	refusal();
	origins();
	in_a_child();
	sound_close(ctx, NULL);
	is_int(glake_map(ctx, 0, 0, add, &sums), -ESTALE,
		"a context that is closed has no map");
	return tap_done();
}
