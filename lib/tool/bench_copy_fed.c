/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copies of which the program has a job, over as many links as there are: queued whole, and fed to their links
 * piece by piece (io.fed). On the software device small pieces make several of its small copies.
 */
#include "tool/bench_copy.h"
#include "tool/latency.h"
#include "tool/progress.h"

#include <errno.h>
#include <stdlib.h>

#define LEAST (4 * KIB)

/* What came of it: an error, and whether it was fed. */
static int end_job(struct glake_copy_job *job, bool *fed)
{
	struct glake_copy_state now = {.sz = sizeof(now)};
	int err = job ? glake_copy_wait(job, -1) : 0, failed;

	if (!job)
		return 0;
	failed = glake_copy_get(job, &now);
	err = err ? err : failed;
	*fed &= now.fed;
	failed = glake_copy_close(job);
	return err ? err : failed;
}

static int copy_once(
	const struct trip *trip, enum bench_copy_way way, size_t bytes, bool *fed)
{
	struct glake_copy_job *jobs[2] = {NULL, NULL};
	int err = trip_queue(trip, way, bytes, jobs), failed;

	for (int i = 0; i < 2; i++) {
		failed = end_job(jobs[i], fed);
		err = err ? err : failed;
	}
	failed = trip_wait(trip);
	return err ? err : failed;
}

static int measure(const struct trip *trip, bool is_fed, unsigned rounds, double *took,
	struct bench_copy_fed *ret)
{
	bool fed = true;
	int err = 0;

	for (int way = 0; way < BENCH_COPY_WAYS && !err; way++) {
		double calls = way == BENCH_COPY_BOTH ? 2 : 1;

		err = copy_once(trip, (enum bench_copy_way)way, ret->bytes, &fed);
		for (unsigned i = 0; i < rounds && !err; i++) {
			int64_t since = latency_now();
			double ns;

			err = copy_once(trip, (enum bench_copy_way)way, ret->bytes, &fed);
			ns = (double)(latency_now() - since);
			took[i] = calls * (double)ret->bytes / (ns < 1 ? 1 : ns);
		}
		if (!err)
			ret->rate[is_fed][way] = bench_range_of(took, rounds);
	}
	if (is_fed)
		ret->is_fed = fed;
	return err;
}

static int run(const struct bench_options *options, struct means *means, bool is_fed,
	struct bench_copy *copy)
{
	double *took = calloc(copy->rounds, sizeof(*took));
	struct trip trip = {0};
	int err;

	if (!took)
		return -ENOMEM;
	means->settings[0] = is_fed ? "io.fed=0" : "io.fed=16TiB";
	err = trip_open(options, means, &trip);
	copy->fed_count = 0;
	for (size_t bytes = LEAST;
		!err && bytes <= trip.most && copy->fed_count < BENCH_COPY_FED;
		bytes *= 4) {
		struct bench_copy_fed *f = &copy->fed[copy->fed_count++];

		f->links = means->links;
		f->bytes = bytes;
		err = measure(&trip, is_fed, copy->rounds, took, f);
	}
	free(took);
	return trip_close(&trip, err);
}

int bench_copy_fed(const struct bench_options *options, struct bench_copy *copy)
{
	struct means means = {
		.links = copy->gpus < BENCH_COPY_LINKS ? copy->gpus : BENCH_COPY_LINKS,
		.locked = true};
	int err;

	if (!copy->on_cuda) {
		means.settings[1] = "io.least=0";
		means.settings[2] = "io.piece=64KiB";
		means.settings[3] = "io.staging=2MiB";
	}
	err = run(options, &means, false, copy);
	return err ? err : run(options, &means, true, copy);
}
