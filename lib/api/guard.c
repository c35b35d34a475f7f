/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of guard, see glake/guard.h, and the methods whose and check of the socket. */
#include "guard/guard.h"
#include "api/context.h"
#include "api/served.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "share/publish.h"
#include "wire/wire.h"

#include <errno.h>
#include <inttypes.h>

/* Times that the driver is asked while pages go back to it. */
#define ASKED 8

/* Pages that the driver has made for the library are a part of what it says is in use. */
static int compare(struct glk_cache *cache)
{
	struct glk_node *node = cache->node;
	uint64_t made, going;
	size_t left, total;
	int err;

	if (!glk_load_acquire(&cache->started)) /* pairs with: glk_cache_start */
		return 0;
	for (int i = 0; i < ASKED; i++) {
		/* what went back between the two is in the first and not in the second; what was made is in the second */
		going = glk_load_acquire(&node->going);
		made = glk_load_acquire(&node->made); /* pairs with: glk_node_release */
		err = cache->drv->ops->memory_info(
			cache->drv, cache->device, &left, &total);
		if (err || made <= total - left)
			return err;
		if (glk_load_acquire(&node->going) == going)
			return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
				"the books have %" PRIu64
				" bytes of pages of GPU %d, of which the driver says that %zu are in use",
				made, cache->device, total - left);
	}
	return 0;
}

/* Looks, and tells nobody; adds to *did. */
static int look(struct glk_context *context, struct glake_checked *did)
{
	int err = 0;

	for (int i = 0; i < context->devices && !err; i++) {
		err = glk_guard_check(&context->caches[i], did);
		if (!err)
			err = glk_cache_check_away(&context->caches[i], &did->contents);
		if (!err)
			err = glk_cache_check_sealed(
				&context->caches[i], true, &did->contents);
		if (!err && glk_load_relaxed(&context->caches[i].encrypts))
			err = glk_published_check(context->lessee, context->caches[i].drv,
				i, &did->contents);
		if (!err)
			err = compare(&context->caches[i]);
	}
	return err;
}

int glake_check(struct glake *ctx, struct glake_checked *ret_checked)
{
	struct glake_checked did = {.sz = sizeof(did)};
	struct glk_context *context;
	int err = glk_context_get(ctx, &context), told = 0, cancel;

	/* what it can take is asked before anything is looked at */
	if (!err && ret_checked)
		err = glk_sized_out(ret_checked, &did, sizeof(did));
	if (err)
		return err;
	cancel = glk_cancel_off();
	err = look(context, &did);
	for (int i = 0; i < context->devices && !err && !told; i++)
		told = glk_guard_tell(&context->caches[i]);
	glk_cancel_restore(cancel);
	if (ret_checked)
		glk_sized_out(ret_checked, &did, sizeof(did));
	return err ? err : told;
}

int glake_finding_get(
	struct glake *ctx, int device, uint64_t number, struct glake_finding *ret_finding)
{
	struct glake_finding found = {0};
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(ctx, device, &context, &cache);

	if (!err && !ret_finding)
		err = glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no place for what was found");
	if (!err)
		err = glk_guard_finding(cache, number, &found);
	return err ? err : glk_sized_out(ret_finding, &found, sizeof(found));
}

int glake_describe(
	struct glake *ctx, const void *ptr, struct glake_described *ret_described)
{
	struct glake_described d = {.sz = sizeof(d), .device = -1};
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_get(ctx, &context), cancel;

	if (!err)
		err = glk_sized_out(ret_described, &d, sizeof(d));
	if (err)
		return err;
	cancel = glk_cancel_off();
	cache = glk_context_cache(context, addr);
	if (cache)
		glk_guard_describe(cache, addr, &d);
	glk_cancel_restore(cancel);
	return glk_sized_out(ret_described, &d, sizeof(d));
}

int glake_block_name(struct glake *ctx, const void *ptr, const char *name)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (ptr && !name)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no name");
	/* one for all GPUs */
	if (!ptr)
		return glk_guard_has_tool(&context->caches[0]) ? 0 : -ENOENT;
	cache = glk_context_cache(context, addr);
	return glk_guard_name(cache ? cache : &context->caches[0], addr, name);
}

const char *glake_finding_name(int kind)
{
	return glk_guard_kind_name(kind);
}

const char *glake_what_name(int what)
{
	static const char *const names[] = {
		"foreign", "live", "behind", "freed", "free", "guard"};

	return what < 0 || (size_t)what >= sizeof(names) / sizeof(*names) ? NULL
									  : names[what];
}

static void add_address(struct glk_json *json, const char *key, const void *address)
{
	glk_json_add_uint(json, key, (uintptr_t)address);
}

/* In the context that has the address; that it is of none is an answer too. */
void glk_method_whose(struct glk_rpc_call *call)
{
	struct glk_json *json = glk_rpc_result(call);
	struct glake_described d = {.sz = sizeof(d), .device = -1};
	struct glake *handle = NULL;
	uint64_t address = 0;

	if (!glk_rpc_number(call, "address", INT64_MAX, &address))
		glk_rpc_fail(call, GLK_RPC_PARAMETERS, "address, a number");
	while (!glk_rpc_failed(call) && !d.what && (handle = glk_served_next(handle)))
		glake_describe(handle, (void *)(uintptr_t)address, &d);
	if (glk_rpc_failed(call))
		return;
	glk_json_object(json);
	glk_json_add_uint(json, "address", address);
	glk_json_add_text(json, "what", glake_what_name(d.what));
	if (d.what)
		glk_json_add_int(json, "gpu", d.device);
	if (d.base) {
		add_address(json, "base", d.base);
		glk_json_add_uint(json, "size", d.size);
		glk_json_add_uint(json, "given", d.given);
		glk_json_add_int(json, "offset", d.offset);
		add_address(json, "stream", d.stream);
		glk_json_add_uint(json, "tag", d.tag);
	}
	if (d.thread) {
		glk_json_add_uint(json, "thread", d.thread);
		glk_json_add_int(json, "age_ns", d.age_ns);
	}
	if (d.freed_by) {
		glk_json_add_uint(json, "freed_by", d.freed_by);
		glk_json_add_int(json, "freed_ns", d.freed_ns);
	}
	if (d.before) {
		add_address(json, "before", d.before);
		glk_json_add_uint(json, "before_size", d.before_size);
	}
	if (d.behind) {
		add_address(json, "behind", d.behind);
		glk_json_add_uint(json, "behind_size", d.behind_size);
	}
	glk_json_end(json);
}

static void add_finding(struct glk_json *json, const struct glake_finding *f)
{
	glk_json_object(json);
	glk_json_add_int(json, "gpu", f->device);
	glk_json_add_text(json, "kind", glake_finding_name(f->kind));
	add_address(json, "base", f->base);
	glk_json_add_uint(json, "size", f->size);
	glk_json_add_uint(json, "offset", f->offset);
	glk_json_add_uint(json, "bytes", f->bytes);
	add_address(json, "stream", f->stream);
	glk_json_add_uint(json, "owners", f->owners);
	glk_json_add_uint(json, "thread", f->thread);
	glk_json_add_uint(json, "freed_by", f->freed_by);
	glk_json_add_int(json, "age_ns", f->age_ns);
	glk_json_add_int(json, "freed_ns", f->freed_ns);
	add_address(json, "next", f->next);
	glk_json_add_uint(json, "next_size", f->next_size);
	glk_json_end(json);
}

/* Those that are kept. */
static void add_findings(struct glk_json *json, struct glake *handle, int gpu)
{
	struct glake_finding f = {.sz = sizeof(f)};
	struct glk_context *context;
	uint64_t end;

	if (glk_context_get(handle, &context))
		return;
	end = glk_guard_count(&context->caches[gpu]);
	for (uint64_t i = end > GLAKE_FINDINGS ? end - GLAKE_FINDINGS : 0; i < end; i++)
		if (!glake_finding_get(handle, gpu, i, &f))
			add_finding(json, &f);
}

/* The program is told of what was found by its own calls. */
void glk_method_check(struct glk_rpc_call *call)
{
	struct glk_json *json = glk_rpc_result(call);
	struct glk_context *looked;
	struct glake *handle = NULL;
	uint64_t context = 0;
	int err;

	glk_rpc_number(call, "context", GLAKE_CONTEXT_MAX, &context);
	if (glk_rpc_failed(call))
		return;
	glk_json_array(json);
	while ((handle = glk_served_next(handle))) {
		struct glake_checked c = {.sz = sizeof(c)};

		if (context && glk_context_number(handle) != context)
			continue;
		err = glk_context_get(handle, &looked);
		if (!err)
			err = look(looked, &c);
		if (err) {
			glk_served_refuse(call, err);
			return;
		}
		glk_json_object(json);
		glk_json_add_uint(json, "context", glk_context_number(handle));
		glk_json_add_uint(json, "blocks", c.blocks);
		glk_json_add_uint(json, "broken", c.broken);
		glk_json_add_uint(json, "freed", c.freed);
		glk_json_add_uint(json, "kept", c.kept);
		glk_json_add_uint(json, "again", c.again);
		glk_json_add_uint(json, "contents", c.contents);
		glk_json_add_uint(json, "cleared", c.cleared);
		glk_json_add_uint(json, "uncleared", c.uncleared);
		glk_json_add_uint(json, "unchecked", c.unchecked);
		glk_json_add_uint(json, "unguarded", c.unguarded);
		glk_json_add_uint(json, "findings", c.findings);
		glk_json_key(json, "last");
		glk_json_array(json);
		for (int gpu = 0; gpu < glake_device_count(handle); gpu++)
			add_findings(json, handle, gpu);
		glk_json_end(json);
		glk_json_end(json);
	}
	glk_json_end(json);
}
