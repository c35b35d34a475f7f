/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A result for people: what it needed first, then what it cost, repeat by repeat. The first
 * repeat starts with nothing and maps what the job needs; the later ones are the steady state
 * and should need no driver call.
 */
#include "tool/replay.h"

#include "tool/figure.h"

static void print_head(const struct replay_result *result, FILE *file)
{
	const struct trace *trace = result->trace;
	size_t allocations = trace->blocks;

	fprintf(file, "%s on %s\n", trace->name,
		result->backend[0] == 's' ? "the software device" : "CUDA");
	fprintf(file, "  %zu events (%zu allocations) on %zu stream%s, %s of job\n",
		trace->count, allocations, trace->streams, trace->streams == 1 ? "" : "s",
		figure_ns((double)trace->job_us * 1e3).text);
	if (result->options->threads > 1)
		fprintf(file, "  replayed by %u of %u threads\n", result->threads,
			result->options->threads);
	if (trace->noops)
		fprintf(file, "  %zu rows without effect\n", trace->noops);
	if (trace->skipped || trace->broken)
		fprintf(file, "  SKIPPED %zu of %zu rows%s\n", trace->skipped,
			trace->rows,
			trace->broken ? ", and the rest of a broken archive" : "");
}

static void print_memory(const struct replay_result *result, FILE *file)
{
	const struct trace *trace = result->trace;
	double live = (double)trace->peak_live;

	fprintf(file, "\n  %-14s %10s\n", "peak live",
		figure_bytes(trace->peak_live).text);
	fprintf(file, "  %-14s %10s  x%.4f of peak live\n", "peak reserved",
		figure_bytes(result->peak_reserved).text,
		(double)result->peak_reserved / live);
	if (result->peak_host)
		fprintf(file, "  %-14s %10s\n", "peak on host",
			figure_bytes(result->peak_host).text);
	if (result->budget != UINT64_MAX)
		fprintf(file, "  %-14s %10s  x%.4f\n", "budget",
			figure_bytes(result->budget).text, (double)result->budget / live);
}

/* Three tables of at most 80 columns: what a pass took, the calls of the driver, the times of single calls. */
static void print_passes(const struct replay_result *result, FILE *file)
{
	double job_ns = (double)result->trace->job_us * 1e3;

	fprintf(file,
		"\n  repeat      wall    driver  of job |     hits  misses called    oom  lock, max\n");
	for (size_t i = 0; i < result->repeats; i++) {
		const struct replay_repeat *repeat = &result->repeat[i];
		double driver_ns = (double)repeat->driver.now_ns;

		fprintf(file, "  %6zu %9s %9s", i + 1,
			figure_ns((double)repeat->wall_ns).text,
			figure_ns(driver_ns).text);
		if (job_ns > 0)
			fprintf(file, " %5.2f %% |", driver_ns / job_ns * 100);
		else
			fprintf(file, "       - |");
		fprintf(file, " %8llu %7llu %6llu %6llu  %9s\n",
			(unsigned long long)repeat->hits,
			(unsigned long long)repeat->misses,
			(unsigned long long)repeat->called,
			(unsigned long long)repeat->oom,
			figure_ns((double)repeat->hold_ns).text);
	}
	fprintf(file, "  driver: time in its calls%s; called: requests that called it\n",
		result->backend[0] == 's' ? ", as on an H200" : "");
}

static void print_driver(const struct replay_result *result, FILE *file)
{
	static const int calls[] = {GLAKE_CALL_CREATE, GLAKE_CALL_MAP,
		GLAKE_CALL_SET_ACCESS, GLAKE_CALL_UNMAP, GLAKE_CALL_RELEASE,
		GLAKE_CALL_EVENT_RECORD, GLAKE_CALL_EVENT_QUERY, GLAKE_CALL_STREAM_WAIT,
		GLAKE_CALL_SYNC};

	fprintf(file,
		"\n  driver  create     map  access   unmap release  record   query    wait    sync\n");
	for (size_t i = 0; i < result->repeats; i++) {
		fprintf(file, "  %6zu", i + 1);
		for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
			fprintf(file, " %7llu",
				(unsigned long long)result->repeat[i]
					.driver.calls[calls[k]]);
		fputc('\n', file);
	}
}

static void print_latency(const struct latency_figures *figures, FILE *file)
{
	fprintf(file, " | %7s", figure_ns(figures->mean).text);
	fprintf(file, " %7s", figure_ns((double)figures->p50).text);
	fprintf(file, " %7s", figure_ns((double)figures->p99).text);
	fprintf(file, " %7s", figure_ns((double)figures->max).text);
}

static void print_calls(const struct replay_result *result, FILE *file)
{
	static const char head[] = "    mean     p50     p99     max";

	fprintf(file, "\n  %6s | malloc %24s | free\n  repeat |%s |%s\n", "", "", head,
		head);
	for (size_t i = 0; i < result->repeats; i++) {
		fprintf(file, "  %6zu", i + 1);
		print_latency(&result->repeat[i].malloc_ns, file);
		print_latency(&result->repeat[i].free_ns, file);
		fputc('\n', file);
	}
	if (result->options->working_set)
		fprintf(file, "  between two calls the program used %s of its own\n",
			figure_bytes(result->options->working_set).text);
}

static void print_ladder(const struct replay_result *result, FILE *file)
{
	const char *before = "\n  when memory was short:";

	for (int i = 0; i < GLAKE_RUNG_COUNT; i++) {
		if (!result->rungs[i])
			continue;
		fprintf(file, "%s %s %llu", before, glake_rung_name(i),
			(unsigned long long)result->rungs[i]);
		before = ",";
	}
	if (before[0] == ',')
		fputc('\n', file);
}

static void print_pressure(const struct replay_result *result, FILE *file)
{
	const struct replay_squeeze *smallest = NULL;

	fprintf(file, "\n  budget        bytes       wall    driver    oom\n");
	for (size_t i = 0; i < result->squeezes; i++) {
		const struct replay_squeeze *step = &result->squeeze[i];

		fprintf(file, "  x%.3f    %9s", step->ratio,
			figure_bytes(step->budget).text);
		fprintf(file, "  %9s", figure_ns((double)step->repeat.wall_ns).text);
		fprintf(file, " %9s %6llu\n",
			figure_ns((double)step->repeat.driver.now_ns).text,
			(unsigned long long)step->repeat.oom);
		if (!step->repeat.failed)
			smallest = step;
	}
	if (smallest)
		fprintf(file, "  smallest budget that completed: x%.3f of peak live\n",
			smallest->ratio);
}

void replay_print_report(const struct replay_result *result, FILE *file)
{
	uint64_t failed = 0;

	print_head(result, file);
	print_memory(result, file);
	print_passes(result, file);
	print_driver(result, file);
	print_calls(result, file);
	print_ladder(result, file);
	if (result->options->pressure)
		print_pressure(result, file);
	for (size_t i = 0; i < result->repeats; i++)
		failed += result->repeat[i].failed;
	if (!result->ok)
		fprintf(file, "\n  FAILED: %s (%llu requests not served)\n",
			result->failure, (unsigned long long)failed);
	fputc('\n', file);
}
