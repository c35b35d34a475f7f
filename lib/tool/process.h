/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_PROCESS_H
#define GLK_TOOL_PROCESS_H

/*
 * Processes that can be watched: those that have a socket in the directory of this user. What they
 * answer is read as JSON and trusted in nothing: a value that is missing, or of another kind, is
 * as good as none.
 */
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESSES_MAX 4096

#define PROCESS_ANSWER_MS 2000

struct process {
	pid_t pid;
	int err;       /* of process_look: it does not answer, */
	char why[160]; /* and this is why */
	char program[64];
	char version[32];
	struct json_object *stats; /* what it answered */
};

/* The directory. 0; -ENOENT: nobody has made one; else -errno after a message. */
int process_room(int *ret_room);

/* The processes that answer, in order of their numbers, with their figures; their count, or -errno
 * after a message. Sockets of those that have ended go; others that do not answer are told of. */
int process_list(int room, struct process **ret_list);
void process_list_free(struct process *list, int count);

/* All that have a socket and have not ended, with what they answer to a method; likewise. */
int process_look(int room, const char *method, struct process **ret_list);

/* Questions to many at once, one to each. */
struct process_answer {
	pid_t pid;
	const char *question; /* a line */
	int err;	      /* 0; as process_ask */
	char why[160];
	struct json_object *result;
};

void process_ask_all(int room, struct process_answer *asked, int count);

/* The result of an answer, or the words of its error in `why` of GLK_WIRE_WHY_MAX bytes. 0; -EPROTO;
 * -EREMOTEIO: it refuses; -ENXIO: for what the parameters name. */
int process_read_answer(const char *answer, struct json_object **ret_result, char *why);

/* The result of a method; its parameters, an object that it takes, or NULL. 0; -ESRCH: it is not
 * there; -errno, and `why` of GLK_WIRE_WHY_MAX bytes. */
int process_ask(int room, pid_t pid, const char *method, struct json_object *params,
	struct json_object **ret_result, char *why);

/* process_find.c: the process that is called so, by its number or its program, or with NULL the only
 * one, and the directory of its socket. 0 after a message. */
pid_t process_find(const char *name, int *ret_room);
/* What process_ask() answered. */
void process_say_failed(pid_t pid, int err, const char *why);

/* Members of an object; NULL, "" and 0 for none of that kind. */
struct json_object *process_array(struct json_object *object, const char *name);
const char *process_text(struct json_object *object, const char *name);
/* A text for a terminal, whose state is not what others call themselves. */
void process_word(
	struct json_object *object, const char *name, char *buffer, size_t size);
uint64_t process_number(struct json_object *object, const char *name);

#endif
