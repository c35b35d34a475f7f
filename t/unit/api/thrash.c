/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From an event of the module to the advice: a model of the module in all four generations behind a
 * context of the software device. What is asked is the number of the driver's calls.
 */
#include "unit/uvm_bridge/fake.h"

#include "api/context.h"
#include "api/uvm.h"
#include "base/clock.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <glake/info.h>
#include <glake/memory.h>
#include <glake/tier.h>

#include <pthread.h>

#define MIB ((size_t)1 << 20)
#define ALL 0x3 /* the host and the first GPU, by the module's indices of V1 */

static struct fake fake;
static struct glake *ctx;
static char *block, *plain;

static void open_context(
	char generation, const char *setting, uint32_t flags, uint32_t kinds)
{
	const char *const settings[] = {
		"soft.memory=1GiB", "tier.managed_chunk=64MiB", setting, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.settings = settings};
	struct glake_uvm_options uvm = {
		.sz = sizeof(uvm), .events = kinds, .flags = flags};
	struct glake_device device = {.sz = sizeof(device)};
	struct glk_context *context;
	unsigned int byte;
	size_t n = 0;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context) ||
		glake_device_get(ctx, 0, &device))
		tap_bail("no context");
	fake_init(&fake, generation);
	/* the model's first GPU is the context's */
	for (const char *at = strchr(device.uuid, '-'); at && *at && n < 16; at += 2) {
		at += *at == '-';
		sscanf(at, "%2x", &byte);
		fake.uuid[0][n++] = (uint8_t)byte;
	}
	if (glk_managed_open(context, &uvm, &fake.ops, generation, FAKE_MAJOR, 0) ||
		glake_alloc(
			ctx, 0, 16 * MIB, NULL, GLAKE_ALLOC_MANAGED, (void **)&block) ||
		glake_alloc(ctx, 0, 16 * MIB, NULL, 0, (void **)&plain))
		tap_bail("no block");
}

static void close_context(void)
{
	is_int(glake_uvm_close(ctx), 0, "closed");
	is_int(fake_open_fds(&fake), FAKE_OPEN, "with every descriptor");
	is_int(sound_close(ctx, NULL), 0, "the end");
}

static void thrash(const void *at, uint64_t bytes, uint64_t processors)
{
	struct fake_event e = {.kind = GLK_UVM_THRASHING,
		.address = (uint64_t)(uintptr_t)at,
		.bytes = bytes,
		.end = (uint64_t)glk_clock_raw_ns(),
		.processors = processors};

	fake_happens(&fake, &e);
}

/* Events that one drain gives. */
static int64_t drain(void)
{
	static struct glake_uvm_event events[8192];
	size_t count = 0;

	is_int(glake_uvm_drain(ctx, events, 8192, &count), 0, "drained");
	return (int64_t)count;
}

static int64_t said(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	glake_driver_stats_get(ctx, &stats);
	return (int64_t)stats.calls[GLAKE_CALL_MANAGED_ADVISE];
}

static int64_t advised(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	glake_stats_get(ctx, 0, &stats);
	return (int64_t)stats.managed_advised;
}

static void planted(char generation)
{
	tap_note("interface %c", generation);
	open_context(generation, NULL, 0, GLAKE_UVM_ALL);
	thrash(plain, 4096, ALL);
	thrash(&fake, 4096, ALL);
	thrash(NULL, 4096, ALL);
	is_int(drain(), 3, "events of memory that is none of ours");
	is_int(said(), 0, "lead to nothing");
	thrash(block + 4 * MIB, 4096, ALL);
	thrash(block + 4 * MIB + 4096, 4096, ALL);
	is_int(said(), 0, "nothing before they are drained");
	is_int(drain(), 2, "two events of a block");
	is_int(said(), 2, "two are said to use it");
	is_int(advised(), 1, "a block was advised");
	thrash(block + 8 * MIB, UINT64_MAX, ALL);
	thrash(block + 10 * MIB, 0, ALL);
	thrash((void *)UINTPTR_MAX, UINT64_MAX, ALL);
	thrash((void *)(UINTPTR_MAX - 4095), 8192, ~UINT64_C(0));
	thrash(block + 12 * MIB, 4096, 0);
	is_int(drain(), 5, "sizes that lie, wrap and are none");
	is_int(said(), 6, "the place alone counts");
	is_int(advised(), 1, "of a block that was advised before");
	is_int(glake_free(ctx, block, NULL), 0, "freed");
	thrash(block + 14 * MIB, 4096, ALL);
	is_int(drain(), 1, "an event of a block that is gone");
	is_int(said(), 6, "leads to nothing");
	close_context();
}

/* Where nothing is said: by the configuration, while it is suspended, of other kinds. */
static void quiet(void)
{
	open_context('D', "uvm.advise=no", 0, GLAKE_UVM_ALL);
	thrash(block, 4096, ALL);
	is_int(drain(), 1, "an event, where the configuration wants no advice");
	is_int(said() + advised(), 0, "leads to none");
	close_context();
	open_context('D', NULL, 0, GLAKE_UVM_MIGRATION);
	thrash(block, 4096, ALL);
	is_int(drain(), 0, "a kind that nobody asked for");
	is_int(said(), 0, "leads to nothing");
	close_context();
	open_context('D', NULL, 0, GLAKE_UVM_ALL);
	thrash(block, 4096, ALL);
	is_int(glake_suspend(ctx, 0, NULL), 0, "suspended");
	is_int(drain(), 1, "what is in the ring is given");
	is_int(said(), 0, "and said of nothing");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	thrash(block, 4096, ALL);
	is_int(drain(), 1, "again");
	is_int(said(), 2, "and now it is");
	is_int(glake_managed_advise(ctx, block, 0, GLAKE_MANAGED_UNPREFER, 0, 0), 0,
		"the program has a word to say");
	is_int(said(), 5, "which takes two back");
	thrash(block, 4096, ALL);
	is_int(drain(), 1, "once more");
	is_int(said(), 5, "it is the program's now");
	close_context();
}

/* An event that waits in the ring while its block is freed, and another one has its place. */
static void stale(char generation)
{
	struct glake_block was = {.sz = sizeof(was)};
	void *next = NULL;

	open_context(generation, NULL, 0, GLAKE_UVM_ALL);
	if (glake_query(ctx, block, &was))
		tap_bail("no block");
	thrash(block, 4096, ALL);
	is_int(glake_free(ctx, block, was.stream), 0, "freed before it is drained");
	is_int(glake_alloc(ctx, 0, was.size, was.stream, GLAKE_ALLOC_MANAGED, &next), 0,
		"another block");
	ok(next == (void *)block, "has its place");
	is_int(drain(), 1, "the event is given");
	is_int(said(), 0, "and nothing is said of the new block");
	thrash(block, 4096, ALL);
	is_int(drain(), 1, "an event of its own");
	is_int(said(), 2, "is heard");
	close_context();
}

/* Where events are summed up, who reads the sums has it done. */
static void summed(void)
{
	struct glake_uvm_pressure pressure = {.sz = sizeof(pressure)};
	struct glake_uvm_figures figures = {.sz = sizeof(figures)};

	open_context('D', NULL, GLAKE_UVM_SUMS, GLAKE_UVM_ALL);
	thrash(block, 4096, ALL);
	is_int(glake_uvm_figures_get(ctx, &figures), 0, "figures");
	is_int((int64_t)figures.thrashing, 1, "know of it");
	is_int(said(), 2, "and it is advised");
	thrash(block + 2 * MIB, 4096, ALL);
	is_int(glake_uvm_pressure_get(ctx, &pressure), 0, "pressure");
	is_int(said(), 4, "too");
	close_context();
}

/* As many as come in a second: none is lost, and calls are few. */
static void many(void)
{
	int64_t got = 0, most = 0;

	open_context('D', NULL, 0, GLAKE_UVM_ALL);
	for (int i = 0; i < 100000; i++) {
		const char *at = i % 3 ? plain : block;

		thrash(at + (size_t)i * 4096 % (16 * MIB), 4096, ALL);
		if (i % 8000 == 7999 || i == 99999) {
			int64_t before = said();

			got += drain();
			most = said() - before > most ? said() - before : most;
		}
	}
	is_int(got, 100000, "all are given");
	ok(most <= 2 * 64, "a drain makes few calls: %d", (int)most);
	is_int(said(), 16, "each 2 MiB is advised once");
	is_int(advised(), 1, "of one block");
	close_context();
}

int main(void)
{
	tap_plan_later();
	for (char generation = 'A'; generation <= 'D'; generation++)
		planted(generation);
	for (char generation = 'A'; generation <= 'D'; generation++)
		stale(generation);
	quiet();
	summed();
	many();
	return tap_done();
}
