/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tree of figures: that nothing kept is left out, and what each form of it looks like. */
#include "watch/figures.h"

#include "base/json.h"

#include <glake/glake.h>

#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>

#define WORDS (sizeof(struct glake_stats) / sizeof(uint64_t))

static struct glk_figures_gpu gpus[2];
static const struct glk_figures_node nodes[2] = {
	{.number = 0, .name = "0", .held = 11}, {.number = 3, .name = "3", .held = 12}};
static struct glk_figures_context context = {.number = 7,
	.driver = "soft",
	.gpus = gpus,
	.count = 1,
	.nodes = nodes,
	.node_count = 2};
static const struct glk_figures figures = {.contexts = &context, .count = 1};

static void fill_more(void)
{
	struct glk_survey *survey = &gpus[0].survey;
	struct glake_histogram *times = &gpus[0].times[GLK_FIGURES_REQUEST];

	*survey = (struct glk_survey){.limbo = 1, .ready_hole = 2, .streams = 2};
	survey->stream[0] = (struct glk_survey_stream){
		.name = "0x5", .given = 21, .blocks = 22, .quick = 23, .limbo = 24};
	survey->stream[1] = (struct glk_survey_stream){.name = "rest", .given = 25};
	gpus[0].derived = (struct glk_figures_derived){.reserved_over_live = 1500000,
		.hits_over_allocs = UINT64_MAX,
		.held = {1, 0, 2},
		.live = {3, 0, 4}};
	*times = (struct glake_histogram){
		.count = 9, .sum = 1234567890123, .longest = 1234000000000};
	times->at[0] = 2;
	times->at[1] = 3;
	times->at[2] = 3;
	times->at[GLAKE_HISTOGRAM_BUCKETS - 1] = 1;
	context.times[GLAKE_CALL_MAP].count = 1;
	context.times[GLAKE_CALL_MAP].at[3] = 1;
}

/* A value for each word that tells which it is. */
static void number_words(void)
{
	for (size_t i = 0; i < WORDS; i++) {
		uint64_t value = 1000 + i;

		memcpy((char *)&gpus[0].stats + i * sizeof(value), &value, sizeof(value));
	}
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		context.calls.calls[i] = (uint64_t)i + 1;
		context.calls.ns[i] = 1000000000 * (int64_t)i + 5;
	}
}

static int seen[WORDS], bad, total;

static int see(const struct glk_figures_context *of, const struct glake_figure *figure,
	void *arg)
{
	size_t length = strlen(figure->name);

	total++;
	bad += of != &context || !*figure->help ||
		figure->help[strlen(figure->help) - 1] != '.' ||
		!figure->label != !figure->of || figure->sz != sizeof(*figure);
	bad += (figure->unit == GLAKE_FIGURE_BYTES) !=
		(length > 6 && !strcmp(figure->name + length - 6, "_bytes"));
	bad += (figure->unit == GLAKE_FIGURE_NS) !=
		(length > 3 && !strcmp(figure->name + length - 3, "_ns"));
	bad += (figure->unit == GLAKE_FIGURE_RATIO) !=
		(length > 6 && !strcmp(figure->name + length - 6, "_ratio"));
	bad += (figure->kind == GLAKE_FIGURE_HISTOGRAM) != (figure->times != NULL) ||
		(figure->times && figure->times->count != figure->value);
	if (figure->device == 0 && figure->value >= 1000 && figure->value < 1000 + WORDS)
		seen[figure->value - 1000]++;
	return arg && !strcmp(figure->name, arg) ? (int)figure->value : 0;
}

static void test_all(void)
{
	char wanted[] = "live_bytes";
	int wrong = 0;

	is_int(glk_figures_walk(&figures, see, NULL), 0, "a walk to its end");
	for (size_t i = 1; i < WORDS; i++)
		wrong += seen[i] != 1;
	is_int(seen[0], 0, "the size of the structure is no figure");
	is_int(wrong, 0, "each other word of struct glake_stats is one, and one only");
	/* 2 of the survey, 2 ratios, 2 of 3 tiers, 4 of 2 streams, 5 of links, 5 of 2 nodes */
	is_int(total,
		(int)WORDS - 1 + 2 + 2 + 6 + 8 + 5 + GLK_FIGURES_TIMES + 10 +
			3 * GLAKE_CALL_COUNT,
		"and what is walked for, follows, and is of the context");
	is_int(bad, 0, "each has a sentence, and its unit in its name");
	is_int(glk_figures_walk(&figures, see, wanted), 1001, "a function can end it");
}

/* Names that were given out stay, and new ones are written down. */
#define NAMES_MAX 200

static char names[NAMES_MAX][160];
static size_t name_count;

static int name_one(const struct glk_figures_context *of,
	const struct glake_figure *figure, void *arg)
{
	static const char *const kinds[] = {"gauge", "counter", "histogram"};
	static const char *const units[] = {"number", "bytes", "ns", "ratio"};
	char name[160];

	snprintf(name, sizeof(name), "%s %s %s %s %s\n", figure->name,
		kinds[figure->kind], units[figure->unit],
		figure->device < 0 ? "context" : "gpu",
		figure->label ? figure->label : "-");
	if (name_count && !strcmp(names[name_count - 1], name))
		return 0;
	if (name_count < NAMES_MAX)
		strcpy(names[name_count++], name);
	return 0;
}

static void test_names(void)
{
	FILE *file = fopen(GLK_DATA "/figures.txt", "r");
	size_t found = 0, lines = 0;
	char line[160];

	if (!file)
		tap_bail("t/data/figures.txt");
	glk_figures_walk(&figures, name_one, NULL);
	while (fgets(line, sizeof(line), file)) {
		size_t i = 0;

		if (*line == '#')
			continue;
		lines++;
		while (i < name_count && strcmp(names[i], line))
			i++;
		found += i < name_count;
		if (i == name_count)
			tap_note("%.*s is gone, or is another thing",
				(int)strcspn(line, "\n"), line);
	}
	fclose(file);
	ok(found == lines && lines > 70, "the %zu names of t/data/figures.txt are there",
		lines);
	is_int(name_count, lines,
		"and no others: `lib/man/figures list` in a build folder writes them");
}

static char *print(void (*fn)(FILE *))
{
	static char text[1 << 17];
	FILE *file = fmemopen(text, sizeof(text), "w");

	fn(file);
	fclose(file);
	return text;
}

static void print_brief(FILE *file)
{
	struct glk_figures brief = figures;

	glk_figures_fit(&brief, GLK_FIGURES_CONTEXT_TEXT + GLK_FIGURES_GPU_TEXT - 1);
	glk_figures_prometheus(&brief, file);
}

static void print_json(FILE *file)
{
	struct glk_json json;

	glk_json_init(&json, file, 0);
	glk_json_object(&json);
	glk_figures_json(&figures, &json);
	glk_json_end(&json);
	is_int(glk_json_fini(&json), 0, "JSON is made rightly");
}

static void print_prometheus(FILE *file)
{
	glk_figures_prometheus(&figures, file);
}

static void test_texts(void)
{
	const char *text = print(print_json);

	gpus[0].stats.budget = UINT64_MAX;
	text = print(print_json);
	has_str(text,
		"{\"contexts\":[{\"context\":7,\"driver\":\"soft\",\"gpus\":[{\"gpu\":0,"
		"\"live_bytes\":1001,\"given_bytes\":1002,",
		"GPUs in their context");
	has_str(text, "\"budget_bytes\":null,", "no budget is null");
	has_str(text, "\"rungs\":{\"limbo\":1021,\"recut\":1022,",
		"rungs by their names");
	has_str(text, "}],\"driver_calls\":{\"reserve\":1,", "calls of the context");
	has_str(text, "\"driver_call_time_ns\":{\"reserve\":5,", "and their time");
	has_str(text,
		"\"request_duration_ns\":{\"count\":9,\"sum_ns\":1234567890123,"
		"\"longest_ns\":1234000000000,\"below_ns\":{\"128\":2,\"256\":3,"
		"\"512\":3,\"longer\":1}},",
		"a histogram");
	has_str(text,
		"\"driver_call_duration_ns\":{\"reserve\":{\"count\":0,\"sum_ns\":0,"
		"\"longest_ns\":0,\"below_ns\":{}},",
		"several");
	has_str(text, "\"stream_given_bytes\":{\"0x5\":21,\"rest\":25},", "streams");
	has_str(text, "\"node_held_bytes\":{\"0\":11,\"3\":12},", "nodes");
	has_str(text, "\"tier_held_bytes\":{\"gpu\":1,\"peer\":0,\"host\":2},", "tiers");
	has_str(text, "\"reserved_over_live_ratio\":1.5,\"hit_ratio\":null,",
		"ratios, and one of nothing");
	text = print(print_prometheus);
	has_str(text,
		"# TYPE glake_request_duration_seconds histogram\n"
		"glake_request_duration_seconds_bucket{context=\"7\",gpu=\"0\",le=\"2.56e-07\"} "
		"5\n"
		"glake_request_duration_seconds_bucket{context=\"7\",gpu=\"0\",le=\"1.024e-06\"} "
		"8\n",
		"buckets of a histogram");
	has_str(text,
		"le=\"17.179869184\"} 8\n"
		"glake_request_duration_seconds_bucket{context=\"7\",gpu=\"0\",le=\"+Inf\"} 9\n"
		"glake_request_duration_seconds_sum{context=\"7\",gpu=\"0\"} 1234.567890123\n"
		"glake_request_duration_seconds_count{context=\"7\",gpu=\"0\"} 9\n",
		"its end");
	has_str(text, "glake_hit_ratio{context=\"7\",gpu=\"0\"} NaN\n", "no ratio");
	has_str(text,
		"glake_reserved_over_live_ratio{context=\"7\",gpu=\"0\"} 1.500000\n",
		"a ratio");
	text = print(print_brief);
	ok(!strstr(text, "_duration_") && !strstr(text, "stream=") &&
			strstr(text, "glake_live_bytes{"),
		"where there is no room streams and histograms are left out");
	text = print(print_prometheus);
	has_str(text,
		"# HELP glake_live_bytes Asked for by live blocks.\n"
		"# TYPE glake_live_bytes gauge\n"
		"glake_live_bytes{context=\"7\",gpu=\"0\"} 1001\n",
		"a gauge");
	has_str(text,
		"# TYPE glake_hits_total counter\nglake_hits_total{context=\"7\",gpu=\"0\"} ",
		"a counter");
	has_str(text, "glake_budget_bytes{context=\"7\",gpu=\"0\"} +Inf\n", "no budget");
	has_str(text, "glake_rungs_total{context=\"7\",gpu=\"0\",rung=\"recut\"} 1022\n",
		"a rung");
	has_str(text,
		"glake_driver_call_time_seconds_total{context=\"7\",call=\"map\"} "
		"3.000000005\n",
		"a time");
	has_str(text, "glake_info{context=\"7\",driver=\"soft\",version=\"",
		"the version");
}

static int count_of(const struct glake_figure *figure, void *arg)
{
	uint64_t *values = arg;

	if (!strcmp(figure->name, "live_bytes"))
		values[figure->device] = figure->value;
	values[2]++;
	return 0;
}

static int stop(const struct glake_figure *figure, void *arg)
{
	return 42;
}

/* Sums over the nodes of the host. */
struct nodes {
	uint64_t held, store, store_used, placed, spare, count;
};

static int add_node(const struct glake_figure *figure, void *arg)
{
	struct nodes *n = arg;

	if (!figure->label || strcmp(figure->label, "node") != 0)
		return 0;
	n->held += strcmp(figure->name, "node_held_bytes") ? 0 : figure->value;
	n->store += strcmp(figure->name, "node_store_bytes") ? 0 : figure->value;
	n->store_used +=
		strcmp(figure->name, "node_store_used_bytes") ? 0 : figure->value;
	n->placed += strcmp(figure->name, "node_placed_bytes") ? 0 : figure->value;
	n->spare += strcmp(figure->name, "node_spare_bytes") ? 0 : figure->value;
	n->count++;
	return 0;
}

/* What both GPUs have on the host, by its nodes; each keeps five figures. */
static void test_nodes(void)
{
	static const char *const settings[] = {"soft.gpus=2", "soft.host_memory=1GiB",
		"tier.host=512MiB", "tier.place=host", "pool.budget=64MiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.settings = settings,
		.no_conf_file = 1};
	struct nodes sum = {0}, all = {0};
	void *ptr[2][3];
	struct glake *ctx;

	if (glake_open(&options, &ctx))
		tap_bail("glake_open");
	for (int gpu = 0; gpu < 2; gpu++) {
		struct glake_stats s = {.sz = sizeof(s)};

		for (int i = 0; i < 3; i++) {
			size_t size = (size_t)(12 + 8 * i + 24 * gpu) << 20;

			if (glake_alloc(ctx, gpu, size, NULL, 0, &ptr[gpu][i]))
				tap_bail("glake_alloc");
			if (!i && glake_spill(ctx, ptr[gpu][i], NULL))
				tap_bail("glake_spill");
		}
		if (glake_stats_get(ctx, gpu, &s))
			tap_bail("glake_stats_get");
		all.held += s.host_held;
		all.store += s.store;
		all.store_used += s.store_used;
		all.placed += s.placed;
	}
	all.spare = all.held - all.store_used - all.placed;
	is_int(glake_figures(ctx, add_node, &sum), 0,
		"of two GPUs with memory of the host");
	ok(sum.count && sum.count % 5 == 0, "nodes are told of");
	ok(all.store_used && all.placed, "  some is away, some in place");
	is_int((int64_t)sum.held, (int64_t)all.held, "  what is held");
	is_int((int64_t)sum.store, (int64_t)all.store, "  for contents that are away");
	is_int((int64_t)sum.store_used, (int64_t)all.store_used,
		"  what they take of it");
	is_int((int64_t)sum.placed, (int64_t)all.placed, "  what lies in place");
	is_int((int64_t)sum.spare, (int64_t)all.spare, "  and what nothing uses");
	for (int i = 0; i < 6; i++)
		glake_free(ctx, ptr[i / 3][i % 3], NULL);
	sound_close(ctx, NULL);
}

static void test_public(void)
{
	static const char *const settings[] = {"soft.gpus=2", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.settings = settings,
		.no_conf_file = 1};
	uint64_t values[3] = {77, 77, 0};
	static char text[1 << 17], exact[1 << 17];
	size_t length, again = 0;
	struct glake *ctx;
	int err = 0;
	void *ptr;

	if (glake_open(&options, &ctx))
		tap_bail("glake_open");
	is_int(glake_figures(ctx, count_of, values), 0,
		"of a context that nobody has used");
	is_int(values[2], 3 * GLAKE_CALL_COUNT, "the calls of the driver alone");
	if (glake_alloc(ctx, 1, 12345, NULL, 0, &ptr))
		tap_bail("glake_alloc");
	is_int(glake_figures(ctx, count_of, values), 0, "with a block on the second GPU");
	is_int(values[1], 12345, "its bytes");
	is_int(values[0], 77, "none of the first");
	is_int(glake_figures(ctx, stop, NULL), 42,
		"what the function returns is returned");
	for (int format = GLAKE_FIGURES_JSON; format <= GLAKE_FIGURES_PROMETHEUS;
		format++) {
		is_int(glake_figures_text(ctx, format, NULL, 0, &length), 0,
			"the length");
		ok(length < GLK_FIGURES_GPU_TEXT + GLK_FIGURES_CONTEXT_TEXT,
			"%zu bytes of text for a GPU and its context", length);
		is_int(glake_figures_text(ctx, format, text, length / 2, &again), -ENOSPC,
			"no room for its end");
		/* turns of the lock are among the figures, so that asking may make them longer */
		for (int i = 0; i < 50; i++) {
			glake_figures_text(ctx, format, NULL, 0, &length);
			err = glake_figures_text(ctx, format, exact, length + 1, &again);
			if (!err)
				break;
		}
		is_int(err, 0, "just enough room");
		ok(strlen(exact) == again && again <= length,
			"the text is as long as it is said");
		ok(again && exact[again - 1] == '\n' && exact[again - 2] != '\n',
			"it ends with its line");
	}
	has_str(text, "# TYPE glake_live_bytes gauge", "what is too long is cut");
	is_int(glake_figures_text(ctx, GLAKE_FIGURES_JSON, exact, sizeof(exact), NULL), 0,
		"the length need not be asked for");
	has_str(exact, "\"gpus\":[{\"gpu\":1,\"live_bytes\":12345,", "JSON");
	is_int(glake_figures(ctx, NULL, NULL), -EINVAL, "no function");
	is_int(glake_figures_text(ctx, 2, text, sizeof(text), NULL), -EINVAL,
		"no format");
	is_int(glake_figures_text(ctx, 0, NULL, 0, NULL), -EINVAL, "no place");
	glake_free(ctx, ptr, NULL);
	sound_close(ctx, NULL);
	is_int(glake_figures(ctx, stop, NULL), -ESTALE, "of a context that was closed");
	is_int(glake_figures_text(ctx, 0, NULL, 0, &length), -ESTALE, "and its text");
}

int main(void)
{
	tap_plan(66);
	number_words();
	fill_more();
	test_all();
	test_names();
	test_texts();
	test_nodes();
	test_public();
	return tap_done();
}
