/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Nothing that is asked is trusted: a question has a length, a depth, names and kinds of values
 * that are known before a method sees it, and an answer that finds no room becomes an error.
 */
#include "watch/rpc.h"

#include "base/atomic.h"
#include "base/late.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <string.h>

#define LIBJSON "libjson-c.so.5"
#define DEPTH	16
#define ID_MAX	256 /* bytes of a text that names a question */

#define FUNCTIONS(F)                                                                     \
	F(json_tokener_new_ex)                                                           \
	F(json_tokener_set_flags)                                                        \
	F(json_tokener_parse_ex)                                                         \
	F(json_tokener_get_error)                                                        \
	F(json_tokener_error_desc)                                                       \
	F(json_tokener_free)                                                             \
	F(json_object_put)                                                               \
	F(json_object_get_type)                                                          \
	F(json_object_object_get_ex)                                                     \
	F(json_object_object_length)                                                     \
	F(json_object_get_string)                                                        \
	F(json_object_get_string_len)                                                    \
	F(json_object_get_boolean)                                                       \
	F(json_object_get_int64)                                                         \
	F(json_object_get_uint64)

static struct functions {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} json_c;

struct glk_rpc_call {
	struct glk_json json;
	struct json_object *params; /* NULL: none */
	struct json_object *id;
	bool answers; /* has an id: wants an answer */
	bool begun;   /* the result */
	int code;
	char why[256];
};

int glk_rpc_init(void)
{
#define NAME(name) #name,
	static const char *const names[] = {FUNCTIONS(NAME)};
#undef NAME
	return glk_late_load(LIBJSON, names, sizeof(names) / sizeof(*names), &json_c);
}

void glk_rpc_fail(
	struct glk_rpc_call *call, enum glk_rpc_code code, const char *format, ...)
{
	va_list args;

	if (call->code)
		return;
	call->code = code;
	va_start(args, format);
	vsnprintf(call->why, sizeof(call->why), format, args);
	va_end(args);
}

bool glk_rpc_failed(const struct glk_rpc_call *call)
{
	return call->code;
}

static bool find(struct glk_rpc_call *call, const char *name, struct json_object **ret)
{
	return call->params && json_c.json_object_object_get_ex(call->params, name, ret);
}

bool glk_rpc_number(
	struct glk_rpc_call *call, const char *name, uint64_t max, uint64_t *ret_value)
{
	struct json_object *value;
	uint64_t number;

	if (!find(call, name, &value))
		return false;
	if (json_c.json_object_get_type(value) != json_type_int ||
		json_c.json_object_get_int64(value) < 0) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "%s is no whole number from 0 on",
			name);
		return false;
	}
	number = json_c.json_object_get_uint64(value);
	/* what is too large for 64 bits comes as the largest number there is */
	if (number > max || number == UINT64_MAX) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "%s is at most %llu", name,
			(unsigned long long)max);
		return false;
	}
	*ret_value = number;
	return true;
}

/* NULL for none, and for one with a zero in it. */
static const char *text_of(struct json_object *value)
{
	const char *text = json_c.json_object_get_string(value);

	return text && strlen(text) == (size_t)json_c.json_object_get_string_len(value)
		? text
		: NULL;
}

bool glk_rpc_text(struct glk_rpc_call *call, const char *name, const char **ret_text)
{
	struct json_object *value;

	if (!find(call, name, &value))
		return false;
	if (json_c.json_object_get_type(value) != json_type_string || !text_of(value)) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "%s is no text", name);
		return false;
	}
	*ret_text = text_of(value);
	return true;
}

bool glk_rpc_bool(struct glk_rpc_call *call, const char *name, bool *ret_value)
{
	struct json_object *value;

	if (!find(call, name, &value))
		return false;
	if (json_c.json_object_get_type(value) != json_type_boolean) {
		glk_rpc_fail(
			call, GLK_RPC_PARAMETERS, "%s is neither true nor false", name);
		return false;
	}
	*ret_value = json_c.json_object_get_boolean(value);
	return true;
}

bool glk_rpc_is_null(struct glk_rpc_call *call, const char *name)
{
	struct json_object *value;

	return find(call, name, &value) && !value;
}

struct glk_json *glk_rpc_result(struct glk_rpc_call *call)
{
	if (!call->begun)
		glk_json_key(&call->json, "result");
	call->begun = true;
	return &call->json;
}

/* A name of a question is said back as it came. */
static void add_id(struct glk_rpc_call *call)
{
	struct json_object *id = call->id;

	glk_json_key(&call->json, "id");
	if (json_c.json_object_get_type(id) == json_type_int)
		glk_json_int(&call->json, json_c.json_object_get_int64(id));
	else if (json_c.json_object_get_type(id) == json_type_string)
		glk_json_bytes(&call->json, json_c.json_object_get_string(id),
			(size_t)json_c.json_object_get_string_len(id));
	else
		glk_json_null(&call->json);
}

static void take_id(struct glk_rpc_call *call, struct json_object *id)
{
	switch (json_c.json_object_get_type(id)) {
	case json_type_string:
		if (json_c.json_object_get_string_len(id) <= ID_MAX)
			break;
		glk_rpc_fail(
			call, GLK_RPC_REQUEST, "the id is longer than %d bytes", ID_MAX);
		return;
	case json_type_int:
		if (json_c.json_object_get_int64(id) != INT64_MAX &&
			json_c.json_object_get_int64(id) != INT64_MIN)
			break;
		glk_rpc_fail(call, GLK_RPC_REQUEST, "the id is too large a number");
		return;
	case json_type_null:
		break;
	default:
		glk_rpc_fail(
			call, GLK_RPC_REQUEST, "the id is no text and no whole number");
		return;
	}
	call->id = id;
}

/* Only the parameters that the method knows, or none. */
static void take_params(struct glk_rpc_call *call, const struct glk_rpc_method *method,
	struct json_object *params)
{
	struct json_object *value;
	int known = 0;

	if (!params)
		return;
	if (json_c.json_object_get_type(params) != json_type_object) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "parameters are given by name");
		return;
	}
	for (size_t i = 0; i < 4 && method->parameters[i]; i++)
		known += json_c.json_object_object_get_ex(
			params, method->parameters[i], &value);
	if (known != json_c.json_object_object_length(params))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS,
			"%s has a parameter that the method does not know", method->name);
	else
		call->params = params;
}

static const struct glk_rpc_method *find_method(
	const struct glk_rpc_method *methods, const char *name)
{
	while (name && methods->name && strcmp(methods->name, name))
		methods++;
	return name && methods->name ? methods : NULL;
}

/* The method of a question; NULL after a failure. */
static const struct glk_rpc_method *read_call(struct glk_rpc_call *call,
	const struct glk_rpc_method *methods, struct json_object *question)
{
	struct json_object *version, *name, *id, *params = NULL;
	const struct glk_rpc_method *method;

	if (json_c.json_object_get_type(question) != json_type_object) {
		glk_rpc_fail(call, GLK_RPC_REQUEST,
			"a question is an object; there are no batches");
		return NULL;
	}
	call->answers = json_c.json_object_object_get_ex(question, "id", &id);
	if (call->answers)
		take_id(call, id);
	if (!json_c.json_object_object_get_ex(question, "jsonrpc", &version) ||
		json_c.json_object_get_type(version) != json_type_string ||
		strcmp(json_c.json_object_get_string(version), "2.0") ||
		!json_c.json_object_object_get_ex(question, "method", &name) ||
		json_c.json_object_get_type(name) != json_type_string) {
		call->answers = true;
		glk_rpc_fail(call, GLK_RPC_REQUEST, "no question of JSON-RPC 2.0");
	}
	if (call->code)
		return NULL;
	method = find_method(methods, text_of(name));
	if (!method) {
		glk_rpc_fail(call, GLK_RPC_METHOD, "there is no such method");
		return NULL;
	}
	json_c.json_object_object_get_ex(question, "params", &params);
	take_params(call, method, params);
	return call->code ? NULL : method;
}

static struct json_object *parse(
	struct glk_rpc_call *call, const char *line, size_t length)
{
	struct json_tokener *tokener;
	struct json_object *question = NULL;
	enum json_tokener_error err;

	if (!line || memchr(line, '\0', length)) {
		glk_rpc_fail(call, GLK_RPC_PARSE,
			line ? "a byte of zero" : "the question is too long");
		return NULL;
	}
	tokener = json_c.json_tokener_new_ex(DEPTH);
	if (!tokener) {
		glk_rpc_fail(call, GLK_RPC_INTERNAL, "no memory");
		return NULL;
	}
	json_c.json_tokener_set_flags(
		tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	question = json_c.json_tokener_parse_ex(tokener, line, (int)length);
	err = json_c.json_tokener_get_error(tokener);
	if (err == json_tokener_continue) {
		/* a number might go on, if its line did */
		question = json_c.json_tokener_parse_ex(tokener, "\n", 1);
		err = json_c.json_tokener_get_error(tokener);
	}
	if (err == json_tokener_continue)
		glk_rpc_fail(call, GLK_RPC_PARSE, "the question is not whole");
	else if (err != json_tokener_success)
		glk_rpc_fail(
			call, GLK_RPC_PARSE, "%s", json_c.json_tokener_error_desc(err));
	json_c.json_tokener_free(tokener);
	return question;
}

/* Writes it into `answer`: its length, or 0 if there is no room. */
static size_t write_answer(struct glk_rpc_call *call, const struct glk_rpc_method *method,
	char *answer, size_t size)
{
	FILE *file = fmemopen(answer, size, "w");
	long length;

	if (!file)
		return 0;
	/* a child that is forked meanwhile has nothing to write out when it ends */
	setvbuf(file, NULL, _IONBF, 0);
	glk_json_init(&call->json, file, 0);
	glk_json_object(&call->json);
	glk_json_add_text(&call->json, "jsonrpc", "2.0");
	add_id(call);
	if (method)
		method->run(call);
	if (!call->code && !call->begun)
		glk_rpc_fail(call, GLK_RPC_INTERNAL, "no answer");
	if (call->code) {
		glk_json_key(&call->json, "error");
		glk_json_object(&call->json);
		glk_json_add_int(&call->json, "code", call->code);
		glk_json_add_text(&call->json, "message", call->why);
		glk_json_end(&call->json);
	}
	glk_json_end(&call->json);
	length = glk_json_fini(&call->json) ? 0 : ftell(file);
	fclose(file);
	return length > 0 && (size_t)length < size ? (size_t)length : 0;
}

size_t glk_rpc_answer(const struct glk_rpc_method *methods, const char *line,
	size_t length, char *answer, size_t size)
{
	struct glk_rpc_call call = {.answers = true};
	struct json_object *question = parse(&call, line, length);
	const struct glk_rpc_method *method = NULL;
	size_t used;

	if (!call.code)
		method = read_call(&call, methods, question);
	used = write_answer(&call, method, answer, size);
	if (!used) {
		call.code = 0;
		glk_rpc_fail(&call, GLK_RPC_INTERNAL, "the answer is too long");
	}
	if (!used || (call.code && call.begun)) /* what there is of a result goes */
		used = write_answer(&call, NULL, answer, size);
	json_c.json_object_put(question);
	return call.answers ? used : 0;
}
