/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What it costs to open a buffer of another process and to close it: calls of the driver, and their
 * time by the model of the software device with what an H100 takes for leaving and coming. Each
 * buffer is a new one. In one job the exporter gives its memory again and again between blocks that
 * come and go, as programs do that send messages; in the other one every page is new.
 *
 *	handles [BUFFERS]	64 of each size
 *
 * Exporter and importer are one process here, so the socket between them costs nothing.
 */
#include <glake/glake.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB	((size_t)1 << 20)
#define PIECES	4096
#define OTHERS	6
#define BUFFERS 64

struct job {
	struct glake *ctx;
	struct CUstream_st *stream;
	struct glake_mirror *mirror; /* NULL: each buffer is imported and ended */
	void *ptr;
	uint64_t calls;
	int64_t ns;
};

static void must(int err, const char *what)
{
	struct glake_error error = {.sz = sizeof(error)};

	if (!err)
		return;
	glake_last_error(&error);
	fprintf(stderr, "handles: %s: %s\n", what, error.text);
	exit(1);
}

static int fds(void *arg, size_t first, size_t count, int *ret_fds)
{
	const struct job *job = arg;

	return glake_export_fds(job->ctx, job->ptr, first, count, ret_fds);
}

static void through_mirror(struct job *job, size_t size)
{
	static struct glake_piece pieces[PIECES];
	size_t count;
	void *there;

	must(glake_export_list(job->ctx, job->ptr, pieces, PIECES, &count), "list");
	must(glake_mirror_open(job->ctx, job->mirror, (uint64_t)(uintptr_t)job->ptr,
		     pieces, count, size, fds, job, &there),
		"open");
	must(glake_mirror_close(job->ctx, job->mirror, there, size), "close");
}

static void by_import(struct job *job, size_t size)
{
	static struct glake_piece pieces[PIECES];
	size_t count;
	void *there;

	must(glake_export(job->ctx, job->ptr, pieces, PIECES, &count), "export");
	must(glake_import(job->ctx, 0, pieces, count, size, &there), "import");
	for (size_t i = 0; i < count; i++)
		close(pieces[i].fd);
	must(glake_import_end(job->ctx, there, job->stream), "end");
}

static void figures(const struct job *job, uint64_t *ret_calls, int64_t *ret_ns)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	must(glake_driver_stats_get(job->ctx, &stats), "figures");
	*ret_calls = 0;
	*ret_ns = 0;
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		*ret_calls += stats.calls[i];
		*ret_ns += stats.ns[i];
	}
}

static void hand_over(struct job *job, size_t size)
{
	uint64_t before, after;
	int64_t from, to;

	figures(job, &before, &from);
	if (job->mirror)
		through_mirror(job, size);
	else
		by_import(job, size);
	must(glake_export_end(job->ctx, job->ptr), "export end");
	figures(job, &after, &to);
	job->calls += after - before;
	job->ns += to - from;
}

static void run(struct job *job, size_t size, int buffers, bool anew)
{
	void *others[OTHERS] = {NULL};

	for (int i = 0; i < buffers; i++) {
		size_t bytes = size + (size_t)i * 4096 % (size / 8);
		void **other = &others[i % OTHERS];

		if (*other)
			must(glake_free(job->ctx, *other, job->stream), "free");
		must(glake_alloc(job->ctx, 0, size / 3 + (size_t)i * 1000, job->stream, 0,
			     other),
			"alloc");
		must(glake_alloc(job->ctx, 0, bytes, job->stream, 0, &job->ptr), "alloc");
		hand_over(job, bytes);
		must(glake_free(job->ctx, job->ptr, job->stream), "free");
		if (anew)
			must(glake_trim(job->ctx, 0, 0, NULL), "trim");
	}
	for (int i = 0; i < OTHERS; i++)
		if (others[i])
			must(glake_free(job->ctx, others[i], job->stream), "free");
}

static void measure(size_t size, int buffers, bool anew, bool mirror)
{
	struct job job = {0};

	must(glake_open(NULL, &job.ctx), "open");
	must(glake_stream_new(job.ctx, 0, &job.stream), "stream");
	if (mirror)
		must(glake_mirror_new(job.ctx, 0, &job.mirror), "mirror");
	run(&job, size, buffers, anew);
	printf("%3zu MiB, %s, %-13s %6.1f calls, %7.1f us a buffer\n", size / MIB,
		anew ? "pages new  " : "pages again",
		mirror ? "in a mirror:" : "imported:", (double)job.calls / buffers,
		(double)job.ns / 1e3 / buffers);
	if (mirror)
		must(glake_mirror_end(job.ctx, job.mirror), "mirror end");
	glake_stream_free(job.ctx, 0, job.stream);
	glake_close(job.ctx, NULL);
}

int main(int count, char **arguments)
{
	int buffers = count > 1 ? atoi(arguments[1]) : BUFFERS;
	static const size_t sizes[] = {1 * MIB, 8 * MIB, 64 * MIB};

	if (buffers < 1)
		return 2;
	setenv("GLAKE_DRIVER_BACKEND", "soft", 1);
	setenv("GLAKE_SOFT_COST_EXPORT", "35us", 0);
	setenv("GLAKE_SOFT_COST_IMPORT", "30us", 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int way = 0; way < 4; way++)
			measure(sizes[i], buffers, way & 1, way & 2);
	return 0;
}
