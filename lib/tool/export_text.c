/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The texts of many processes as one, in the format that Prometheus scrapes: it wants all samples of
 * a metric in one place, under one head. What a process answers is trusted in nothing: a line that is
 * no sample of its metric, or brings a label of ours, is left out, and so is who has a metric as
 * another type than most.
 */
#include "base/parse.h"
#include "tool/export.h"
#include "tool/process.h"
#include "tool/tool.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glake/context.h>

#define FAMILIES_MAX 1024 /* metrics; the library has some 60 */
#define OF_ONE_MAX   256  /* that one process brings, so that it leaves room for others */
#define NAME_LENGTH  96

struct family {
	char name[NAME_LENGTH];
	const char *type;
	const struct process *last; /* of those who have samples of it, */
	int processes;		    /* who are so many */
	struct export_text head, samples;
};

struct merge {
	struct family *families;
	size_t count, added;	       /* of all, and by the process */
	const struct process *process; /* whose text is read */
	struct family *at;	       /* whose samples follow; NULL: none */
	const char *help;	       /* the line before; NULL: it was none */
	size_t help_length;
};

void export_add(struct export_text *text, const char *bytes, size_t length)
{
	size_t size = text->size ? text->size : 256;
	char *more;

	while (size < text->length + length + 1)
		size *= 2;
	if (size != text->size) {
		more = realloc(text->bytes, size);
		if (!more) {
			text->failed = true;
			return;
		}
		text->bytes = more;
		text->size = size;
	}
	memcpy(text->bytes + text->length, bytes, length);
	text->length += length;
	text->bytes[text->length] = '\0';
}

static void add(struct export_text *text, const char *word)
{
	export_add(text, word, strlen(word));
}

static size_t name_length(const char *text)
{
	size_t length = 0;

	while (islower((unsigned char)text[length]) || text[length] == '_' ||
		(length && isdigit((unsigned char)text[length])))
		length++;
	return length;
}

/* The metric of a name and a type, a new one if there is room; NULL if not. glake_up is ours. */
static struct family *family_of(
	struct merge *merge, const char *name, size_t length, const char *type)
{
	struct family *family;

	if (length >= NAME_LENGTH || length < 7 || strncmp(name, "glake_", 6) || !type ||
		(length == 8 && !strncmp(name, "glake_up", 8)))
		return NULL;
	for (size_t i = 0; i < merge->count; i++) {
		family = &merge->families[i];
		if (!strncmp(family->name, name, length) && !family->name[length] &&
			family->type == type)
			return family;
	}
	if (merge->count == FAMILIES_MAX || merge->added == OF_ONE_MAX)
		return NULL;
	merge->added++;
	family = &merge->families[merge->count++];
	memcpy(family->name, name, length);
	family->type = type;
	return family;
}

static bool is_printable(const char *line, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			return false;
	return true;
}

/* What stands behind the name; NULL: no type that the library has. */
static const char *type_of(const char *word, size_t length)
{
	static const char *const types[] = {"gauge", "counter", "histogram"};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (length == strlen(types[i]) && !strncmp(word, types[i], length))
			return types[i];
	return NULL;
}

/* "# HELP name ..." and "# TYPE name type": the first process that has a metric says what it is. */
static void take_head(struct merge *merge, const char *line, size_t length)
{
	const char *name = line + strlen("# HELP "), *help = merge->help;
	bool is_help = !strncmp(line, "# HELP ", 7);
	struct family *family;
	size_t named;

	if (length <= strlen("# HELP ") || (!is_help && strncmp(line, "# TYPE ", 7)))
		return;
	merge->at = NULL;
	merge->help = NULL;
	named = name_length(name);
	if (name[named] != ' ' || !is_printable(line, length))
		return;
	if (is_help) {
		merge->help = line;
		merge->help_length = length;
		return;
	}
	if (!help || strncmp(help + strlen("# HELP "), name, named + 1))
		return;
	family = family_of(merge, name, named,
		type_of(name + named + 1, (size_t)(line + length - name) - named - 1));
	merge->at = family;
	if (!family)
		return;
	if (!family->head.length) {
		export_add(&family->head, help, merge->help_length);
		add(&family->head, "\n");
		export_add(&family->head, line, length);
		add(&family->head, "\n");
	}
}

/* Where the labels of a sample end, from behind their opening brace; NULL: they are none. */
static const char *end_of_labels(const char *at, const char *end)
{
	size_t length;

	while (at < end && *at != '}') {
		length = name_length(at);
		if (!length || at + length + 2 >= end || at[length] != '=' ||
			at[length + 1] != '"' ||
			(length == 3 && !strncmp(at, "pid", 3)) ||
			(length == 7 && !strncmp(at, "program", 7)))
			return NULL;
		at += length + 2;
		while (at < end && *at != '"')
			at += *at == '\\' ? 2 : 1;
		if (at >= end)
			return NULL;
		at++;
		if (at < end && *at == ',')
			at++;
	}
	return at < end ? at : NULL;
}

static bool is_value(const char *at, const char *end)
{
	char text[64], *behind;

	if (end - at < 2 || *at != ' ' || (size_t)(end - at) >= sizeof(text))
		return false;
	memcpy(text, at + 1, (size_t)(end - at) - 1);
	text[end - at - 1] = '\0';
	strtod(text, &behind);
	return behind != text && !*behind && !isspace((unsigned char)*text);
}

/* A name of its samples: its own, or one of the three of a histogram. */
static bool has_sample(const struct family *family, const char *name, size_t length)
{
	static const char *const parts[] = {"_bucket", "_sum", "_count"};
	size_t own = strlen(family->name);

	if (length < own || strncmp(name, family->name, own))
		return false;
	if (strcmp(family->type, "histogram"))
		return length == own;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (length - own == strlen(parts[i]) &&
			!strncmp(name + own, parts[i], length - own))
			return true;
	return false;
}

/* "name{labels} value", of the metric that the last head was of. */
static void take_sample(struct merge *merge, const char *line, size_t length)
{
	const char *end = line + length, *labels = line + name_length(line), *close;
	struct export_text *text;
	char ours[128];

	if (!merge->at || labels >= end || *labels != '{' ||
		!has_sample(merge->at, line, (size_t)(labels - line)))
		return;
	close = end_of_labels(labels + 1, end);
	if (!close || !is_value(close + 1, end) || !is_printable(line, length))
		return;
	snprintf(ours, sizeof(ours), "pid=\"%d\",program=\"%s\"%s", merge->process->pid,
		merge->process->program, labels + 1 < close ? "," : "");
	merge->at->processes += merge->at->last != merge->process;
	merge->at->last = merge->process;
	text = &merge->at->samples;
	export_add(text, line, (size_t)(labels + 1 - line));
	add(text, ours);
	export_add(text, labels + 1, (size_t)(end - labels - 1));
	add(text, "\n");
}

static void take_text(
	struct merge *merge, const struct process *process, const char *text)
{
	size_t length;

	if (merge->process != process)
		merge->added = 0;
	merge->process = process;
	merge->at = NULL;
	merge->help = NULL;
	for (; *text; text += length, text += *text == '\n') {
		length = strcspn(text, "\n");
		if (*text == '#')
			take_head(merge, text, length);
		else
			take_sample(merge, text, length);
	}
}

static bool is_wanted(char **names, const struct process *process)
{
	int64_t number;

	for (char **name = names; *name; name++)
		if (!strcmp(*name, process->program) ||
			(!glk_parse_int(*name, &number) && number == process->pid))
			return true;
	return !*names;
}

/* Whether each process has answered, which is a metric as well. */
static void add_up(struct export_text *text, const struct process *list, int count)
{
	char line[192];

	add(text,
		"# HELP glake_up Whether the process answers at its socket.\n"
		"# TYPE glake_up gauge\n");
	for (int i = 0; i < count; i++) {
		snprintf(line, sizeof(line), "glake_up{pid=\"%d\",program=\"%s\"} %d\n",
			list[i].pid, list[i].program, !list[i].err);
		add(text, line);
	}
}

/* The two that a text between quotes has another meaning by. */
static void tame(struct process *process)
{
	for (char *c = process->program; *c; c++)
		if (*c == '"' || *c == '\\')
			*c = '?';
}

/* The wanted ones first, and their count. */
static int keep_wanted(struct process *list, int count, char **names)
{
	int kept = 0;

	for (int i = 0; i < count; i++) {
		tame(&list[i]);
		if (is_wanted(names, &list[i])) {
			struct process other = list[kept];

			list[kept++] = list[i];
			list[i] = other;
		}
	}
	return kept;
}

/* A question to a process: one for each of its contexts, since an answer has a most. */
struct asking {
	struct process_answer *asked;
	struct question {
		char text[112];
		struct process *process;
	} * question;
	int count, room;
};

static int add_question(struct asking *asking, struct process *process, unsigned context)
{
	int room = asking->room ? 2 * asking->room : 64;
	struct question *more = asking->question;
	char params[48] = "";

	if (asking->count == asking->room) {
		more = realloc(more, (size_t)room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		asking->question = more;
		asking->room = room;
	}
	if (context)
		snprintf(params, sizeof(params), ",\"params\":{\"context\":%u}", context);
	more = &asking->question[asking->count++];
	more->process = process;
	snprintf(more->text, sizeof(more->text),
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"metrics\"%s}\n", params);
	return 0;
}

static int add_process(struct asking *asking, struct process *process)
{
	struct json_object *contexts = process_array(process->stats, "contexts");
	size_t count = contexts ? json_object_array_length(contexts) : 0;
	int err = 0;

	if (count < 2)
		return add_question(asking, process, 0);
	for (size_t i = 0; i < count && i < GLAKE_CONTEXT_MAX && !err; i++)
		err = add_question(asking, process,
			(unsigned)process_number(
				json_object_array_get_idx(contexts, i), "context"));
	return err;
}

/* One that has closed a context meanwhile has answered as well. */
static void take_answer(
	struct merge *merge, struct process *process, const struct process_answer *asked)
{
	if (!asked->err && json_object_get_type(asked->result) == json_type_string)
		take_text(merge, process, json_object_get_string(asked->result));
	else if (!process->err && asked->err != -ENXIO)
		process->err = asked->err ? asked->err : -EPROTO;
	json_object_put(asked->result);
}

static int ask_metrics(int room, struct merge *merge, struct process *list, int count)
{
	struct asking asking = {0};
	int err = 0;

	for (int i = 0; i < count && !err; i++)
		err = add_process(&asking, &list[i]);
	if (!err)
		asking.asked = calloc((size_t)asking.count + 1, sizeof(*asking.asked));
	if (!asking.asked)
		err = -ENOMEM;
	for (int i = 0; i < asking.count && !err; i++)
		asking.asked[i] =
			(struct process_answer){.pid = asking.question[i].process->pid,
				.question = asking.question[i].text};
	if (!err)
		process_ask_all(room, asking.asked, asking.count);
	for (int i = 0; i < asking.count && !err; i++)
		take_answer(merge, asking.question[i].process, &asking.asked[i]);
	free(asking.asked);
	free(asking.question);
	return err;
}

/* Whether no other type of a metric is what more processes have, or as many and the first. */
static bool is_said_by_most(const struct merge *merge, const struct family *family)
{
	for (size_t i = 0; i < merge->count; i++) {
		const struct family *other = &merge->families[i];

		if (!strcmp(other->name, family->name) &&
			(other->processes > family->processes ||
				(other->processes == family->processes &&
					other < family)))
			return false;
	}
	return true;
}

static int finish(struct merge *merge, struct export_text *text)
{
	bool failed = text->failed;

	for (size_t i = 0; i < merge->count; i++) {
		struct family *family = &merge->families[i];

		failed |= family->head.failed || family->samples.failed;
		if (family->samples.length && is_said_by_most(merge, family)) {
			export_add(text, family->head.bytes, family->head.length);
			export_add(text, family->samples.bytes, family->samples.length);
		}
	}
	for (size_t i = 0; i < merge->count; i++) {
		struct family *family = &merge->families[i];

		free(family->head.bytes);
		free(family->samples.bytes);
	}
	free(merge->families);
	return failed || text->failed ? -ENOMEM : 0;
}

int export_collect(int room, char **names, struct export_text *ret_text)
{
	struct merge merge = {.families = calloc(FAMILIES_MAX, sizeof(*merge.families))};
	struct export_text text = {0};
	struct process *list = NULL;
	int wanted, count, err;

	if (!merge.families)
		return -ENOMEM;
	/* who they are; a text of figures does not say */
	count = process_look(room, "info", &list);
	if (count < 0) {
		free(merge.families);
		return count;
	}
	wanted = keep_wanted(list, count, names);
	err = ask_metrics(room, &merge, list, wanted);
	add_up(&text, list, wanted);
	if (finish(&merge, &text) && !err)
		err = -ENOMEM;
	process_list_free(list, count);
	if (err)
		free(text.bytes);
	else
		*ret_text = text;
	return err;
}
