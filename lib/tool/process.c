/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How the tool comes to processes: one connection a question, which is over before the next. A
 * socket to which nobody listens is of a process that was killed, and is taken away.
 */
#include "tool/process.h"

#include "base/parse.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_MS 1000
#define DEPTH	   16

/* The code of an error that the parameters are to blame for. */
#define NO_SUCH (-32602)

int process_room(int *ret_room)
{
	char why[GLK_WIRE_WHY_MAX], path[512];
	int err = glk_wire_room_open(false, ret_room, why);

	glk_wire_room_path(path, sizeof(path));
	if (err && err != -ENOENT)
		glk_tool_say("no process can be asked: %s", why);
	return err;
}

static struct json_object *member(
	struct json_object *object, const char *name, enum json_type type)
{
	struct json_object *value;

	if (json_object_get_type(object) != json_type_object ||
		!json_object_object_get_ex(object, name, &value) ||
		json_object_get_type(value) != type)
		return NULL;
	return value;
}

struct json_object *process_array(struct json_object *object, const char *name)
{
	return member(object, name, json_type_array);
}

const char *process_text(struct json_object *object, const char *name)
{
	struct json_object *value = member(object, name, json_type_string);

	return value ? json_object_get_string(value) : "";
}

void process_word(struct json_object *object, const char *name, char *buffer, size_t size)
{
	snprintf(buffer, size, "%s", process_text(object, name));
	for (; *buffer; buffer++)
		if (*buffer < ' ' || *buffer > '~')
			*buffer = '?';
}

uint64_t process_number(struct json_object *object, const char *name)
{
	struct json_object *value = member(object, name, json_type_int);

	return value ? json_object_get_uint64(value) : 0;
}

int process_read_answer(const char *answer, struct json_object **ret_result, char *why)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH);
	struct json_object *all = NULL, *result, *error;
	int err = -EPROTO;

	snprintf(why, GLK_WIRE_WHY_MAX, "what it answers is no JSON");
	if (!tokener)
		return -ENOMEM;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	all = json_tokener_parse_ex(tokener, answer, (int)strlen(answer));
	error = member(all, "error", json_type_object);
	if (error) {
		process_word(error, "message", why, GLK_WIRE_WHY_MAX);
		err = json_object_object_get_ex(error, "code", &result) &&
				json_object_get_int(result) == NO_SUCH
			? -ENXIO
			: -EREMOTEIO;
	} else if (json_object_get_type(all) == json_type_object &&
		json_object_object_get_ex(all, "result", &result)) {
		*ret_result = json_object_get(result);
		err = 0;
	}
	json_object_put(all);
	json_tokener_free(tokener);
	return err;
}

/* A line, to be freed; NULL: there is no memory. */
static char *question_of(const char *method, struct json_object *params)
{
	struct json_object *question = json_object_new_object();
	char *line = NULL;

	json_object_object_add(question, "jsonrpc", json_object_new_string("2.0"));
	json_object_object_add(question, "id", json_object_new_int(1));
	json_object_object_add(question, "method", json_object_new_string(method));
	if (params)
		json_object_object_add(question, "params", params);
	if (asprintf(&line, "%s\n",
		    json_object_to_json_string_ext(question, JSON_C_TO_STRING_PLAIN)) < 0)
		line = NULL;
	json_object_put(question);
	return line;
}

int process_ask(int room, pid_t pid, const char *method, struct json_object *params,
	struct json_object **ret_result, char *why)
{
	char name[GLK_WIRE_NAME_MAX], *question = question_of(method, params);
	struct glk_wire_peer peer;
	char *answer;
	int fd, err;

	glk_wire_name(pid, name);
	err = glk_wire_connect(room, name, CONNECT_MS, &fd, &peer, why);
	if (err) {
		free(question);
		return err;
	}
	answer = malloc(GLK_WIRE_ANSWER_MAX);
	snprintf(why, GLK_WIRE_WHY_MAX, "%s", strerror(ENOMEM));
	err = answer && question ? glk_wire_ask(fd, question, PROCESS_ANSWER_MS, answer,
					   GLK_WIRE_ANSWER_MAX, why)
				 : -ENOMEM;
	close(fd);
	if (!err)
		err = process_read_answer(answer, ret_result, why);
	free(answer);
	free(question);
	return err;
}

static bool is_socket(int room, const char *name)
{
	struct stat about;

	return !fstatat(room, name, &about, AT_SYMLINK_NOFOLLOW) &&
		S_ISSOCK(about.st_mode) && about.st_uid == geteuid();
}

/* Nobody listens, nor is there anybody who might just be about to. */
static void remove_dead(int room, pid_t pid)
{
	char name[GLK_WIRE_NAME_MAX];

	glk_wire_name(pid, name);
	if (kill(pid, 0) && errno == ESRCH && is_socket(room, name))
		unlinkat(room, name, 0);
}

static int compare(const void *a, const void *b)
{
	const struct process *one = a, *other = b;

	return one->pid < other->pid ? -1 : one->pid > other->pid;
}

static int find_all(int room, struct process_answer *asked)
{
	int again = openat(room, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	struct dirent *entry;

	if (!dir) {
		count = -errno;
		if (again >= 0)
			close(again);
		return count;
	}
	while (count < PROCESSES_MAX && (entry = readdir(dir))) {
		asked[count] =
			(struct process_answer){.pid = glk_wire_name_pid(entry->d_name)};
		count += asked[count].pid != 0;
	}
	closedir(dir);
	return count;
}

static int take_answers(
	int room, struct process_answer *asked, int count, struct process **ret_list)
{
	struct process *list = calloc((size_t)count + 1, sizeof(*list));
	int taken = 0;

	for (int i = 0; i < count; i++) {
		struct process *process = &list[taken];

		if (!list) {
			json_object_put(asked[i].result);
			continue;
		}
		if (asked[i].err == -ESRCH) {
			remove_dead(room, asked[i].pid);
			continue;
		}
		process->pid = asked[i].pid;
		process->err = asked[i].err;
		process->stats = asked[i].result;
		memcpy(process->why, asked[i].why, sizeof(process->why));
		process_word(process->stats, "program", process->program,
			sizeof(process->program));
		process_word(process->stats, "version", process->version,
			sizeof(process->version));
		taken++;
	}
	if (!list)
		return -ENOMEM;
	qsort(list, (size_t)taken, sizeof(*list), compare);
	*ret_list = list;
	return taken;
}

int process_look(int room, const char *method, struct process **ret_list)
{
	struct process_answer *asked = calloc(PROCESSES_MAX + 1, sizeof(*asked));
	int count = asked ? find_all(room, asked) : -ENOMEM;
	char *question = question_of(method, NULL);

	for (int i = 0; i < count; i++)
		asked[i].question = question;
	if (count >= 0 && !question)
		count = -ENOMEM;
	if (count >= 0) {
		process_ask_all(room, asked, count);
		count = take_answers(room, asked, count, ret_list);
	}
	if (count < 0)
		glk_tool_say("no process can be asked: %s", strerror(-count));
	free(question);
	free(asked);
	return count;
}

int process_list(int room, struct process **ret_list)
{
	int count = process_look(room, "stats", ret_list), answered = 0;
	struct process *list = *ret_list;

	for (int i = 0; i < count; i++) {
		if (list[i].err)
			glk_tool_say("process %d: %s", list[i].pid, list[i].why);
		else
			list[answered++] = list[i];
	}
	return count < 0 ? count : answered;
}

void process_list_free(struct process *list, int count)
{
	for (int i = 0; i < count; i++)
		json_object_put(list[i].stats);
	free(list);
}
