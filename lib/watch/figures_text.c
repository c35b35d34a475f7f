/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tree of figures as text. JSON has it by context and GPU, and Prometheus by name, as its
 * format wants it, with the unit that its users expect: seconds.
 */
#include "watch/figures.h"

#include "base/json.h"

#include <glake/version.h>

#include <inttypes.h>
#include <string.h>

/* Of one GPU of one context, or with -1 of the context itself. */
struct part {
	struct glk_json *json;
	const char *open; /* the figure whose values are in an object that is open */
	int device;
};

static void end_open(struct part *part)
{
	if (part->open)
		glk_json_end(part->json);
	part->open = NULL;
}

/* The bound of a bucket: those in it took less. */
static uint64_t bound(unsigned bucket)
{
	return UINT64_C(128) << bucket;
}

/* Buckets that have none are left out, so that a few calls take little room. */
static void add_times(struct glk_json *json, const struct glake_histogram *times)
{
	char key[24];

	glk_json_object(json);
	glk_json_add_uint(json, "count", times->count);
	glk_json_add_uint(json, "sum_ns", times->sum);
	glk_json_add_uint(json, "longest_ns", times->longest);
	glk_json_key(json, "below_ns");
	glk_json_object(json);
	for (unsigned i = 0; i < GLAKE_HISTOGRAM_BUCKETS; i++) {
		snprintf(key, sizeof(key), "%" PRIu64, bound(i));
		if (times->at[i])
			glk_json_add_uint(json,
				i + 1 < GLAKE_HISTOGRAM_BUCKETS ? key : "longer",
				times->at[i]);
	}
	glk_json_end(json);
	glk_json_end(json);
}

static int add_json(const struct glk_figures_context *context,
	const struct glake_figure *figure, void *arg)
{
	struct part *part = arg;

	if (figure->device != part->device)
		return 0;
	if (part->open != (figure->label ? figure->name : NULL)) {
		end_open(part);
		if (figure->label) {
			glk_json_key(part->json, figure->name);
			glk_json_object(part->json);
			part->open = figure->name;
		}
	}
	glk_json_key(part->json, figure->label ? figure->of : figure->name);
	if (figure->times)
		add_times(part->json, figure->times);
	else if (figure->value == UINT64_MAX)
		glk_json_null(part->json); /* no budget */
	else if (figure->unit == GLAKE_FIGURE_RATIO)
		glk_json_double(part->json, (double)figure->value / 1e6);
	else
		glk_json_uint(part->json, figure->value);
	return 0;
}

static void add_part(const struct glk_figures *of,
	const struct glk_figures_context *context, int device, struct glk_json *json)
{
	const struct glk_figures one = {
		.contexts = context, .count = 1, .brief = of->brief};
	struct part part = {.json = json, .device = device};

	glk_figures_walk(&one, add_json, &part);
	end_open(&part);
}

void glk_figures_json(const struct glk_figures *figures, struct glk_json *json)
{
	glk_json_key(json, "contexts");
	glk_json_array(json);
	for (size_t c = 0; c < figures->count; c++) {
		const struct glk_figures_context *context = &figures->contexts[c];

		glk_json_object(json);
		glk_json_add_uint(json, "context", context->number);
		glk_json_add_text(json, "driver", context->driver);
		glk_json_key(json, "gpus");
		glk_json_array(json);
		for (size_t g = 0; g < context->count; g++) {
			glk_json_object(json);
			glk_json_add_int(json, "gpu", context->gpus[g].device);
			add_part(figures, context, context->gpus[g].device, json);
			glk_json_end(json);
		}
		glk_json_end(json);
		add_part(figures, context, -1, json);
		glk_json_end(json);
	}
	glk_json_end(json);
}

struct scrape {
	FILE *file;
	const char *name; /* of the figure before */
};

/* As "glake_hold_max_seconds", "glake_hits_total". */
static void metric(const struct glake_figure *figure, FILE *file)
{
	int length = (int)strlen(figure->name);

	if (figure->unit == GLAKE_FIGURE_NS)
		length -= (int)strlen("_ns");
	fprintf(file, "glake_%.*s%s%s", length, figure->name,
		figure->unit == GLAKE_FIGURE_NS ? "_seconds" : "",
		figure->kind == GLAKE_FIGURE_COUNTER ? "_total" : "");
}

static void begin_metric(const struct glake_figure *figure, FILE *file)
{
	static const char *const kinds[] = {"gauge", "counter", "histogram"};

	fputs("# HELP ", file);
	metric(figure, file);
	fprintf(file, " %s\n# TYPE ", figure->help);
	metric(figure, file);
	fprintf(file, " %s\n", kinds[figure->kind]);
}

static void begin_sample(const struct glk_figures_context *context,
	const struct glake_figure *figure, const char *end, FILE *file)
{
	metric(figure, file);
	fprintf(file, "%s{context=\"%u\"", end, context->number);
	if (figure->device >= 0)
		fprintf(file, ",gpu=\"%d\"", figure->device);
	if (figure->label)
		fprintf(file, ",%s=\"%s\"", figure->label, figure->of);
}

static void put_seconds(uint64_t ns, FILE *file)
{
	fprintf(file, "} %" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000, ns % 1000000000);
}

/* Every second bound, which is enough for a graph, and half as much to keep: 256 ns, 1.024 us, and on
 * by four to 17 s. */
static void add_buckets(const struct glk_figures_context *context,
	const struct glake_figure *figure, FILE *file)
{
	const struct glake_histogram *times = figure->times;
	uint64_t count = 0;

	for (unsigned i = 0; i + 1 < GLAKE_HISTOGRAM_BUCKETS; i++) {
		count += times->at[i];
		if (i % 2 == 0)
			continue;
		begin_sample(context, figure, "_bucket", file);
		fprintf(file, ",le=\"%.12g\"} %" PRIu64 "\n", (double)bound(i) / 1e9,
			count);
	}
	begin_sample(context, figure, "_bucket", file);
	fprintf(file, ",le=\"+Inf\"} %" PRIu64 "\n", times->count);
	begin_sample(context, figure, "_sum", file);
	put_seconds(times->sum, file);
	begin_sample(context, figure, "_count", file);
	fprintf(file, "} %" PRIu64 "\n", times->count);
}

static int add_sample(const struct glk_figures_context *context,
	const struct glake_figure *figure, void *arg)
{
	struct scrape *scrape = arg;
	FILE *file = scrape->file;

	if (scrape->name != figure->name)
		begin_metric(figure, file);
	scrape->name = figure->name;
	if (figure->times) {
		add_buckets(context, figure, file);
		return 0;
	}
	begin_sample(context, figure, "", file);
	if (figure->value == UINT64_MAX)
		fprintf(file, "} %s\n",
			figure->unit == GLAKE_FIGURE_RATIO ? "NaN" : "+Inf");
	else if (figure->unit == GLAKE_FIGURE_NS)
		put_seconds(figure->value, file);
	else if (figure->unit == GLAKE_FIGURE_RATIO)
		fprintf(file, "} %" PRIu64 ".%06" PRIu64 "\n", figure->value / 1000000,
			figure->value % 1000000);
	else
		fprintf(file, "} %" PRIu64 "\n", figure->value);
	return 0;
}

void glk_figures_prometheus(const struct glk_figures *figures, FILE *file)
{
	struct scrape scrape = {.file = file};

	fputs("# HELP glake_info The library in use; always 1.\n# TYPE glake_info gauge\n",
		file);
	for (size_t c = 0; c < figures->count; c++)
		fprintf(file,
			"glake_info{context=\"%u\",driver=\"%s\",version=\"%s\"} 1\n",
			figures->contexts[c].number, figures->contexts[c].driver,
			GLAKE_VERSION_STRING);
	glk_figures_walk(figures, add_sample, &scrape);
}
