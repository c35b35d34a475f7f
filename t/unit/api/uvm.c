/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counters and events of managed memory at the public face, for a context of the software device
 * with a model of the module behind it: who may have them, where their figures are shown, and what
 * suspension, a fork and the end of the context do to them.
 */
#include "unit/uvm_bridge/fake.h"

#include "api/context.h"
#include "api/uvm.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <glake/figures.h>
#include <glake/info.h>
#include <glake/memory.h>
#include <glake/tier.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fake fake;
static struct glake *ctx;
static const struct fake_event move = {.kind = GLK_UVM_MIGRATION,
	.to = 1,
	.cause = GLK_UVM_CAUSE_EVICTION,
	.bytes = 4096};

static struct glake *open_context(void)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.settings = (const char *const[]){"soft.memory=64MiB", NULL}};
	struct glake *opened = NULL;

	if (glake_open(&options, &opened))
		tap_bail("no context");
	return opened;
}

static int begin(struct glake *of, const struct glake_uvm_options *options)
{
	struct glk_context *context;

	if (glk_context_get(of, &context))
		tap_bail("no context");
	return glk_managed_open(context, options, &fake.ops, 'D', FAKE_MAJOR, 0);
}

/* The model's first GPU is the context's. */
static void init_fake(void)
{
	struct glake_device device = {.sz = sizeof(device)};
	unsigned int byte;
	size_t n = 0;

	fake_init(&fake, 'D');
	if (glake_device_get(ctx, 0, &device))
		tap_bail("no GPU");
	for (const char *at = strchr(device.uuid, '-'); at && *at && n < 16; at += 2) {
		at += *at == '-';
		sscanf(at, "%2x", &byte);
		fake.uuid[0][n++] = (uint8_t)byte;
	}
}

static uint64_t gpu_bytes(struct glake *of)
{
	struct glake_uvm_figures figures = {.sz = sizeof(figures)};

	is_int(glake_uvm_figures_get(of, &figures), 0, "figures");
	return figures.to_gpu_bytes;
}

struct search {
	const char *name;
	bool found;
	uint64_t value;
};

static int take(const struct glake_figure *figure, void *arg)
{
	struct search *search = arg;

	if (!strcmp(figure->name, search->name)) {
		search->found = true;
		search->value = figure->value;
	}
	return 0;
}

static struct search figure(const char *name)
{
	struct search search = {.name = name};

	glake_figures(ctx, take, &search);
	return search;
}

/* In both forms; a context and its GPU have less than 64 KiB. */
static void written(void)
{
	static char text[65536];
	size_t length = 0;

	is_int(glake_figures_text(
		       ctx, GLAKE_FIGURES_PROMETHEUS, text, sizeof(text), &length),
		0, "written for Prometheus");
	has_str(text, "glake_managed_evictions", "with them");
	tap_note("%zu bytes", length);
	is_int(glake_figures_text(ctx, GLAKE_FIGURES_JSON, text, sizeof(text), &length),
		0, "and as JSON");
	has_str(text, "\"managed_evicted_bytes\":4096", "with them too");
	tap_note("%zu bytes", length);
}

static void refused(void)
{
	struct glake_uvm_figures figures = {.sz = sizeof(figures)};
	struct glake_uvm_pressure pressure = {.sz = sizeof(pressure)};
	struct glake_uvm_event event;
	size_t count;

	is_int(glake_uvm_open(ctx, NULL), -EOPNOTSUPP, "the software device has none");
	is_int(glake_uvm_close(ctx), -EALREADY, "none is open");
	is_int(glake_uvm_figures_get(ctx, &figures), -EALREADY, "so no figures");
	is_int(glake_uvm_drain(ctx, &event, 1, &count), -EALREADY, "no events");
	is_int(glake_uvm_pressure_get(ctx, &pressure), -EALREADY, "no pressure");
	is_int(glake_uvm_open(NULL, NULL), -ESTALE, "no context");
	is_int(glake_uvm_figures_get(NULL, &figures), -ESTALE, "nor then");
	ok(!figure("managed_events").found, "nothing in the tree of figures");
	is_str(glake_uvm_state_name(GLAKE_UVM_PAUSED), "PAUSED", "the last state");
	is_str(glake_uvm_state_name(GLAKE_UVM_PAUSED + 1), "?", "no state");
	is_str(glake_uvm_state_name(-1), "?", "nor that");
	is_int(glake_uvm_tools_get(NULL), -EINVAL, "nowhere to write");
}

static void counted(void)
{
	struct glake_uvm_options options = {
		.sz = sizeof(options), .events = GLAKE_UVM_ALL};
	struct glake_uvm_pressure pressure = {.sz = sizeof(pressure)};
	struct glake_uvm_figures figures = {.sz = sizeof(figures)};
	struct glake_uvm_event event = {0};
	struct glake *other = open_context();
	size_t count = 0;

	init_fake();
	is_int(begin(ctx, &options), 0, "opened");
	is_int(begin(ctx, &options), -EBUSY, "once");
	is_int(begin(other, &options), -EBUSY, "by one context");
	is_int(glake_uvm_close(other), -EALREADY, "which alone closes them");
	fake_happens(&fake, &move);
	is_int(gpu_bytes(ctx), 4096, "counted");
	is_int(figure("managed_to_gpu_bytes").value, 4096, "and in the tree of figures");
	is_int(figure("managed_evictions").value, 1, "with events");
	written();
	is_int(glake_uvm_drain(ctx, &event, 1, &count), 0, "drained");
	is_int(count, 1, "one");
	is_int(event.to, 0, "to the context's GPU");
	is_int(glake_uvm_drain(ctx, NULL, 1, &count), -EINVAL, "nowhere to write");
	is_int(glake_uvm_pressure_get(ctx, &pressure), 0, "pressure");
	is_int(pressure.rose, 1, "rose");
	pressure.sz = 0;
	is_int(glake_uvm_pressure_get(ctx, &pressure), -EINVAL, "of no size");
	fake_happens(&fake, &move);
	is_int(glake_uvm_pressure_get(ctx, &pressure), -EINVAL, "and again");
	pressure.sz = sizeof(pressure);
	is_int(glake_uvm_pressure_get(ctx, &pressure), 0, "then it is told");
	is_int(pressure.evictions, 1, "no call that failed took it");
	figures.sz = 4;
	is_int(glake_uvm_figures_get(ctx, &figures), -EINVAL, "figures of no size");
	is_int(glake_uvm_close(ctx), 0, "closed");
	is_int(fake_open_fds(&fake), FAKE_OPEN, "with every descriptor");
	ok(!figure("managed_events").found, "and gone from the tree");
	options = (struct glake_uvm_options){.sz = sizeof(options), .entries = 3};
	is_int(begin(ctx, &options), -EINVAL, "a ring that is none");
	is_int(begin(other, NULL), 0, "the other context's turn: counters alone");
	is_int(glake_uvm_drain(other, &event, 1, &count), -EINVAL, "it has no events");
	pressure.sz = sizeof(pressure);
	is_int(glake_uvm_pressure_get(other, &pressure), -EINVAL, "and no pressure");
	is_int(glake_close(other, NULL), 0, "its end");
	is_int(fake_open_fds(&fake), FAKE_OPEN, "ends them too");
	is_int(fake.maps, 0, "and their memory");
	options = (struct glake_uvm_options){
		.sz = sizeof(options), .events = GLAKE_UVM_ALL, .flags = GLAKE_UVM_SUMS};
	is_int(begin(ctx, &options), 0, "free for the next: sums");
	is_int(glake_uvm_drain(ctx, &event, 1, &count), -EINVAL, "give no events");
	is_int(glake_uvm_close(ctx), 0, "closed");
}

static void suspended(void)
{
	struct glake_uvm_figures figures = {.sz = sizeof(figures)};
	void *ptr = NULL;

	init_fake();
	is_int(glake_alloc(ctx, 0, 1 << 20, NULL, 0, &ptr), 0, "a block");
	is_int(begin(ctx, NULL), 0, "opened");
	fake_happens(&fake, &move);
	is_int(glake_suspend(ctx, 0, NULL), 0, "suspended");
	is_int(fake_open_fds(&fake), FAKE_OPEN, "no descriptor is held");
	is_int(gpu_bytes(ctx), 4096, "figures stay");
	glake_uvm_figures_get(ctx, &figures);
	is_int(figures.state, GLAKE_UVM_PAUSED, "and say so");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	fake_happens(&fake, &move);
	is_int(gpu_bytes(ctx), 8192, "it counts on");
	is_int(glake_suspend(ctx, 0, NULL), 0, "once more");
	fake.ioctl_errno = -ENOTTY;
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed, whatever the module says");
	glake_uvm_figures_get(ctx, &figures);
	is_int(figures.state, GLAKE_UVM_REFUSED, "which the state tells");
	fake.ioctl_errno = 0;
	is_int(glake_uvm_close(ctx), 0, "closed");
	is_int(glake_free(ctx, ptr, NULL), 0, "freed");
}

#define ROUNDS 300

/* Each reads in its own way, or opens and closes; all get an answer that there is. */
static void *in_a_thread(void *arg)
{
	int which = *(int *)arg, odd = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct glake_uvm_options options = {
			.sz = sizeof(options), .events = GLAKE_UVM_ALL, .entries = 64};
		struct glake_uvm_pressure pressure = {.sz = sizeof(pressure)};
		struct glake_uvm_figures figures = {.sz = sizeof(figures)};
		struct glake_uvm_event events[8];
		size_t count;
		int err = 0;

		if (which == 0)
			err = i % 2 ? glake_uvm_close(ctx) : begin(ctx, &options);
		else if (which == 1)
			err = glake_uvm_drain(ctx, events, 8, &count);
		else if (which == 2)
			err = glake_uvm_pressure_get(ctx, &pressure);
		else if (figure("managed_events").found)
			err = glake_uvm_figures_get(ctx, &figures);
		odd += err && err != -EALREADY;
	}
	*(int *)arg = odd;
	return NULL;
}

static void threads(void)
{
	int which[4] = {0, 1, 2, 3};
	pthread_t thread[4];

	init_fake();
	for (int i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, in_a_thread, &which[i]))
			tap_bail("no thread");
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		is_int(which[i], 0, "a thread beside others is answered");
	}
	is_int(glake_uvm_close(ctx), -EALREADY, "all was closed");
	is_int(fake_open_fds(&fake), FAKE_OPEN, "every descriptor");
	is_int(fake.maps, 0, "and all memory");
}

/* A child has none of them, and the parent all. */
static void forked(void)
{
	struct glake_uvm_figures figures = {.sz = sizeof(figures)};
	int status = 0;
	pid_t child;

	init_fake();
	is_int(begin(ctx, NULL), 0, "opened");
	fflush(stdout);
	child = fork();
	if (!child)
		_exit((fake_open_fds(&fake) != FAKE_OPEN) |
			(glake_uvm_figures_get(ctx, &figures) != -ENODEV) << 1 |
			(glake_uvm_close(ctx) != -ENODEV) << 2);
	waitpid(child, &status, 0);
	is_int(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0,
		"a child closes its copies and is refused");
	fake_happens(&fake, &move);
	is_int(gpu_bytes(ctx), 4096, "the parent's count on");
	is_int(glake_uvm_close(ctx), 0, "closed");
}

int main(void)
{
	tap_plan_later();
	ctx = open_context();
	refused();
	counted();
	suspended();
	threads();
	forked();
	is_int(sound_close(ctx, NULL), 0, "the end");
	return tap_done();
}
