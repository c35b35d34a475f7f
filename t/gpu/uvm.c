/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What nvidia-uvm counts and tells of managed memory, against what is moved: 64 MiB that prefetches
 * and touches send to the GPU and back, byte for byte; rings that are too small; suspension; every
 * descriptor closed; and no memory kept by a process that ends without closing any. What is not
 * promised but wants to be known is printed, as answers.
 *
 *	gpu-uvm			the tests
 *	gpu-uvm evict		also fills the GPU, so that managed memory has to go
 */
#include "uvm.h"

#include <glake/glake.h>

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

static struct glake *context_open(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA, .no_conf_file = 1};
	struct glake *opened = NULL;

	return glake_open(&options, &opened) ? NULL : opened;
}

/* Descriptors of the module and its tools, which are told by their major number. */
static int count_fds(int *ret_tools)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat st;
	int count = 0;

	*ret_tools = 0;
	while (folder && (entry = readdir(folder))) {
		if (fstat(atoi(entry->d_name), &st) || !S_ISCHR(st.st_mode) ||
			(int)major(st.st_rdev) != major_number)
			continue;
		if (minor(st.st_rdev))
			++*ret_tools;
		else
			count++;
	}
	if (folder)
		closedir(folder);
	return count;
}

static struct glake_uvm_figures figures(void)
{
	struct glake_uvm_figures now = {.sz = sizeof(now)};

	must(glake_uvm_figures_get(ctx, &now), "figures");
	return now;
}

/* Sums of what was drained. */
struct drained {
	size_t count;
	uint64_t to_gpu, to_host, outside, causes[9];
	bool nodes;
};

static struct drained drain(void)
{
	static struct glake_uvm_event events[EVENTS];
	struct drained sum = {0};
	size_t count;

	do {
		must(glake_uvm_drain(ctx, events, EVENTS, &count), "drain");
		for (size_t i = 0; i < count; i++) {
			const struct glake_uvm_event *e = &events[i];

			sum.count++;
			if (e->kind != GLAKE_UVM_MIGRATION)
				continue;
			if (e->from == GLAKE_UVM_HOST && e->to == 0)
				sum.to_gpu += e->bytes;
			if (e->from == 0 && e->to == GLAKE_UVM_HOST)
				sum.to_host += e->bytes;
			if (e->address < (uintptr_t)block ||
				e->address + e->bytes > (uintptr_t)block + SIZE)
				sum.outside++;
			if (e->cause >= 0 && e->cause < 9)
				sum.causes[e->cause]++;
			sum.nodes |= e->from_node >= 0 || e->to_node >= 0;
		}
	} while (count == EVENTS);
	return sum;
}

static void note_causes(const char *what, const struct drained *sum)
{
	tap_note("%s: %zu events; by the program %" PRIu64 ", by touch %" PRIu64
		 ", beside one %" PRIu64 ", for want of memory %" PRIu64 "%s",
		what, sum->count, sum->causes[GLAKE_UVM_CAUSE_USER],
		sum->causes[GLAKE_UVM_CAUSE_COHERENCE],
		sum->causes[GLAKE_UVM_CAUSE_PREFETCH],
		sum->causes[GLAKE_UVM_CAUSE_EVICTION],
		sum->nodes ? "; nodes of the host are named" : "");
}

static void open_it(uint32_t events, uint32_t entries, uint32_t flags)
{
	struct glake_uvm_options options = {.sz = sizeof(options),
		.events = events,
		.entries = entries,
		.flags = flags,
		.managed = block,
		.managed_size = SIZE};

	must(glake_uvm_open(ctx, &options), "glake_uvm_open");
}

/* The move itself, by counters and by events. */
static void moved(const char *what, uint64_t to_gpu, uint64_t to_host,
	const struct glake_uvm_figures *before)
{
	struct glake_uvm_figures now;
	struct drained sum = drain();

	now = figures();
	tap_note("%s", what);
	is_int(now.to_gpu_bytes - before->to_gpu_bytes, to_gpu, "counted to the GPU");
	is_int(now.to_host_bytes - before->to_host_bytes, to_host, "counted to the host");
	is_int(sum.to_gpu, to_gpu, "events tell the same to the GPU");
	is_int(sum.to_host, to_host, "and to the host");
	is_int(sum.outside, 0, "of the memory that was moved, and no other");
	is_int(now.dropped - before->dropped, 0, "none was lost");
	note_causes(what, &sum);
	tap_note("faults: %" PRIu64 " of the host, %" PRIu64 " of the GPU",
		now.cpu_faults - before->cpu_faults, now.gpu_faults - before->gpu_faults);
}

static void byte_for_byte(void)
{
	struct gpu_jobs jobs = {{gpu_job(block, SIZE, 1, 1)}};
	struct glake_uvm_figures before;
	const uint64_t *words = (uint64_t *)(void *)block;
	uint64_t wrong = 0;

	open_it(GLAKE_UVM_ALL, 0, 0);
	memset(block, 1, SIZE);
	before = figures();
	tap_note("answer: touched first by the host: %" PRIu64 " faults of it, %" PRIu64
		 " bytes to the GPU",
		before.cpu_faults, before.to_gpu_bytes);
	drain();
	before = figures();
	prefetch(0);
	moved("prefetched to the GPU", SIZE, 0, &before);
	before = figures();
	prefetch(TO_HOST);
	moved("prefetched to the host", 0, SIZE, &before);
	before = figures();
	must_cuda(gpu_put(&work, &jobs, 1, 0, 0, NULL), "a kernel");
	must_cuda(cu.sync(), "the GPU has gone");
	ok(figures().gpu_faults > before.gpu_faults, "a kernel faults");
	moved("touched by a kernel", SIZE, 0, &before);
	before = figures();
	for (size_t i = 0; i < SIZE / 8; i++)
		wrong += words[i] != gpu_tag(1, 1) + i;
	is_int(wrong, 0, "no word is wrong");
	ok(figures().cpu_faults > before.cpu_faults, "the host faults");
	moved("touched by the host", 0, SIZE, &before);
	is_int(glake_uvm_close(ctx), 0, "closed");
}

/* One entry of a ring stays free, and what does not fit is counted. */
static void small_ring(uint32_t entries)
{
	struct glake_uvm_event events[8];
	struct glake_uvm_figures now;
	size_t count;

	prefetch(TO_HOST);
	open_it(GLAKE_UVM_MIGRATION, entries, 0);
	prefetch(0);
	must(glake_uvm_drain(ctx, events, 8, &count), "drain");
	now = figures();
	ok(count < entries, "a ring of %u gives %zu", entries, count);
	is_int(now.to_gpu_bytes, SIZE, "counters count all the same");
	tap_note("answer: a ring of %u: %zu events, %" PRIu64 " lost", entries, count,
		now.dropped);
	ok(now.moved_bytes == SIZE || now.dropped, "what is missing was counted as lost");
	is_int(glake_uvm_close(ctx), 0, "closed");
}

static void suspended(void)
{
	struct glake_uvm_figures before;
	int tools, fds, left;

	prefetch(TO_HOST);
	fds = count_fds(&tools);
	open_it(GLAKE_UVM_ALL, 0, 0);
	is_int(count_fds(&tools), fds + 1, "open: a copy of CUDA's");
	is_int(tools, 2, "and two of the tools");
	must(glake_suspend(ctx, 0, NULL), "suspend");
	is_int(count_fds(&tools), fds, "suspended: none is held");
	is_int(tools, 0, "of the tools either");
	must(glake_resume(ctx, 0, NULL), "resume");
	before = figures();
	is_int(before.state, GLAKE_UVM_OK, before.text);
	prefetch(0);
	moved("after a suspension", SIZE, 0, &before);
	is_int(glake_uvm_close(ctx), 0, "closed");
	left = count_fds(&tools);
	is_int(left - fds + tools, 0, "every descriptor is closed");
}

static void costs(void)
{
	struct timespec a, b;

	open_it(GLAKE_UVM_ALL, 0, GLAKE_UVM_SUMS);
	figures();
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 1000; i++)
		figures();
	clock_gettime(CLOCK_MONOTONIC, &b);
	tap_note("figures read in %.3f us",
		((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) /
			1e6);
	is_int(glake_uvm_close(ctx), 0, "closed");
}

/* Pages of the library push managed memory out: only where nobody else uses the GPU. */
static void evicted(void)
{
	struct glake_uvm_pressure pressure = {.sz = sizeof(pressure)};
	size_t free = 0, total = 0, count = 0;
	static void *blocks[4096];
	struct drained sum;

	cu.info(&free, &total);
	if (free < total / 10 * 9) {
		tap_skip("managed memory has to go", "others use this GPU");
		return;
	}
	open_it(GLAKE_UVM_ALL, 0, 0);
	prefetch(0);
	drain();
	must(glake_uvm_pressure_get(ctx, &pressure), "pressure");
	while (count < 4096 && !glake_alloc(ctx, 0, 256 * MIB, NULL, 0, &blocks[count]))
		count++;
	must(glake_uvm_pressure_get(ctx, &pressure), "pressure");
	sum = drain();
	note_causes("filled", &sum);
	tap_note("answer: %zu GiB of pages: pressure %s, %" PRIu64
		 " evictions of %" PRIu64 " bytes, %" PRIu64 " remote maps",
		count / 4, pressure.rose ? "rose" : "did not rise", pressure.evictions,
		pressure.evicted_bytes, pressure.remote_starved);
	is_int(pressure.evicted_bytes,
		sum.causes[GLAKE_UVM_CAUSE_EVICTION] ? sum.to_host : 0,
		"pressure and events tell the same");
	while (count)
		glake_free(ctx, blocks[--count], NULL);
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "and given back");
	is_int(glake_uvm_close(ctx), 0, "closed");
}

/* A process of its own: it says how much memory of the GPU is free, or ends with everything open.
 * Its exit status. */
static int in_a_child(bool ends_with_all_open, size_t *ret_free)
{
	struct glake_uvm_options options = {
		.sz = sizeof(options), .events = GLAKE_UVM_ALL};
	int pipes[2], status = 0;
	struct gpu_extra extra;
	struct glk_drv *drv;
	uint64_t managed = 0;
	size_t total;
	pid_t child;

	*ret_free = 0;
	if (pipe(pipes))
		tap_bail("no pipe");
	fflush(stdout);
	child = fork();
	if (!child) {
		alarm(60);
		glk_rcu_init(false);
		if (glk_cuda_open(NULL, &drv) || !load_cuda())
			_exit(1);
		extra = gpu_extra();
		extra.context_set(extra.primary);
		if (ends_with_all_open) {
			ctx = context_open();
			_exit(!ctx || cu.managed(&managed, SIZE, GLOBAL) ||
				cu.prefetch(managed, SIZE, 0, NULL) || cu.sync() ||
				glake_uvm_open(ctx, &options));
		}
		cu.info(ret_free, &total);
		_exit(write(pipes[1], ret_free, sizeof(*ret_free)) != sizeof(*ret_free));
	}
	close(pipes[1]);
	if (read(pipes[0], ret_free, sizeof(*ret_free)) != sizeof(*ret_free))
		*ret_free = 0;
	close(pipes[0]);
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void skip_without(const struct glake_uvm_tools *tools)
{
	char why[sizeof(tools->text) + 64];

	if (tools->state == GLAKE_UVM_OK)
		return;
	snprintf(why, sizeof(why), "the tools of nvidia_uvm cannot be used: %s",
		tools->text);
	tap_skip_all(why);
}

int main(int argc, char **argv)
{
	struct glake_uvm_tools tools = {.sz = sizeof(tools)};
	struct glk_drv *drv;
	size_t before, none, after;
	uint64_t managed = 0;
	int ended;

	glake_uvm_tools_get(&tools);
	if (tools.state == GLAKE_UVM_NO_MODULE)
		skip_without(&tools);
	/* before this process has CUDA, which no child could use then */
	in_a_child(false, &before);
	ended = in_a_child(true, &none);
	in_a_child(false, &after);
	drv = gpu_open();
	/* the driver may have made the node just now */
	glake_uvm_tools_get(&tools);
	skip_without(&tools);
	tap_plan_later();
	glk_uvm_tools_read(NULL, &tools, &major_number);
	is_int(ended, 0, "a process ended with all of it open");
	ok(before && after + MIB >= before, "it left nothing: %zu bytes free, %zu before",
		after, before);
	tap_note("%s, interface %s", tools.version, tools.generation);
	if (!load_cuda())
		tap_bail("functions of CUDA");
	gpu_work_init(&work);
	ctx = context_open();
	if (!ctx)
		tap_bail("no context");
	must_cuda(cu.managed(&managed, SIZE, GLOBAL), "managed memory");
	block = (char *)(uintptr_t)managed;
	around();
	byte_for_byte();
	small_ring(2);
	small_ring(4);
	suspended();
	costs();
	raw(tools.generation[0]);
	if (argc > 1 && !strcmp(argv[1], "evict"))
		evicted();
	must_cuda(cu.free(managed), "managed memory is given back");
	is_int(glake_close(ctx, NULL), 0, "closed");
	glk_drv_close(drv);
	return tap_done();
}
