/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One board of figures. The process that writes it is trusted in nothing: its size cannot change,
 * or it is not read, what it says is copied before it is looked at, and what does not fit together
 * is no board.
 */
#include "tool/board.h"

#include "base/atomic.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <glake/context.h>
#include <glake/figures.h>

#define SIZE_MAX_BYTES ((uint64_t)64 << 20) /* as the library has it, lib/watch/board.h */
#define WALK_MAX       (1u << 22)	    /* GPUs that are passed by, of all figures */

/* A copy in which nothing has changed is tried for so often, so long and so many bytes. */
#define TRIES	1000
#define TRY_NS	INT64_C(50000000)
#define TRY_MAX SIZE_MAX_BYTES

#define GPUS_MAX  1024
#define WORD_MAX  96
#define HISTOGRAM (3 + GLAKE_HISTOGRAM_BUCKETS)

/* Where a part lies, as it was when the board was opened. */
static bool is_part(const struct board *board, uint64_t at, uint64_t room)
{
	return at % 8 == 0 && room % 8 == 0 && at >= sizeof(*board->at) &&
		at <= board->size && room <= board->size - at;
}

static int check(const struct board *board)
{
	const struct glake_board *at = board->at;

	if (memcmp(at->magic, GLAKE_BOARD_MAGIC, GLAKE_BOARD_MAGIC_SIZE) ||
		at->version != GLAKE_BOARD_VERSION || at->header_size < sizeof(*at) ||
		at->size != board->size)
		return -EPROTO;
	return is_part(board, at->schema_at, at->schema_room) &&
			is_part(board, at->values_at, at->values_room)
		? 0
		: -EPROTO;
}

int board_open(int fd, struct board *ret_board)
{
	struct board board = {0};
	int seals = fcntl(fd, F_GET_SEALS), err;
	struct stat about;
	void *at;

	/* one that can shrink while it is read ends who reads it */
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &about) ||
		(uint64_t)about.st_size < sizeof(*board.at) ||
		(uint64_t)about.st_size > SIZE_MAX_BYTES)
		return -EPROTO;
	board.size = (size_t)about.st_size;
	at = mmap(NULL, board.size, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	board.at = at;
	err = check(&board);
	if (!err)
		board.copy = malloc(board.size);
	if (!err && !board.copy)
		err = -ENOMEM;
	if (err)
		board_close(&board);
	else
		*ret_board = board;
	return err;
}

void board_close(struct board *board)
{
	if (board->at)
		munmap((void *)(uintptr_t)board->at, board->size);
	free(board->copy);
	*board = (struct board){0};
}

/* So many words from a place on. */
static void copy_words(const struct board *board, uint64_t at, uint64_t count)
{
	const uint64_t *from = (const void *)((const char *)board->at + at);
	uint64_t *to = (void *)((char *)board->copy + at);

	for (uint64_t i = 0; i < count; i++)
		to[i] = glk_peek_acquire(&from[i]); /* pairs with: the writer's release */
}

/* False: it is being written. What its numbers are is looked at later; the bytes of all tries. */
static bool copy_once(const struct board *board, uint64_t *bytes)
{
	const struct glake_board *at = board->at, *copy = board->copy;
	uint64_t before =
		glk_peek_acquire(&at->sequence); /* pairs with: the writer's release */
	uint64_t schema, values;

	if (before & 1)
		return false;
	copy_words(board, 0, sizeof(*at) / 8);
	schema = (copy->schema_size + 7) / 8;
	values = copy->values;
	if (is_part(board, copy->schema_at, copy->schema_room) &&
		is_part(board, copy->values_at, copy->values_room)) {
		schema = schema < copy->schema_room / 8 ? schema : copy->schema_room / 8;
		values = values < copy->values_room / 8 ? values : copy->values_room / 8;
		copy_words(board, copy->schema_at, schema);
		copy_words(board, copy->values_at, values);
		*bytes += 8 * (schema + values);
	}
	return glk_peek_relaxed(&at->sequence) == before;
}

/* What is read of a copy. */
struct reading {
	const char *at, *end; /* of the schema */
	const uint64_t *value, *last;
	struct json_object *contexts;
	struct json_object *context[GLAKE_CONTEXT_MAX];
	unsigned number[GLAKE_CONTEXT_MAX];
	size_t count;
	unsigned walked;
	/* What the figure before went into: those of a GPU come together. */
	struct json_object *last_gpu;
	unsigned last_context;
	long last_device;
};

struct line {
	char word[9][WORD_MAX];
	unsigned words;
};

/* The next line in words; false: there is none, or none that is right. */
static bool take_line(struct reading *r, struct line *line)
{
	size_t length = 0;

	line->words = 0;
	while (r->at < r->end && *r->at == '\n')
		r->at++;
	for (; r->at < r->end && *r->at != '\n'; r->at++) {
		if (*r->at == ' ') {
			line->word[line->words++][length] = '\0';
			length = 0;
			if (line->words == 9)
				return false;
		} else if (*r->at < ' ' || *r->at > '~' || length + 1 == WORD_MAX) {
			return false;
		} else {
			line->word[line->words][length++] = *r->at;
		}
	}
	if (r->at == r->end)
		return false;
	line->word[line->words++][length] = '\0';
	return true;
}

static bool take_context(struct reading *r, const struct line *line)
{
	struct json_object *context;

	if (line->words != 3 || r->count == GLAKE_CONTEXT_MAX)
		return false;
	context = json_object_new_object();
	r->number[r->count] = (unsigned)strtoul(line->word[1], NULL, 10);
	r->context[r->count] = context;
	json_object_object_add(
		context, "context", json_object_new_int64(r->number[r->count++]));
	json_object_object_add(context, "driver", json_object_new_string(line->word[2]));
	json_object_object_add(context, "gpus", json_object_new_array());
	json_object_array_add(r->contexts, context);
	return true;
}

static struct json_object *remember(
	struct reading *r, struct json_object *gpu, unsigned context, long device)
{
	r->last_gpu = gpu;
	r->last_context = context;
	r->last_device = device;
	return gpu;
}

/* What the figures of a GPU go into, or with -1 those of the context. */
static struct json_object *place_of(
	struct reading *r, const char *context, const char *gpu)
{
	unsigned number = (unsigned)strtoul(context, NULL, 10);
	long device = strtol(gpu, NULL, 10);
	struct json_object *gpus, *one;
	size_t i = 0, count;

	if (r->last_gpu && number == r->last_context && device == r->last_device)
		return r->last_gpu;
	while (i < r->count && r->number[i] != number)
		i++;
	if (i == r->count || device < -1 || device > INT32_MAX)
		return NULL;
	if (device < 0)
		return r->context[i];
	gpus = process_array(r->context[i], "gpus");
	count = json_object_array_length(gpus);
	for (i = count; i--;) {
		one = json_object_array_get_idx(gpus, i);
		if (process_number(one, "gpu") == (uint64_t)device)
			return remember(r, one, number, device);
		if (++r->walked == WALK_MAX)
			return NULL;
	}
	if (count == GPUS_MAX)
		return NULL;
	one = json_object_new_object();
	json_object_object_add(one, "gpu", json_object_new_int64(device));
	json_object_array_add(gpus, one);
	return remember(r, one, number, device);
}

/* As the library writes it, lib/watch/figures_text.c: buckets that have none are left out. */
static struct json_object *times_of(const uint64_t *words)
{
	struct json_object *times = json_object_new_object();
	struct json_object *below = json_object_new_object();
	char bound[24];

	json_object_object_add(times, "count", json_object_new_uint64(words[0]));
	json_object_object_add(times, "sum_ns", json_object_new_uint64(words[1]));
	json_object_object_add(times, "longest_ns", json_object_new_uint64(words[2]));
	for (unsigned i = 0; i < GLAKE_HISTOGRAM_BUCKETS; i++) {
		if (!words[3 + i])
			continue;
		snprintf(bound, sizeof(bound), "%llu", 128ULL << i);
		json_object_object_add(below,
			i + 1 < GLAKE_HISTOGRAM_BUCKETS ? bound : "longer",
			json_object_new_uint64(words[3 + i]));
	}
	json_object_object_add(times, "below_ns", below);
	return times;
}

static struct json_object *value_of(
	const uint64_t *words, unsigned long unit, unsigned long kind)
{
	char text[32];

	if (kind == GLAKE_FIGURE_HISTOGRAM)
		return times_of(words);
	if (*words == UINT64_MAX)
		return NULL;
	if (unit != GLAKE_FIGURE_RATIO)
		return json_object_new_uint64(*words);
	snprintf(text, sizeof(text), "%.15g", (double)*words / 1e6);
	return json_object_new_double_s((double)*words / 1e6, text);
}

/* Those that the tree has itself are no figures. */
static bool is_figure(const char *name)
{
	return *name && strcmp(name, "gpus") && strcmp(name, "gpu") &&
		strcmp(name, "context") && strcmp(name, "driver");
}

static bool take_figure(struct reading *r, const struct line *line)
{
	unsigned long unit, kind, words;
	struct json_object *place, *all;
	const char *name = line->word[6];

	if (line->words != 7 && line->words != 9)
		return false;
	unit = strtoul(line->word[3], NULL, 10);
	kind = strtoul(line->word[4], NULL, 10);
	words = strtoul(line->word[5], NULL, 10);
	place = place_of(r, line->word[1], line->word[2]);
	if (!place || !is_figure(name) ||
		words != (kind == GLAKE_FIGURE_HISTOGRAM ? HISTOGRAM : 1) ||
		words > (size_t)(r->last - r->value))
		return false;
	if (line->words == 9) {
		if (!json_object_object_get_ex(place, name, &all)) {
			all = json_object_new_object();
			json_object_object_add(place, name, all);
		}
		if (json_object_get_type(all) != json_type_object)
			return false;
		place = all;
		name = line->word[8];
	}
	json_object_object_add(place, name, value_of(r->value, unit, kind));
	r->value += words;
	return true;
}

/* All figures of the copy; false: they do not fit together. */
static bool take_all(struct reading *r)
{
	struct line line;

	while (r->at < r->end) {
		if (!take_line(r, &line))
			return r->at == r->end && !line.words;
		if (!strcmp(line.word[0], "context") ? !take_context(r, &line)
				: !strcmp(line.word[0], "figure") ? !take_figure(r, &line)
								  : true)
			return false;
	}
	return true;
}

/* False: it is being written all the time. */
static bool copy_whole(const struct board *board)
{
	int64_t until = glk_clock_ns() + TRY_NS;
	uint64_t bytes = 0;

	for (int i = 0; i < TRIES && bytes <= TRY_MAX; i++) {
		if (copy_once(board, &bytes))
			return true;
		if (glk_clock_ns() > until)
			return false;
		sched_yield(); /* who writes it may wait for this processor */
	}
	return false;
}

int board_read(struct board *board, struct json_object **ret_stats)
{
	const struct glake_board *copy = board->copy;
	struct json_object *stats;
	struct reading r = {0};

	if (!copy_whole(board))
		return -EAGAIN;
	if (!is_part(board, copy->schema_at, copy->schema_room) ||
		!is_part(board, copy->values_at, copy->values_room) ||
		copy->schema_size > copy->schema_room ||
		copy->values > copy->values_room / 8)
		return -EPROTO;
	board->state = copy->state;
	board->writes = copy->writes;
	board->written_ns = copy->written_ns;
	board->interval_ns = copy->interval_ns;
	r.at = (const char *)copy + copy->schema_at;
	r.end = r.at + copy->schema_size;
	r.value = (const void *)((const char *)copy + copy->values_at);
	r.last = r.value + copy->values;
	r.contexts = json_object_new_array();
	stats = json_object_new_object();
	json_object_object_add(stats, "contexts", r.contexts);
	if (!take_all(&r) || r.value != r.last) {
		json_object_put(stats);
		return -EPROTO;
	}
	*ret_stats = stats;
	return 0;
}
