/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WATCH_RPC_H
#define GLK_WATCH_RPC_H

/*
 * JSON-RPC 2.0, a line a question: reads it, calls a method, writes the answer. A face of this
 * folder beside watch.h; what the methods do is their callers' matter.
 *
 * Questions are read by json-c, which is loaded when the first socket is asked for (base/late.h),
 * so that no other program bears it. It keeps its place on a stack of its own, as deep as it is
 * told, and checks texts to be UTF-8. Batches (a list of questions) are refused.
 */
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the specification has them, and one of ours: the library refused. */
enum glk_rpc_code {
	GLK_RPC_PARSE = -32700,
	GLK_RPC_REQUEST = -32600,
	GLK_RPC_METHOD = -32601,
	GLK_RPC_PARAMETERS = -32602,
	GLK_RPC_INTERNAL = -32603,
	GLK_RPC_REFUSED = -32000,
};

struct glk_rpc_call;

struct glk_rpc_method {
	const char *name;	   /* NULL ends the list */
	const char *parameters[4]; /* that it takes, by name; NULL ends them */
	void (*run)(struct glk_rpc_call *call);
};

/* Loads json-c. 0; -ENOENT with a record. */
int glk_rpc_init(void);

/*
 * Answers a question of so many bytes, with a newline at the end; 0: it asked for no answer, or
 * there is no memory for one. `line` NULL: it was too long.
 */
size_t glk_rpc_answer(const struct glk_rpc_method *methods, const char *line,
	size_t length, char *answer, size_t size);

/*
 * For methods. A parameter that is there and is none of that kind ends the call with an error, as
 * does the first failure; what a method writes comes after it has asked for the result, once.
 */
bool glk_rpc_number(
	struct glk_rpc_call *call, const char *name, uint64_t max, uint64_t *ret_value);
/* The text lasts as long as the call. */
bool glk_rpc_text(struct glk_rpc_call *call, const char *name, const char **ret_text);
bool glk_rpc_bool(struct glk_rpc_call *call, const char *name, bool *ret_value);
bool glk_rpc_is_null(struct glk_rpc_call *call, const char *name);
bool glk_rpc_failed(const struct glk_rpc_call *call);
void glk_rpc_fail(struct glk_rpc_call *call, enum glk_rpc_code code, const char *format,
	...) __attribute__((format(printf, 3, 4)));
/* Where the one value goes that is the answer. */
struct glk_json *glk_rpc_result(struct glk_rpc_call *call);

#endif
