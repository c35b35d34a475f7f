/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a process answers at its socket; glakectl(1) documents each method. They call the public
 * functions, as a thread of the program would.
 */
#include "api/context.h"
#include "api/figures.h"
#include "api/rpc_map.h"
#include "api/served.h"
#include "base/error.h"
#include "base/slab.h"
#include "wire/wire.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <glake/conf.h>
#include <glake/info.h>
#include <glake/memory.h>
#include <glake/version.h>

/* The last error of this thread, of the library. */
void glk_method_refuse(struct glk_rpc_call *call, int err)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	glk_rpc_fail(call, GLK_RPC_REFUSED, "%s",
		record.err == err ? record.text : strerror(-err));
}

/* Contexts and GPUs that the parameters choose; a number that is not given chooses all. */
struct choice {
	uint64_t context, gpu;
	bool one_context, one_gpu;
	bool found;
};

static struct choice choose(struct glk_rpc_call *call)
{
	struct choice choice = {0};

	choice.one_context =
		glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &choice.context);
	choice.one_gpu = glk_rpc_number(call, "gpu", INT32_MAX, &choice.gpu);
	return choice;
}

/* The chosen ones of a context. */
static int each_of_context(struct glk_rpc_call *call, struct choice *choice,
	struct glake *handle, glk_method_gpu_fn fn, void *arg)
{
	struct glk_context *context;
	int err = 0;

	if (glk_context_get(handle, &context))
		return 0; /* this process is a child: it answers nobody */
	for (int i = 0; i < context->devices && !err; i++) {
		if (choice->one_gpu ? (uint64_t)i != choice->gpu
				    : /* pairs with: the release in glk_cache_start */
				!glk_load_acquire(&context->caches[i].started))
			continue;
		choice->found = true;
		err = fn(call, handle, i, arg);
	}
	return err;
}

void glk_method_each_gpu(struct glk_rpc_call *call, glk_method_gpu_fn fn, void *arg)
{
	struct choice choice = choose(call);
	struct glake *handle = NULL;
	int err = 0;

	while (!err && !glk_rpc_failed(call) && (handle = glk_served_next(handle)))
		if (!choice.one_context || glk_context_number(handle) == choice.context)
			err = each_of_context(call, &choice, handle, fn, arg);
	if (err)
		glk_method_refuse(call, err);
	else if (!choice.found && (choice.one_context || choice.one_gpu))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context or GPU");
}

void glk_method_begin_gpu(struct glk_json *json, struct glake *handle, int gpu)
{
	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_add_int(json, "gpu", gpu);
}

void glk_method_add_process(struct glk_json *json)
{
	glk_json_add_int(json, "pid", getpid());
	glk_json_add_text(json, "program", program_invocation_short_name);
	glk_json_add_text(json, "version", GLAKE_VERSION_STRING);
}

static void info(struct glk_rpc_call *call)
{
	struct glk_json *json = glk_rpc_result(call);
	struct glake *const *handles;
	size_t count;

	glk_json_object(json);
	glk_method_add_process(json);
	glk_json_key(json, "methods");
	glk_json_array(json);
	for (size_t i = 0; glk_rpc_methods[i].name; i++)
		glk_json_text(json, glk_rpc_methods[i].name);
	glk_json_end(json);
	glk_json_key(json, "contexts");
	glk_json_array(json);
	handles = glk_served(&count);
	for (size_t i = 0; i < count; i++) {
		glk_json_object(json);
		glk_json_add_uint(json, "context", glk_context_number(handles[i]));
		glk_json_add_text(json, "driver",
			glake_backend(handles[i]) == GLAKE_BACKEND_CUDA ? "cuda"
									: "soft");
		glk_json_add_int(json, "gpus", glake_device_count(handles[i]));
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_end(json);
}

/* The figures of the context that is named, or of all, without what would not fit into an answer.
 * False after a failure. */
static bool gather(struct glk_rpc_call *call, struct glk_gathered *gathered)
{
	struct glake *const *handles;
	uint64_t context = 0;
	size_t count, from = 0;
	int err;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	if (glk_rpc_failed(call))
		return false;
	handles = glk_served(&count);
	while (context && from < count && glk_context_number(handles[from]) != context)
		from++;
	if (context && from == count) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context");
		return false;
	}
	err = glk_gather(handles + from, context ? 1 : count, gathered);
	if (err)
		glk_method_refuse(call, err);
	else
		glk_figures_fit(&gathered->figures, GLK_WIRE_ANSWER_MAX);
	return !err;
}

static void stats(struct glk_rpc_call *call)
{
	struct glk_gathered gathered;
	struct glk_json *json;

	if (!gather(call, &gathered))
		return;
	json = glk_rpc_result(call);
	glk_json_object(json);
	glk_method_add_process(json);
	glk_figures_json(&gathered.figures, json);
	glk_json_end(json);
	glk_gather_end(&gathered);
}

/* A text is as long as its figures at one moment, and is written of those. */
static void metrics(struct glk_rpc_call *call)
{
	struct glk_gathered gathered;
	size_t length = 0, size = 0;
	char *text = NULL;
	int err;

	if (!gather(call, &gathered))
		return;
	err = glk_figures_print(
		&gathered.figures, GLAKE_FIGURES_PROMETHEUS, NULL, 0, &length);
	size = length + 1;
	text = err ? NULL : glk_region_new(size);
	if (!err && !text)
		err = -ENOMEM;
	if (!err)
		err = glk_figures_print(
			&gathered.figures, GLAKE_FIGURES_PROMETHEUS, text, size, &length);
	if (err)
		glk_method_refuse(call, err);
	else
		glk_json_bytes(glk_rpc_result(call), text, length);
	if (text)
		glk_region_free(text, size);
	glk_gather_end(&gathered);
}

static int trim_one(struct glk_rpc_call *call, struct glake *handle, int gpu, void *keep)
{
	struct glk_json *json = glk_rpc_result(call);
	size_t released = 0;
	int err = glake_trim(handle, gpu, *(uint64_t *)keep, &released);

	glk_method_begin_gpu(json, handle, gpu);
	glk_json_add_uint(json, "released_bytes", released);
	if (err)
		glk_json_add_text(json, "failed", strerror(-err));
	glk_json_end(json);
	return 0;
}

static void trim(struct glk_rpc_call *call)
{
	uint64_t keep = 0;

	glk_rpc_number(call, "keep", SIZE_MAX, &keep);
	if (glk_rpc_failed(call))
		return;
	glk_wire_takes_long();
	glk_json_array(glk_rpc_result(call));
	glk_method_each_gpu(call, trim_one, &keep);
	glk_json_end(glk_rpc_result(call));
}

/* `bytes` 0: it is asked for alone; else it is set before. */
static int budget_one(
	struct glk_rpc_call *call, struct glake *handle, int gpu, void *bytes)
{
	uint64_t wanted = *(uint64_t *)bytes;
	struct glk_json *json = glk_rpc_result(call);
	size_t budget;
	int err = wanted ? glake_budget_set(handle, gpu, wanted) : 0;

	if (!err)
		err = glake_budget_get(handle, gpu, &budget);
	if (err)
		return err;
	glk_method_begin_gpu(json, handle, gpu);
	glk_json_key(json, "budget_bytes");
	if (budget == SIZE_MAX)
		glk_json_null(json);
	else
		glk_json_uint(json, budget);
	glk_json_end(json);
	return 0;
}

static void budget(struct glk_rpc_call *call)
{
	uint64_t bytes = 0;
	bool lift = glk_rpc_is_null(call, "bytes");

	if (lift)
		bytes = SIZE_MAX;
	else if (glk_rpc_number(call, "bytes", SIZE_MAX, &bytes) && !bytes)
		glk_rpc_fail(
			call, GLK_RPC_PARAMETERS, "a budget of 0 bytes; null lifts it");
	if (glk_rpc_failed(call))
		return;
	glk_json_array(glk_rpc_result(call));
	glk_method_each_gpu(call, budget_one, &bytes);
	glk_json_end(glk_rpc_result(call));
}

const struct glk_rpc_method glk_rpc_methods[] = {
	{"info", {0}, info},
	{"stats", {"context"}, stats},
	{"metrics", {"context"}, metrics},
	{"board", {"interval"}, glk_method_board},
	{"trim", {"context", "gpu", "keep"}, trim},
	{"budget", {"context", "gpu", "bytes"}, budget},
	{"map", {"context", "gpu", "from"}, glk_rpc_map},
	{"origins", {"from"}, glk_rpc_origins},
	{"stack", {"stack"}, glk_rpc_stack},
	{"refusals", {0}, glk_rpc_refusals},
	{"config.get", {"context", "key"}, glk_method_config_get},
	{"config.set", {"context", "key", "value"}, glk_method_config_set},
	{"config.reload", {"context"}, glk_method_config_reload},
	{"spill", {"context", "address"}, glk_method_spill},
	{"fetch", {"context", "address"}, glk_method_fetch},
	{"suspend", {"context", "gpu", "in_place"}, glk_method_suspend},
	{"resume", {"context", "gpu", "lazy"}, glk_method_resume},
	{"trace.start", {"context", "file", "size"}, glk_method_trace_start},
	{"trace.stop", {"context"}, glk_method_trace_stop},
	{0},
};
