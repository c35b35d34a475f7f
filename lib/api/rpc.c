/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a process answers at its socket; glakectl(1) documents each method. They call the public
 * functions, as a thread of the program would. A question for what there is not, or for what is not
 * right, is at fault itself; what the library refuses is refused in its words.
 */
#include "api/context.h"
#include "api/figures.h"
#include "api/served.h"
#include "base/error.h"
#include "base/log.h"
#include "base/slab.h"
#include "kv/kv.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <glake/conf.h>
#include <glake/info.h>
#include <glake/memory.h>
#include <glake/refusal.h>
#include <glake/tier.h>

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

typedef int (*gpu_fn)(
	struct glk_rpc_call *call, struct glake *handle, int gpu, void *arg);

/* The chosen ones of a context. */
static int each_of_context(struct glk_rpc_call *call, struct choice *choice,
	struct glake *handle, gpu_fn fn, void *arg)
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

/*
 * Calls fn for each GPU that the parameters choose by their numbers, context and gpu: one that was
 * named in any case, else all that are in use. A context is held while it is its turn. An error of
 * fn ends it, and is the answer.
 */
static void each_gpu(struct glk_rpc_call *call, gpu_fn fn, void *arg)
{
	struct choice choice = choose(call);
	struct glake *handle = NULL;
	int err = 0;

	while (!err && !glk_rpc_failed(call) && (handle = glk_served_next(handle)))
		if (!choice.one_context || glk_context_number(handle) == choice.context)
			err = each_of_context(call, &choice, handle, fn, arg);
	if (err)
		glk_served_refuse(call, err);
	else if (!choice.found && (choice.one_context || choice.one_gpu))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context or GPU");
}

/* Begins an object of the answer with the numbers of a GPU. */
static void begin_gpu(struct glk_json *json, struct glake *handle, int gpu)
{
	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_add_int(json, "gpu", gpu);
}

/* The figures of the context that is named, or of all, without what would not fit into an answer.
 * False after a failure. */
static bool gather(struct glk_rpc_call *call, struct glk_gathered *gathered)
{
	struct glake *const *handles;
	struct glake *one = NULL;
	uint64_t context = 0;
	size_t count;
	int err;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	if (glk_rpc_failed(call))
		return false;
	handles = glk_served(&count);
	if (context)
		one = glk_served_find(context);
	if (context && !one) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context");
		return false;
	}
	err = one ? glk_gather(&one, 1, gathered) : glk_gather(handles, count, gathered);
	if (err)
		glk_served_refuse(call, err);
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
	glk_served_add_process(json);
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
		glk_served_refuse(call, err);
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

	begin_gpu(json, handle, gpu);
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
	each_gpu(call, trim_one, &keep);
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
	begin_gpu(json, handle, gpu);
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
	each_gpu(call, budget_one, &bytes);
	glk_json_end(glk_rpc_result(call));
}

static void add_refusal(struct glk_json *json, struct glake *handle, int gpu)
{
	char text[GLK_REFUSAL_TEXT];

	/* most have refused nothing, and one that was not asked for memory neither */
	if (glake_refusal_text(
		    handle, gpu, GLAKE_REFUSAL_WHOLE, text, sizeof(text), NULL))
		return;
	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_add_int(json, "gpu", gpu);
	glk_json_add_text(json, "text", text);
	glk_json_end(json);
}

static void refusals(struct glk_rpc_call *call)
{
	struct glk_json *json = glk_rpc_result(call);
	struct glake *const *handles;
	size_t count;

	glk_json_array(json);
	handles = glk_served(&count);
	for (size_t i = 0; i < count; i++)
		for (int gpu = 0; gpu < glake_device_count(handles[i]); gpu++)
			add_refusal(json, handles[i], gpu);
	glk_json_end(json);
}

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
static void config_get(struct glk_rpc_call *call)
{
	struct glake_conf_value value = {.sz = sizeof(value)};
	struct glake_conf_key key = {.sz = sizeof(key)};
	const char *wanted = NULL;
	struct glake *handle;
	uint64_t context = 0;
	bool found = false;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	glk_rpc_text(call, "key", &wanted);
	if (glk_rpc_failed(call))
		return;
	handle = glk_served_find(context);
	if (!handle) {
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "there is no such context");
		return;
	}
	glk_json_array(glk_rpc_result(call));
	for (size_t i = 0; !glake_conf_key_get(i, &key); i++) {
		if ((wanted && !is_named(&key, wanted)) ||
			glake_conf_value_get(handle, i, &value))
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
static void refuse_question(struct glk_rpc_call *call, int err)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	if (err == -ENOENT || err == -EINVAL)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "%s", record.text);
	else
		glk_served_refuse(call, err);
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
		refuse_question(call, err);
		return;
	}
	while (!glake_conf_key_get(id, &key) && !is_named(&key, setting->key))
		id++;
	add_effective(glk_rpc_result(call), handle, id, &key);
}

static void config_set(struct glk_rpc_call *call)
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
		glk_served_refuse(call, err);
}

static void config_reload(struct glk_rpc_call *call)
{
	glk_json_array(glk_rpc_result(call));
	each_context(call, reload_one, NULL);
	glk_json_end(glk_rpc_result(call));
}

/* The context of the question that has the address; NULL after a failure. */
static struct glake *find_block(struct glk_rpc_call *call, void **ret_address)
{
	uint64_t context = 0, address = 0;
	struct glk_context *found;
	struct glake *handle = NULL;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	if (!glk_rpc_number(call, "address", INT64_MAX, &address))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "address, a number");
	while (!glk_rpc_failed(call) && (handle = glk_served_next(handle))) {
		if (context && glk_context_number(handle) != context)
			continue;
		if (!glk_context_get(handle, &found) && glk_context_cache(found, address))
			break;
	}
	if (!handle)
		glk_rpc_fail(call, GLK_RPC_PARAMETERS,
			"0x%llx is not memory of such a context",
			(unsigned long long)address);
	*ret_address = (void *)(uintptr_t)address;
	return glk_rpc_failed(call) ? NULL : handle;
}

/* Until what was queued for a block is done. */
static int wait_for(struct glake *handle, uint64_t address)
{
	struct glk_context *context;
	struct glk_cache *gpu;
	int err = glk_context_get(handle, &context);

	if (err)
		return err;
	gpu = glk_context_cache(context, address);
	return gpu ? context->drv->ops->device_sync(context->drv, gpu->device) : 0;
}

typedef int (*move_fn)(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/* On the default stream, behind those that the library knows to use the block. */
static void move(struct glk_rpc_call *call, move_fn fn)
{
	struct glk_json *json;
	void *address;
	struct glake *handle = find_block(call, &address);
	int err;

	if (!handle)
		return;
	glk_wire_takes_long();
	err = fn(handle, address, NULL);
	if (!err)
		err = wait_for(handle, (uintptr_t)address);
	if (err) {
		glk_served_refuse(call, err);
		return;
	}
	json = glk_rpc_result(call);
	glk_json_object(json);
	glk_json_add_uint(json, "context", glk_context_number(handle));
	glk_json_add_uint(json, "address", (uintptr_t)address);
	glk_json_end(json);
}

static void spill(struct glk_rpc_call *call)
{
	move(call, glake_spill);
}

static void fetch(struct glk_rpc_call *call)
{
	move(call, glake_fetch);
}

static void add_kv(struct glake_kv *kv, void *arg)
{
	struct glake_kv_figures f;
	struct glk_json *json = arg;

	glk_kv_figures(kv, &f);
	glk_json_object(json);
	glk_json_add_uint(json, "address", (uintptr_t)f.base);
	glk_json_add_uint(json, "size", f.size);
	glk_json_add_uint(json, "slots", f.slots);
	glk_json_add_uint(json, "most_tokens", f.tokens);
	glk_json_add_uint(json, "lanes", f.lanes);
	glk_json_add_uint(json, "sequences", f.sequences);
	glk_json_add_uint(json, "prefixes", f.prefixes);
	glk_json_add_uint(json, "tokens", f.length);
	glk_json_add_uint(json, "needed_bytes", f.needed);
	glk_json_add_uint(json, "held_bytes", f.held);
	glk_json_add_uint(json, "shared_bytes", f.shared);
	if (f.limit)
		glk_json_add_uint(json, "limit_bytes", f.limit);
	glk_json_add_uint(json, "grows", f.grows);
	glk_json_add_uint(json, "extends", f.extends);
	glk_json_add_uint(json, "pages", f.pages);
	glk_json_add_uint(json, "pages_ahead", f.pages_ahead);
	glk_json_add_uint(json, "forks", f.forks);
	glk_json_add_uint(json, "adopts", f.adopts);
	glk_json_add_uint(json, "refused", f.refused);
	glk_json_add_uint(json, "waits", f.waits);
	glk_json_add_uint(json, "out", f.outs);
	glk_json_add_uint(json, "away", f.away);
	glk_json_add_uint(json, "prefixes_away", f.prefixes_away);
	glk_json_end(json);
}

static int kv_one(struct glk_rpc_call *call, struct glake *handle, int gpu, void *arg)
{
	struct glk_json *json = glk_rpc_result(call);
	struct glk_context *context;

	(void)arg;
	if (glk_context_get(handle, &context))
		return 0;
	begin_gpu(json, handle, gpu);
	glk_json_key(json, "caches");
	glk_json_array(json);
	glk_kv_each(&context->caches[gpu], add_kv, json);
	glk_json_end(json);
	glk_json_end(json);
	return 0;
}

static void kv(struct glk_rpc_call *call)
{
	glk_json_array(glk_rpc_result(call));
	each_gpu(call, kv_one, NULL);
	glk_json_end(glk_rpc_result(call));
}

typedef int (*turn_fn)(struct glake *ctx, int device, struct glake_suspended *ret_done);

struct turn {
	turn_fn fn;
	int done, err;
};

/* One that is refused says so in its place: those before it have been done. */
static int turn_one(struct glk_rpc_call *call, struct glake *handle, int gpu, void *arg)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_json *json = glk_rpc_result(call);
	struct turn *turn = arg;
	int err = turn->fn(handle, gpu, &did);

	begin_gpu(json, handle, gpu);
	glk_json_add_uint(json, "moved_bytes", did.moved);
	glk_json_add_uint(json, "moved_blocks", did.moved_blocks);
	glk_json_add_uint(json, "stayed_bytes", did.stayed);
	glk_json_add_uint(json, "stayed_blocks", did.stayed_blocks);
	glk_json_add_uint(json, "released_bytes", did.released);
	if (err) {
		glake_last_error(&record);
		glk_json_add_text(
			json, "failed", record.err == err ? record.text : strerror(-err));
		turn->err = err;
	}
	glk_json_end(json);
	turn->done += !err;
	return 0;
}

/* `other` is done where the parameter of that name is true. */
static void turn(struct glk_rpc_call *call, turn_fn fn, const char *name, turn_fn other)
{
	struct turn turn = {.fn = fn};
	bool wants_other = false;

	glk_rpc_bool(call, name, &wants_other);
	if (glk_rpc_failed(call))
		return;
	if (wants_other)
		turn.fn = other;
	glk_wire_takes_long();
	glk_json_array(glk_rpc_result(call));
	each_gpu(call, turn_one, &turn);
	glk_json_end(glk_rpc_result(call));
	if (turn.err && !turn.done)
		glk_served_refuse(call, turn.err);
}

static void suspend(struct glk_rpc_call *call)
{
	turn(call, glake_suspend, "in_place", glake_suspend_in_place);
}

static void resume(struct glk_rpc_call *call)
{
	turn(call, glake_resume, "lazy", glake_resume_lazy);
}

#define DEDUP_GRAIN ((size_t)64 << 10)
#define DEDUP_RATE                                                                       \
	UINT64_C(200000000000) /* bytes a second: a twentieth of what a GPU reads */

static int likeness(struct glk_cache *cache, struct glk_json *json)
{
	struct glake_likeness parts, pages;
	int err = glk_cache_likeness(cache, DEDUP_GRAIN, DEDUP_RATE, &parts);

	if (!err)
		err = glk_cache_likeness(
			cache, cache->conf->pool_small_page, DEDUP_RATE, &pages);
	if (err)
		return err;
	glk_json_add_uint(json, "looked_bytes", parts.looked);
	glk_json_add_uint(json, "equal_bytes", parts.equal);
	glk_json_add_uint(json, "page_bytes", cache->conf->pool_small_page);
	glk_json_add_uint(json, "pages_looked_bytes", pages.looked);
	glk_json_add_uint(json, "pages_equal_bytes", pages.equal);
	return 0;
}

static int dedup_one(struct glk_rpc_call *call, struct glake *handle, int gpu, void *look)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glk_json *json = glk_rpc_result(call);
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(handle, gpu, &context, &cache);

	if (!err)
		err = glake_stats_get(handle, gpu, &stats);
	if (err)
		return err;
	begin_gpu(json, handle, gpu);
	glk_json_add_uint(json, "shared_bytes", stats.elastic_shared);
	if (*(bool *)look)
		err = likeness(cache, json);
	glk_json_end(json);
	return err;
}

static void dedup(struct glk_rpc_call *call)
{
	bool look = false;

	glk_rpc_bool(call, "look", &look);
	if (glk_rpc_failed(call))
		return;
	glk_wire_takes_long();
	glk_json_array(glk_rpc_result(call));
	each_gpu(call, dedup_one, &look);
	glk_json_end(glk_rpc_result(call));
}

static void info(struct glk_rpc_call *call);

static const struct glk_rpc_method methods[] = {
	{"info", {0}, info},
	{"stats", {"context"}, stats},
	{"metrics", {"context"}, metrics},
	{"trim", {"context", "gpu", "keep"}, trim},
	{"budget", {"context", "gpu", "bytes"}, budget},
	{"map", {"context", "gpu", "from"}, glk_method_map},
	{"origins", {"from"}, glk_method_origins},
	{"stack", {"stack"}, glk_method_stack},
	{"refusals", {0}, refusals},
	{"kv", {"context", "gpu"}, kv},
	{"whose", {"address"}, glk_method_whose},
	{"check", {"context"}, glk_method_check},
	{"dedup", {"context", "gpu", "look"}, dedup},
	{"config.get", {"context", "key"}, config_get},
	{"config.set", {"context", "key", "value"}, config_set},
	{"config.reload", {"context"}, config_reload},
	{"spill", {"context", "address"}, spill},
	{"fetch", {"context", "address"}, fetch},
	{"suspend", {"context", "gpu", "in_place"}, suspend},
	{"resume", {"context", "gpu", "lazy"}, resume},
	{"trace.start", {"context", "file", "size"}, glk_method_trace_start},
	{"trace.stop", {"context"}, glk_method_trace_stop},
	{0},
};

static void info(struct glk_rpc_call *call)
{
	struct glk_json *json = glk_rpc_result(call);
	struct glake *const *handles;
	size_t count;

	glk_json_object(json);
	glk_served_add_process(json);
	glk_json_key(json, "methods");
	glk_json_array(json);
	for (size_t i = 0; methods[i].name; i++)
		glk_json_text(json, methods[i].name);
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

/* Orders contexts that come and go with the beginning and the end of the socket. */
static struct glk_lock starting = GLK_LOCK_INIT(GLK_RANK_SERVED);
static bool is_open; /* the socket; with `starting` */

static size_t answer(const char *line, size_t length, char *text, size_t size, void *arg)
{
	size_t used;

	glk_served_answer();
	used = glk_rpc_answer(methods, line, length, text, size);
	glk_served_answered();
	return used;
}

static int start(char *why)
{
	static const struct glk_wire_options options = {
		.answer = answer, .thread_name = "glake-rpc"};
	struct glake_error record = {.sz = sizeof(record)};
	int err = glk_rpc_init();

	if (!err)
		return glk_wire_serve(&options, why);
	glake_last_error(&record);
	snprintf(why, GLK_WIRE_WHY_MAX, "%s", record.text);
	return err;
}

void glk_socket_begin(struct glake *handle, const struct glk_context *context)
{
	char why[GLK_WIRE_WHY_MAX];
	int err = 0;

	if (!context->conf.rpc_socket)
		return;
	glk_lock(&starting);
	if (!is_open)
		err = start(why);
	if (!err) {
		is_open = true;
		glk_served_add(handle);
	}
	glk_unlock(&starting);
	if (err)
		glk_warn("there is no socket to watch this process by: %s", why);
}

void glk_socket_end(struct glake *handle)
{
	if (!glk_served_remove(handle))
		return;
	/* another may have come meanwhile */
	glk_lock(&starting);
	if (is_open && glk_served_is_none()) {
		glk_wire_end();
		is_open = false;
	}
	glk_unlock(&starting);
}

void glk_socket_forked(void)
{
	is_open = false;
	glk_served_forked();
}
