/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A look at all processes. Rates are what has happened since the last look by the clock of this
 * process; one that was not there then, or whose counts went back since a context was closed, has
 * none until the next.
 */
#include "base/clock.h"
#include "base/parse.h"
#include "tool/process.h"
#include "tool/tool.h"
#include "tool/top.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct top_row *add_row(
	struct top_sample *sample, const struct process *process, int gpu)
{
	size_t room = sample->room ? 2 * sample->room : 16;
	struct top_row *row;

	for (size_t i = sample->count; i-- && sample->rows[i].pid == process->pid;)
		if (sample->rows[i].gpu == gpu)
			return &sample->rows[i];
	if (sample->count == sample->room) {
		row = realloc(sample->rows, room * sizeof(*row));
		if (!row)
			return NULL;
		sample->rows = row;
		sample->room = room;
	}
	row = &sample->rows[sample->count++];
	*row = (struct top_row){
		.pid = process->pid, .gpu = gpu, .ns = sample->ns, .err = process->err};
	memcpy(row->program, process->program, sizeof(row->program));
	memcpy(row->why, process->why, sizeof(row->why));
	return row;
}

static void add_rungs(struct top_row *row, struct json_object *gpu)
{
	struct json_object *rungs;
	size_t i;

	if (!json_object_object_get_ex(gpu, "rungs", &rungs) ||
		json_object_get_type(rungs) != json_type_object)
		return;
	json_object_object_foreach(rungs, name, value)
	{
		char word[TOP_RUNG_NAME];

		(void)value;
		snprintf(word, sizeof(word), "%s", name);
		for (char *c = word; *c; c++)
			if (*c <= ' ' || *c > '~')
				*c = '?';
		for (i = 0; i < row->rungs && strcmp(row->rung[i].name, word); i++)
			;
		if (i == TOP_RUNGS)
			return;
		if (i == row->rungs) {
			row->rungs++;
			memcpy(row->rung[i].name, word, sizeof(word));
		}
		row->rung[i].count += process_number(rungs, name);
	}
}

static int add_gpu(
	struct top_sample *sample, const struct process *process, struct json_object *gpu)
{
	struct top_row *row =
		add_row(sample, process, (int)(process_number(gpu, "gpu") & 0xffff));

	if (!row)
		return -ENOMEM;
	row->live += process_number(gpu, "live_bytes");
	row->reserved += process_number(gpu, "reserved_bytes");
	row->away += process_number(gpu, "away_bytes");
	row->placed += process_number(gpu, "placed_bytes");
	row->host_held += process_number(gpu, "host_held_bytes");
	row->allocs += process_number(gpu, "allocs");
	row->hits += process_number(gpu, "hits");
	row->misses += process_number(gpu, "misses");
	add_rungs(row, gpu);
	return 0;
}

static int add_process(struct top_sample *sample, const struct process *process)
{
	struct json_object *contexts = process_array(process->stats, "contexts");
	size_t count = contexts ? json_object_array_length(contexts) : 0, added = 0;

	for (size_t c = 0; c < count; c++) {
		struct json_object *gpus =
			process_array(json_object_array_get_idx(contexts, c), "gpus");
		size_t used = gpus ? json_object_array_length(gpus) : 0;

		for (size_t g = 0; g < used && g < 1024; g++, added++)
			if (add_gpu(sample, process, json_object_array_get_idx(gpus, g)))
				return -ENOMEM;
	}
	return added || add_row(sample, process, -1) ? 0 : -ENOMEM;
}

static bool is_wanted(const struct top_wanted *wanted, const struct process *process)
{
	int64_t number;

	for (char **name = wanted->names; *name; name++)
		if (!strcmp(*name, process->program) ||
			(!glk_parse_int(*name, &number) && number == process->pid))
			return true;
	return !*wanted->names;
}

static const struct top_row *find(const struct top_sample *sample, pid_t pid, int gpu)
{
	for (size_t i = 0; i < sample->count; i++)
		if (sample->rows[i].pid == pid &&
			(gpu == -2 || sample->rows[i].gpu == gpu))
			return &sample->rows[i];
	return NULL;
}

static void compare_row(struct top_row *row, const struct top_row *before)
{
	double seconds = before ? ((double)row->ns - (double)before->ns) / 1e9 : 0;
	uint64_t asked;

	if (row->gpu < 0 || !before || before->err || row->err ||
		strcmp(row->program, before->program) || seconds <= 0 ||
		row->allocs < before->allocs || row->hits < before->hits ||
		row->misses < before->misses)
		return;
	row->known = true;
	row->allocs_s = (double)(row->allocs - before->allocs) / seconds;
	row->misses_s = (double)(row->misses - before->misses) / seconds;
	asked = row->hits - before->hits + row->misses - before->misses;
	row->hit = asked ? (double)(row->hits - before->hits) / (double)asked : -1;
	for (size_t i = 0; i < row->rungs && i < before->rungs; i++)
		if (row->rung[i].count > before->rung[i].count)
			row->rung[i].since = row->rung[i].count - before->rung[i].count;
}

/* Who has gone: the first, and how many more. */
static void compare(struct top_sample *sample, const struct top_sample *before)
{
	const struct top_row *gone = NULL;
	int more = -1;

	for (size_t i = 0; i < sample->count; i++)
		compare_row(&sample->rows[i],
			find(before, sample->rows[i].pid, sample->rows[i].gpu));
	for (size_t i = 0; i < before->count; i++) {
		const struct top_row *row = &before->rows[i];

		if (find(before, row->pid, -2) != row || find(sample, row->pid, -2))
			continue;
		gone = gone ? gone : row;
		more++;
	}
	if (!gone)
		return;
	if (more)
		snprintf(sample->ended, sizeof(sample->ended),
			"process %d (%s) and %d more have ended, or closed their sockets",
			gone->pid, gone->program, more);
	else
		snprintf(sample->ended, sizeof(sample->ended),
			"process %d (%s) has ended, or closed its socket", gone->pid,
			gone->program);
}

int top_sample_take(int room, const struct top_wanted *wanted, struct top_sample *sample)
{
	struct top_sample now = {0};
	struct process *list = NULL;
	int count = process_look(room, "stats", &list), err = 0;

	if (count < 0)
		return count;
	now.ns = glk_clock_ns();
	for (int i = 0; i < count && !err; i++) {
		if (!is_wanted(wanted, &list[i]))
			continue;
		now.processes++;
		err = add_process(&now, &list[i]);
	}
	process_list_free(list, count);
	if (err) {
		free(now.rows);
		glk_tool_say("no memory for %d processes", count);
		return err;
	}
	if (sample->ns)
		compare(&now, sample);
	free(sample->rows);
	*sample = now;
	top_sample_sort(sample, wanted->sort);
	return 0;
}

static enum top_sort sort_by;

static double value_of(const struct top_row *row)
{
	switch (sort_by) {
	case TOP_SORT_LIVE:
		return (double)row->live;
	case TOP_SORT_RATIO:
		return row->live ? (double)row->reserved / (double)row->live : 0;
	case TOP_SORT_ALLOCS:
		return row->allocs_s;
	case TOP_SORT_MISSES:
		return row->misses_s;
	case TOP_SORT_PID:
		return 0;
	default:
		return (double)row->reserved;
	}
}

static int by_value(const void *a, const void *b)
{
	const struct top_row *one = a, *other = b;
	double first = value_of(one), second = value_of(other);

	if (first > second || first < second)
		return first > second ? -1 : 1;
	if (one->pid != other->pid)
		return one->pid < other->pid ? -1 : 1;
	return one->gpu < other->gpu ? -1 : one->gpu > other->gpu;
}

void top_sample_sort(struct top_sample *sample, enum top_sort sort)
{
	sort_by = sort;
	if (sample->count)
		qsort(sample->rows, sample->count, sizeof(*sample->rows), by_value);
}

void top_sample_fini(struct top_sample *sample)
{
	free(sample->rows);
	*sample = (struct top_sample){0};
}
