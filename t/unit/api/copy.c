/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies over one link and over several: every byte, in the order of streams. */
#include "unit/api/copy_rig.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* So many rounds, or a quarter of them where each takes long. */
static int few(int rounds)
{
	return tap_on_valgrind() ? rounds / 4 : rounds;
}

/* Links and ways that other GPUs' copies went over, beside what was measured. */
static int lent(void)
{
	uint64_t bytes;
	int count = 0;

	for (int device = 1; device < 4; device++) {
		glk_soft_link_bytes(context->drv, device, false, &bytes);
		count += bytes > MIB;
		glk_soft_link_bytes(context->drv, device, true, &bytes);
		count += bytes > MIB;
	}
	return count;
}

static void is_right(const char *streams, struct CUstream_st *on)
{
	const char *const settings[] = {MANY, streams, NULL};
	struct CUstream_st *made;
	int wrong = 0;

	begin(settings);
	made = stream;
	stream = on ? on : stream;
	for (int i = 0; i < few(16) || (i < 1600 && lent() < 6); i++)
		wrong += !round_trip(i % 4 ? ROOM - 1024 : 3000);
	ok(!wrong, "%s: all bytes arrive, and no other is written", streams);
	ok(lent() == 6, "%s: over the links of all GPUs, both ways", streams);
	stream = made;
	end();
}

/* Ranges of a list, apart from each other on both sides. */
static size_t cut(struct glake_copy_range *r, size_t most)
{
	size_t at = 0, count = 0, bytes;

	for (; count < most; count++) {
		bytes = count % 5 ? dice() % (300 * KIB) : dice() % 9;
		if (at + bytes > ROOM)
			break;
		r[count] = (struct glake_copy_range){gpu + at, host + at, bytes};
		at += bytes + dice() % 17;
	}
	return count;
}

/* Of a GPU that serves blocks, and copies of another one. */
static int look(const struct glake_figure *figure, void *arg)
{
	int *seen = arg;

	if (figure->device != 1)
		return 0;
	if (!strcmp(figure->name, "relay_staging_bytes") && figure->value == 2 * MIB)
		*seen |= 1;
	if (!strcmp(figure->name, "relayed_bytes") && figure->value > MIB)
		*seen |= 2;
	if (!strcmp(figure->name, "link_host_second_bytes") &&
		figure->value == 55500000000)
		*seen |= 4;
	if (!strcmp(figure->name, "link_peer_second_bytes") &&
		figure->value == 390000000000)
		*seen |= 8;
	return 0;
}

/* What the driver is not asked about. */
static void refused(void *dst, const void *src, size_t bytes, const char *what)
{
	struct glake_error error = {.sz = sizeof(error)};

	is_int(glake_copy(ctx, dst, src, bytes, stream, 0, NULL), -EINVAL, what);
	glake_last_error(&error);
	has_str(error.text, "cannot be copied", "  as it says");
}

static void lists(void)
{
	void *far = NULL;
	uint64_t before;
	int seen = 0;
	static const char *const settings[] = {MANY, NULL};
	struct glake_copy_range r[40], swapped;
	struct glake_copy_job *job;
	struct glake_copy_state now;
	int wrong = 0;

	begin(settings);
	for (int i = 0; i < few(8) || (i < 800 && context->io.gpu[1].relayed <= MIB);
		i++) {
		size_t count = cut(r, 40), sum = 0;

		memset(gpu, 0, ROOM);
		fill(host, ROOM);
		swapped = r[1];
		r[1] = r[count - 1];
		r[count - 1] = swapped;
		if (glake_copy_list(ctx, r, count, stream, 0, &job) || sync_stream())
			tap_bail("a list");
		for (size_t j = 0; j < count; j++) {
			wrong += memcmp(r[j].dst, r[j].src, r[j].bytes) != 0;
			sum += r[j].bytes;
		}
		now = state_of(job);
		wrong += now.bytes != sum || now.stage != GLAKE_COPY_DONE ||
			now.paths != 4 || !now.relayed || now.relayed > sum;
		wrong += glake_copy_close(job) != 0;
	}
	is_int(wrong, 0, "lists of ranges arrive whole, over four paths");
	glake_alloc(ctx, 1, MIB, NULL, 0, &far);
	is_int(glake_figures(ctx, look, &seen), 0, "figures");
	glake_free(ctx, far, NULL);
	is_int(seen, 0xf, "tell what links carry, and what was taken and relayed");
	r[0] = r[1] = (struct glake_copy_range){gpu, host, 100};
	is_int(glake_copy_list(ctx, r, 2, stream, 0, NULL), -EINVAL,
		"two to the same place");
	r[1] = (struct glake_copy_range){gpu + 100, host, 100};
	is_int(glake_copy_list(ctx, r, 2, stream, 0, NULL), 0, "two from the same place");
	r[1] = (struct glake_copy_range){gpu + 200, gpu + 99, 100};
	is_int(glake_copy_list(ctx, r, 2, stream, 0, NULL), -EINVAL,
		"one from where another goes");
	before = context->io.copies;
	for (size_t i = 0; i < 40; i++)
		r[i] = (struct glake_copy_range){gpu + 4000 * i, host + 4000 * i, 2047};
	is_int(glake_copy_list(ctx, r, 40, stream, 0, NULL), 0, "small ranges");
	is_int((int64_t)(context->io.copies - before), 0, "go over one link");
	r[39].bytes += 20;
	r[38].bytes += 20;
	is_int(glake_copy_list(ctx, r, 40, stream, 0, NULL), 0,
		"as large as that on average");
	is_int((int64_t)(context->io.copies - before), 1, "over several");
	is_int(glake_copy_list(ctx, NULL, 0, stream, 0, NULL), 0, "an empty list");
	is_int(glake_copy_list(ctx, NULL, 1, stream, 0, NULL), -EINVAL, "no list");
	is_int(glake_copy_list(ctx, r, GLAKE_COPY_RANGES_MAX + 1, stream, 0, NULL),
		-E2BIG, "too long a list");
	end();
}

static void bad_input(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct glake_copy_job *job = NULL;
	uint64_t end_of, page;
	size_t offset;
	void *gone;

	begin(settings);
	end_of = (uintptr_t)gpu & ~(2 * MIB - 1);
	is_int(glake_copy(NULL, gpu, host, 1, stream, 0, NULL), -ESTALE, "no context");
	is_int(glake_copy(ctx, gpu, gpu + 5, 10, stream, 0, NULL), -EINVAL, "an overlap");
	is_int(glake_copy(ctx, gpu, host, SIZE_MAX, stream, 0, NULL), -EINVAL, "a wrap");
	is_int(glake_copy(ctx, NULL, host, 1, stream, 0, NULL), -EINVAL, "to nowhere");
	refused(gpu, NULL, 1, "from nowhere");
	refused(gpu, (void *)(UINTPTR_MAX - 3), 8, "from behind the end of all");
	refused((void *)(UINTPTR_MAX - 3), gpu, 8, "and to there");
	is_int(glake_copy(ctx, gpu, host, 1, stream, 2, NULL), -EINVAL, "unknown flags");
	is_int(glake_copy(ctx, NULL, NULL, 0, stream, 0, &job), 0, "no bytes");
	is_int(glake_copy_wait(job, -1), 0, "which are copied");
	is_int(state_of(job).stage, GLAKE_COPY_DONE, "  and done");
	is_int(glake_copy_close(job), 0, "  and told");
	is_int(glake_copy_close(job), -ESTALE, "once");
	is_int(glake_copy(ctx, gpu, host, 100, (struct CUstream_st *)(uintptr_t)4711, 0,
		       NULL),
		-EINVAL, "no stream");
	is_int(glake_copy(ctx, gpu, host, MIB, (struct CUstream_st *)(uintptr_t)4711, 0,
		       &job),
		-EINVAL, "no stream, with a job");
	if (glake_alloc(ctx, 0, 64 * MIB / 4, stream, 0, &gone))
		tap_bail("no block");
	glake_free(ctx, gone, stream);
	glake_trim(ctx, 0, 0, NULL);
	is_int(glake_copy(ctx, gone, host, 4 * MIB, stream, 0, NULL), -EINVAL,
		"memory that has gone back");
	while (!glk_soft_physical(context->drv, end_of, &page, &offset))
		end_of += 2 * MIB;
	is_int(glake_copy(ctx, (char *)(uintptr_t)end_of - MIB, host, 4 * MIB, stream, 0,
		       NULL),
		-EINVAL, "beyond what there is");
	ok(round_trip(3 * MIB), "what is right is copied after all that");
	is_int((int64_t)context->io.gpu[1].off, 0, "and its paths are there");
	end();
}

/* Behind what was queued, before what comes: also where others run first. */
static void in_order(void)
{
	static const char *const settings[] = {MANY, "soft.streams=stepped", NULL};
	struct glk_drv *drv;
	struct glake_driver_stats before = {.sz = sizeof(before)}, after = before;
	struct glake_copy_job *job;
	unsigned at = 0;
	uint64_t asked;

	begin(settings);
	drv = context->drv;
	fill(host, ROOM);
	glk_soft_hold(drv, 0, stream, true);
	drv->ops->fill(drv, (uintptr_t)gpu, 7, ROOM / 4, stream);
	is_int(glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, &job), 0, "a copy");
	drv->ops->fill(drv, (uintptr_t)gpu, 9, MIB / 4, stream);
	glk_soft_run_all(drv);
	ok(!gpu[2 * MIB] && !gpu[3 * MIB - 1], "it waits for what was queued before");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "its job says so");
	is_int(glake_copy_wait(job, 0), -ETIMEDOUT, "and does not wait");
	is_int(glake_copy_wait(job, 3000000), -ETIMEDOUT, "or not for long");
	glake_driver_stats_get(ctx, &before);
	is_int(glake_copy_wait(job, 30000000), -ETIMEDOUT, "or 30 ms");
	glake_driver_stats_get(ctx, &after);
	asked = after.calls[GLAKE_CALL_EVENT_QUERY] -
		before.calls[GLAKE_CALL_EVENT_QUERY];
	ok(asked < 60,
		"in which it asks once a ms, more often at first: %" PRIu64 " times",
		asked);
	is_int(glake_copy_wait(job, -1), -EBUSY, "or not for ever");
	glk_soft_hold(drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "then it is waited for");
	is_int(state_of(job).stage, GLAKE_COPY_DONE, "and done");
	ok(!memcmp(gpu + MIB, host + MIB, 2 * MIB), "all of it");
	is_int(sync_stream(), 0, "all else");
	while (at < MIB && gpu[at] == (at % 4 ? 0 : 9))
		at++;
	is_int(at, (int64_t)MIB, "what was queued after it came after it");
	is_int(glake_copy_close(job), 0, "closed");
	end();
}

static void captured(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct glake_copy_job *job;
	uint32_t graph;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	glake_soft_capture_begin(ctx, 0, stream);
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, &job), -EBUSY,
		"no job of what is captured");
	is_int(error_class(), GLAKE_ERROR_CAPTURE, "  its class");
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, NULL), 0, "a copy is");
	is_int(glake_soft_capture_end(ctx, 0, stream, &graph), 0, "which breaks nothing");
	ok(!gpu[0] && !gpu[MIB - 1], "and is not made yet");
	glake_soft_graph_launch(ctx, 0, graph, stream);
	ok(!memcmp(gpu, host, MIB), "but by its graph");
	glake_soft_graph_free(ctx, graph);
	end();
}

/* Plain memory, other GPUs, lent to nobody: one call of the driver for a range. */
static void direct(void)
{
	static const char *const none[] = {
		"soft.gpus=2", "map.span=4GiB", "io.least=0", NULL};
	static const char *const many[] = {MANY, NULL};
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	static unsigned char plain[MIB];
	uint64_t before, after;
	void *far = NULL;

	begin(none);
	glake_driver_stats_get(ctx, &stats);
	before = stats.calls[GLAKE_CALL_COPY];
	after = stats.calls[GLAKE_CALL_OTHER];
	is_int(glake_copy(ctx, gpu, host, 4 * MIB, stream, 0, NULL), 0, "nobody lends");
	glake_driver_stats_get(ctx, &stats);
	is_int((int64_t)(stats.calls[GLAKE_CALL_COPY] - before), 1,
		"one copy of the driver");
	is_int((int64_t)(stats.calls[GLAKE_CALL_OTHER] - after), 0, "and no question");
	end();
	begin(many);
	fill(plain, MIB);
	is_int(glake_copy(ctx, gpu, plain, MIB, stream, 0, NULL), 0, "plain memory");
	ok(!memcmp(gpu, plain, MIB), "arrives");
	is_int(glake_copy(ctx, host, plain, MIB, stream, 0, NULL), 0, "host to host");
	ok(!memcmp(host, plain, MIB), "arrives");
	glake_alloc(ctx, 1, MIB, NULL, 0, &far);
	is_int(glake_copy(ctx, gpu + 1, gpu + 2 * MIB, MIB, stream, 0, NULL), 0,
		"on a GPU");
	is_int(glake_copy(ctx, gpu, host, MIB, stream, GLAKE_COPY_DIRECT, NULL), 0,
		"over one link if so wanted");
	is_int((int64_t)context->io.copies, 0, "none of these over several");
	is_int((int64_t)context->io.gpu[1].size, 0, "and nothing was taken from a GPU");
	glake_free(ctx, far, NULL);
	end();
}

#define THREADS 4

struct worker {
	pthread_t thread;
	int device;
	uint64_t rolled;
	int wrong;
};

/* Copies of its own between its own parts of both sides and a GPU of its own. */
static void *work(void *arg)
{
	size_t part = ROOM / THREADS, bytes;
	struct worker *w = arg;
	unsigned char *from = host + (size_t)w->device * part, *to;
	struct CUstream_st *own = NULL;
	struct glake_copy_job *job;
	void *block = NULL;

	if (glake_stream_new(ctx, w->device, &own) ||
		glake_alloc(ctx, w->device, part, own, 0, &block))
		tap_bail("no block");
	to = other + (size_t)w->device * part;
	for (int i = 0; i < few(8); i++) {
		for (size_t j = 0; j < part; j += 512)
			from[j] = (unsigned char)seed_next(&w->rolled);
		bytes = part - (size_t)(seed_next(&w->rolled) % 4096);
		w->wrong += glake_copy(ctx, block, from, bytes, own, 0, NULL) != 0;
		w->wrong += glake_copy(ctx, to, block, bytes, own, 0, &job) != 0;
		w->wrong += glake_copy_wait(job, i % 2 ? -1 : INT64_MAX) != 0;
		w->wrong += memcmp(to, from, bytes) != 0;
		w->wrong += glake_copy_close(job) != 0;
	}
	glake_free(ctx, block, own);
	glake_stream_free(ctx, w->device, own);
	return NULL;
}

static void many_threads(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct worker w[THREADS];
	int wrong = 0;

	begin(settings);
	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.device = i, .rolled = dice()};
		if (pthread_create(&w[i].thread, NULL, work, &w[i]))
			tap_bail("no thread");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		wrong += w[i].wrong;
	}
	is_int(wrong, 0, "threads that copy to all GPUs at once, over the links of all");
	end();
}

static const struct glk_drv_ops *usual;
static uint64_t largest, sum; /* of copies on the program's stream */
static uint64_t odd;	      /* that do not begin at a page of the host */

static int count_copy(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
	struct CUstream_st *on)
{
	if (on == stream) {
		largest = size > largest ? size : largest;
		sum += size;
		odd += src % (4 * KIB) != 0;
	}
	return usual->copy(drv, dst, src, size, on);
}

/* Sixteen for each path, of 4 MiB at least and io.piece at most; two where these would be larger. */
static void pieces(void)
{
	static const char *const settings[] = {MANY, "io.lend=1", "soft.memory=1GiB",
		"io.staging=32MiB", "io.piece=6MiB", NULL};
	static const struct {
		size_t bytes, piece;
	} of[] = {{8 * MIB, 2 * MIB}, {12 * MIB, 3 * MIB}, {64 * MIB, 4 * MIB},
		{144 * MIB, 9 * MIB / 2}, {208 * MIB, 6 * MIB},
		{150 * MIB + 8 * KIB,
			(150 * MIB + 8 * KIB) / 32 / (4 * KIB) * (4 * KIB)}};
	const size_t most = 208 * MIB;
	struct glk_drv_ops ops;
	unsigned char *from;
	void *block = NULL;

	begin(settings);
	from = mmap(
		NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (from == MAP_FAILED || glake_alloc(ctx, 0, most, stream, 0, &block) ||
		context->drv->ops->host_lock(context->drv, 0, from, most))
		tap_bail("no memory");
	usual = context->drv->ops;
	ops = *usual;
	ops.copy = count_copy;
	context->drv->ops = &ops;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		if (of[i].bytes > 64 * MIB && tap_one_thread_takes_long())
			continue;
		largest = sum = odd = 0;
		fill(from, of[i].bytes);
		is_int(glake_copy(ctx, block, from, of[i].bytes, stream, 0, NULL) |
				sync_stream(),
			0, "a copy");
		is_int((int64_t)largest, (int64_t)of[i].piece, "in pieces");
		ok(sum > of[i].bytes / 3 && sum < of[i].bytes * 2 / 3,
			"about a half over its own link");
		is_int((int64_t)odd, 0, "from whole pages");
		ok(!memcmp(block, from, of[i].bytes), "every byte");
	}
	context->drv->ops = usual;
	context->drv->ops->host_unlock(context->drv, 0, from);
	munmap(from, most);
	glake_free(ctx, block, stream);
	end();
}

/* All of a copy is queued when its call returns, so that none of it can be cancelled. */
static void cancelled(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct glake_copy_state now;
	struct glake_copy_job *job;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, 2 * MIB, stream, 0, &job), 0, "a copy");
	is_int(glake_copy_cancel(job), -EBUSY, "is not cancelled before it begins");
	is_int(error_class(), GLAKE_ERROR_BUSY, "  its class");
	now = state_of(job);
	is_int(now.stage, GLAKE_COPY_QUEUED, "it is queued still");
	ok(now.bytes == 2 * MIB && !now.copied && !now.failed && !now.error,
		"and nothing of it told to be there");
	ok(!now.fed && !now.stalled, "what nothing sets is 0");
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "it is made");
	now = state_of(job);
	ok(now.copied == 2 * MIB && !now.fed && !now.stalled, "which is told");
	is_int(glake_copy_cancel(job), -EBUSY, "nor is it cancelled when it has ended");
	ok(!memcmp(gpu, host, 2 * MIB), "every byte");
	is_int(glake_copy_close(job), 0, "closed");
	is_int(glake_copy_cancel(job), -ESTALE, "no job");
	is_int(glake_copy_cancel(NULL), -ESTALE, "none");
	end();
}

static void forked(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct glake_copy_job *job;
	int status = -1;
	pid_t child;

	begin(settings);
	fill(host, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, &job), 0, "a copy");
	child = fork();
	if (!child) {
		struct glake_copy_state now = {.sz = sizeof(now)};
		int wrong = glake_copy_get(job, &now) != -ENODEV;

		wrong += glake_copy_cancel(job) != -ENODEV;
		wrong += glake_copy_close(job) != 0;
		wrong += glake_close(ctx, NULL) != 0;
		_exit(wrong);
	}
	waitpid(child, &status, 0);
	is_int(status, 0, "a forked child is told so, and ends");
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "the parent's goes on");
	ok(!memcmp(gpu, host, 3 * MIB), "every byte");
	glake_copy_close(job);
	end();
}

/* What a job says when its context is gone, to the end. */
static void outlived(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct glake_copy_state now = {.sz = sizeof(now)};
	struct glake_copy_job *job = NULL;
	struct glake_copy_part part;

	begin(settings);
	glake_copy(ctx, gpu, host, MIB, stream, 0, &job);
	end();
	is_int(glake_copy_get(job, &now), -ESTALE, "a job whose context was closed");
	is_int(error_class(), GLAKE_ERROR_STALE, "  its class");
	is_int(glake_copy_wait(job, -1), -ESTALE, "is not waited for");
	is_int(glake_copy_failed(job, 0, &part), -ESTALE, "tells nothing");
	is_int(glake_copy_cancel(job), -ESTALE, "is not cancelled");
	is_int(glake_copy_close(job), 0, "is closed");
	is_int(glake_copy_close(job), -ESTALE, "once");
	is_int(glake_copy_get(NULL, &now), -ESTALE, "none");
	is_int(glake_copy_close(NULL), 0, "none to close");
}

/* In modelled time, bytes against what links carry: see soft.link. */
static double speed(const char *share, const char *lend, bool up, size_t bytes)
{
	const char *const settings[] = {MANY, "io.staging=16MiB", share, lend, NULL};
	int64_t before, after;
	double rate;

	begin(settings);
	glk_soft_link_time(context->drv, 0, stream, &before);
	if (glake_copy(ctx, up ? host : gpu, up ? gpu : host, bytes, stream, 0, NULL))
		tap_bail("no copy");
	glk_soft_link_time(context->drv, 0, stream, &after);
	rate = (double)bytes / (double)(after - before) / 55.5;
	ended();
	return rate;
}

static void fast(void)
{
	double one = speed("soft.link_share=1", "io.lend=", false, ROOM);
	double four = speed("soft.link_share=1", "io.lend=all", false, ROOM);
	double back = speed("soft.link_share=1", "io.lend=all", true, ROOM);
	double two = speed("soft.link_share=1", "io.lend=2", false, ROOM);
	double pairs = speed("soft.link_share=2", "io.lend=all", false, ROOM);
	double pair = speed("soft.link_share=2", "io.lend=1", true, ROOM);
	double small = speed("soft.link_share=1", "io.lend=all", false, 64 * KIB);

	ok(one > 0.99 && one < 1.01, "over one link at its speed: %.2f", one);
	ok(four > 3.6, "over four: %.2f", four);
	ok(back > 3.6, "and back: %.2f", back);
	ok(two > 1.8, "over two: %.2f", two);
	ok(pairs > 1.8, "two and two behind an uplink: %.2f", pairs);
	ok(pair > 0.9, "two behind one: %.2f", pair);
	ok(small > 0.99, "one piece goes by the shortest way: %.2f", small);
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	is_right("soft.streams=worker", NULL);
	is_right("soft.streams=random", NULL);
	is_right("soft.streams=random", GLK_STREAM_LEGACY);
	is_right("soft.streams=random", GLK_STREAM_PER_THREAD);
	lists();
	bad_input();
	in_order();
	captured();
	direct();
	many_threads();
	pieces();
	cancelled();
	forked();
	outlived();
	fast();
	return tap_done();
}
