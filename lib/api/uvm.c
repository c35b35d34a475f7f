/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The public face of what the kernel module tells of managed memory: see glake/uvm.h. One lock
 * orders all of it, which no request for memory takes; calls of the module are made under it.
 */
#include "api/uvm.h"

#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "uvm_bridge/uvm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_MANAGED);
static struct glk_uvm *bridge;	    /* under the lock; NULL: none */
static glk_atomic(uintptr_t) owner; /* the context that has it open; 0: none */

static bool has(const struct glk_context *context)
{
	return glk_load_relaxed(&owner) == (uintptr_t)context;
}

/* "GPU-8f0c..." or "MIG-..." as the 16 bytes that the module knows it by. */
static bool parse_uuid(const char *text, uint8_t ret_uuid[16])
{
	unsigned int byte;

	text = strchr(text, '-');
	for (int i = 0; text && i < 16; i++) {
		text += *text == '-';
		if (sscanf(text, "%2x", &byte) != 1)
			return false;
		ret_uuid[i] = (uint8_t)byte;
		text += 2;
	}
	return text && !*text;
}

static int take_gpus(struct glk_context *context, struct glk_uvm_setup *setup)
{
	int err = 0;

	setup->gpus = context->devices < GLK_UVM_GPUS ? context->devices : GLK_UVM_GPUS;
	for (int i = 0; i < setup->gpus && !err; i++) {
		struct glake_device info = {.sz = sizeof(info)};

		err = context->drv->ops->device_info(context->drv, i, &info);
		if (!err && !parse_uuid(info.uuid, setup->uuid[i]))
			memset(setup->uuid[i], 0, sizeof(setup->uuid[i]));
	}
	return err;
}

int glk_managed_open(struct glk_context *context, const struct glake_uvm_options *options,
	const struct glk_uvm_ops *ops, char generation, int major, int minor)
{
	struct glake_uvm_options wanted = {.sz = sizeof(wanted)};
	struct glk_uvm_setup setup = {
		.ops = ops, .generation = generation, .major = major, .minor = minor};
	int err = 0;

	if (options)
		err = glk_sized_in(options, &wanted, sizeof(wanted));
	if (!err)
		err = take_gpus(context, &setup);
	if (err)
		return err;
	setup.flags = wanted.flags;
	setup.events = wanted.events;
	setup.entries = wanted.entries;
	setup.managed = wanted.managed;
	setup.managed_size = wanted.managed_size;
	glk_lock(&lock);
	if (bridge)
		err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"%s has the counters of managed memory open",
			has(context) ? "this context" : "another context");
	else
		err = glk_uvm_open(&setup, &bridge);
	if (!err)
		/* pairs with: the acquire in glk_managed_forked */
		glk_store_release(&owner, (uintptr_t)context);
	glk_unlock(&lock);
	return err;
}

static int refuse(const struct glake_uvm_tools *tools)
{
	bool denied = tools->state == GLAKE_UVM_NO_PERMISSION;

	return glk_error(denied ? -EACCES : -EOPNOTSUPP,
		denied ? GLAKE_ERROR_PERM : GLAKE_ERROR_UNSUPPORTED, "%s", tools->text);
}

int glake_uvm_open(struct glake *ctx, const struct glake_uvm_options *options)
{
	struct glake_uvm_tools tools;
	struct glk_context *context;
	int err, major;

	err = glk_context_get(ctx, &context);
	if (err)
		return err;
	if (strcmp(glk_drv_name(context->drv), "cuda"))
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"the software device has no managed memory");
	if (!context->conf.uvm_tools)
		return glk_error(
			-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED, "uvm.tools is off");
	glk_uvm_tools_read(NULL, &tools, &major);
	if (tools.state != GLAKE_UVM_OK)
		return refuse(&tools);
	return glk_managed_open(context, options, NULL, tools.generation[0], major, 0);
}

/* Takes the lock if the context has them open; else there is no lock to give back. */
static int enter(struct glake *ctx)
{
	struct glk_context *context;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (has(context)) {
		glk_lock(&lock);
		if (has(context))
			return 0;
		glk_unlock(&lock);
	}
	return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
		"this context does not have the counters of managed memory open");
}

#define PLACES 64 /* that one call says something of */

/* Gives the lock up; then memory that went to and fro is said to be used by who had it. */
static void leave(struct glake *ctx, bool advises)
{
	struct glk_uvm_place places[PLACES];
	struct glk_context *context;
	size_t count = 0;
	int cancel;

	advises = advises && !glk_context_get(ctx, &context) && context->conf.uvm_advise;
	if (advises)
		count = glk_uvm_places(bridge, places, PLACES);
	glk_unlock(&lock);
	if (!count)
		return;
	cancel = glk_cancel_off();
	for (size_t i = 0; i < count; i++) {
		struct glk_cache *cache = glk_context_cache(context, places[i].address);

		if (cache)
			glk_cache_managed_ease(cache, places[i].address,
				places[i].processors, places[i].since_ns);
	}
	glk_cancel_restore(cancel);
}

static void end(void)
{
	struct glk_uvm *gone = bridge;

	glk_store_relaxed(&owner, 0);
	bridge = NULL;
	glk_uvm_close(gone);
}

int glake_uvm_close(struct glake *ctx)
{
	int err = enter(ctx);

	if (err)
		return err;
	end();
	glk_unlock(&lock);
	return 0;
}

int glake_uvm_figures_get(struct glake *ctx, struct glake_uvm_figures *ret_figures)
{
	struct glake_uvm_figures figures;
	int err = enter(ctx);

	if (err)
		return err;
	glk_uvm_figures(bridge, &figures);
	leave(ctx, glk_uvm_sums_only(bridge));
	return glk_sized_out(ret_figures, &figures, sizeof(figures));
}

int glake_uvm_drain(struct glake *ctx, struct glake_uvm_event *events, size_t count,
	size_t *ret_count)
{
	int err;

	if (!events || !ret_count)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the events");
	err = enter(ctx);
	if (err)
		return err;
	if (glk_uvm_kinds(bridge) && !glk_uvm_sums_only(bridge))
		err = glk_uvm_drain(bridge, events, count, ret_count);
	else
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"opened without events, or with GLAKE_UVM_SUMS");
	leave(ctx, true);
	return err;
}

int glake_uvm_pressure_get(struct glake *ctx, struct glake_uvm_pressure *ret_pressure)
{
	const uint32_t needed = GLAKE_UVM_MIGRATION | GLAKE_UVM_REMOTE_MAP;
	struct glake_uvm_pressure pressure = {.sz = sizeof(pressure)};
	int err = glk_sized_out(ret_pressure, &pressure, sizeof(pressure));

	/* what it can take is asked before anything is told */
	if (!err)
		err = enter(ctx);
	if (err)
		return err;
	if ((glk_uvm_kinds(bridge) & needed) == needed)
		err = glk_uvm_pressure(bridge, &pressure);
	else
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"opened without GLAKE_UVM_MIGRATION or GLAKE_UVM_REMOTE_MAP");
	leave(ctx, true);
	return err ? err : glk_sized_out(ret_pressure, &pressure, sizeof(pressure));
}

int glake_uvm_tools_get(struct glake_uvm_tools *ret_tools)
{
	struct glake_uvm_tools tools;
	int major;

	glk_uvm_tools_read(NULL, &tools, &major);
	return glk_sized_out(ret_tools, &tools, sizeof(tools));
}

const char *glake_uvm_state_name(int state)
{
	static const char *const names[] = {"OK", "NO_MODULE", "UNKNOWN", "NO_NODE",
		"NO_PERMISSION", "NO_CUDA", "AMBIGUOUS", "MISFIT", "REFUSED", "SICK",
		"AGAIN", "GONE", "BROKEN", "PAUSED"};

	if (state < 0 || (size_t)state >= sizeof(names) / sizeof(*names))
		return "?";
	return names[state];
}

/* Calls fn on them if the context has them open. */
static bool with(const struct glk_context *context, void (*fn)(struct glk_uvm *uvm))
{
	bool is = has(context);

	if (!is)
		return false;
	glk_lock(&lock);
	is = has(context);
	if (is && fn)
		fn(bridge);
	else if (is)
		end();
	glk_unlock(&lock);
	return is;
}

void glk_managed_end(const struct glk_context *context)
{
	with(context, NULL);
}

void glk_managed_pause(const struct glk_context *context)
{
	with(context, glk_uvm_pause);
}

void glk_managed_continue(const struct glk_context *context)
{
	with(context, glk_uvm_continue);
}

bool glk_managed_figures(
	const struct glk_context *context, struct glake_uvm_figures *ret_figures)
{
	bool is = has(context);

	if (!is)
		return false;
	glk_lock(&lock);
	is = has(context);
	if (is)
		glk_uvm_figures(bridge, ret_figures);
	glk_unlock(&lock);
	return is;
}

void glk_managed_forked(void)
{
	/* pairs with: the release in glk_managed_open */
	if (!glk_load_acquire(&owner))
		return;
	glk_store_relaxed(&owner, 0);
	if (bridge)
		glk_uvm_forked(bridge);
	bridge = NULL;
}
