/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is asked of the configuration at the socket of this process: the values that hold, one that
 * is set, the file that is read again. A key that is not known, and a value that is not right, are
 * faults of the question; what the library refuses is refused in its words.
 */
#include "api/context.h"
#include "api/served.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <glake/conf.h>

/* `context` 0: the answer is about one alone. */
static void add_value(struct glk_json *json, unsigned context,
	const struct glake_conf_key *key, const struct glake_conf_value *value)
{
	static const char *const origins[] = {"default", "file", "environment", "option"};
	char name[64];

	snprintf(name, sizeof(name), "%s.%s", key->section, key->key);
	glk_json_object(json);
	if (context)
		glk_json_add_uint(json, "context", context);
	glk_json_add_text(json, "key", name);
	glk_json_add_text(json, "value", value->text);
	glk_json_add_text(json, "origin", origins[value->origin]);
	glk_json_add_text(json, "source", value->source);
	glk_json_add_int(json, "line", value->line);
	glk_json_end(json);
}

static bool is_named(const struct glake_conf_key *key, const char *name)
{
	size_t length = strlen(key->section);

	return !strncmp(name, key->section, length) && name[length] == '.' &&
		!strcmp(name + length + 1, key->key);
}

/* Calls fn for the context that is named, or for each. */
typedef void (*context_fn)(
	struct glk_rpc_call *call, struct glake *handle, const void *arg);

static void each_context(struct glk_rpc_call *call, context_fn fn, const void *arg)
{
	struct glake *const *handles;
	bool found = false, one;
	uint64_t context;
	size_t count;

	one = glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	handles = glk_served(&count);
	for (size_t i = 0; i < count && !glk_rpc_failed(call); i++) {
		if (one && glk_context_number(handles[i]) != context)
			continue;
		found = true;
		fn(call, handles[i], arg);
	}
	if (!found)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context");
}

/* The values that one context was opened with: the first, unless one is named. */
void glk_method_config_get(struct glk_rpc_call *call)
{
	struct glake_conf_value value = {.sz = sizeof(value)};
	struct glake_conf_key key = {.sz = sizeof(key)};
	struct glake *const *handles;
	const char *wanted = NULL;
	uint64_t context = 0;
	size_t count, at = 0;
	bool found = false;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	glk_rpc_text(call, "key", &wanted);
	if (glk_rpc_failed(call))
		return;
	handles = glk_served(&count);
	while (at < count && context && glk_context_number(handles[at]) != context)
		at++;
	if (at == count) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context");
		return;
	}
	glk_json_array(glk_rpc_result(call));
	for (size_t i = 0; !glake_conf_key_get(i, &key); i++) {
		if ((wanted && !is_named(&key, wanted)) ||
			glake_conf_value_get(handles[at], i, &value))
			continue;
		found = true;
		add_value(glk_rpc_result(call), 0, &key, &value);
	}
	glk_json_end(glk_rpc_result(call));
	if (!found)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such key");
}

struct setting {
	const char *key, *value;
};

/* A question that asks for what there is not, or what is not right, is wrong itself. */
static void refuse(struct glk_rpc_call *call, int err)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	if (err == -ENOENT || err == -EINVAL)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "%s", record.text);
	else
		glk_method_refuse(call, err);
}

/* The value that holds, with the number of its context. */
static void add_effective(struct glk_json *json, struct glake *handle, size_t id,
	const struct glake_conf_key *key)
{
	struct glake_conf_value value = {.sz = sizeof(value)};

	if (glake_conf_value_get(handle, id, &value))
		return;
	add_value(json, glk_context_number(handle), key, &value);
}

static void set_one(struct glk_rpc_call *call, struct glake *handle, const void *arg)
{
	const struct setting *setting = arg;
	struct glake_conf_key key = {.sz = sizeof(key)};
	int err = glake_conf_set(handle, setting->key, setting->value);
	size_t id = 0;

	if (err) {
		refuse(call, err);
		return;
	}
	while (!glake_conf_key_get(id, &key) && !is_named(&key, setting->key))
		id++;
	add_effective(glk_rpc_result(call), handle, id, &key);
}

void glk_method_config_set(struct glk_rpc_call *call)
{
	struct setting setting = {0};

	if ((!glk_rpc_text(call, "key", &setting.key) ||
		    !glk_rpc_text(call, "value", &setting.value)) &&
		!glk_rpc_failed(call))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "key and value, as texts");
	if (glk_rpc_failed(call))
		return;
	glk_json_array(glk_rpc_result(call));
	each_context(call, set_one, &setting);
	glk_json_end(glk_rpc_result(call));
}

static void add_finding(const struct glake_conf_finding *finding, void *arg)
{
	struct glk_json *json = arg;

	glk_json_object(json);
	glk_json_add_text(json, "file", finding->file);
	glk_json_add_int(json, "line", finding->line);
	glk_json_add_text(json, "key", finding->key);
	glk_json_add_text(json, "text", finding->text);
	glk_json_end(json);
}

static void reload_one(struct glk_rpc_call *call, struct glake *handle, const void *arg)
{
	struct glk_json *json = glk_rpc_result(call);
	struct glake_conf_key key = {.sz = sizeof(key)};
	int err;

	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_key(json, "findings");
	glk_json_array(json);
	err = glake_conf_reload(handle, add_finding, json);
	glk_json_end(json);
	glk_json_key(json, "keys");
	glk_json_array(json);
	for (size_t id = 0; !err && !glake_conf_key_get(id, &key); id++)
		if (key.live)
			add_effective(json, handle, id, &key);
	glk_json_end(json);
	glk_json_end(json);
	if (err)
		glk_method_refuse(call, err);
}

void glk_method_config_reload(struct glk_rpc_call *call)
{
	glk_json_array(glk_rpc_result(call));
	each_context(call, reload_one, NULL);
	glk_json_end(glk_rpc_result(call));
}
