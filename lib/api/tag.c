/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The public face of blocks with a tag: see glake/tag.h. The names of a context are kept here, and the
 * numbers that they have; each GPU is told which of them are open.
 */
#include "api/context.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/sized.h"
#include "cache/bin/hit.h"
#include "guard/guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <glake/tag.h>

/* The lowest bits of a number are its entry's, from 1; the rest counts who had the entry. */
#define BITS 8
_Static_assert(GLAKE_TAGS_MAX < 1 << BITS, "the number of a tag has room");

/* Of all contexts: tags are opened and closed rarely. */
static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_TAG);

static int is_none(uint32_t tag)
{
	return glk_error(-ESTALE, GLAKE_ERROR_STALE, "0x%" PRIx32 " is no open tag", tag);
}

static struct glk_context_tag *find(struct glk_context *context, uint32_t tag)
{
	uint32_t number = tag & ((1u << BITS) - 1);
	struct glk_context_tag *t;

	if (!number || number > GLAKE_TAGS_MAX)
		return NULL;
	t = &context->tags[number - 1];
	return t->opens && t->id == tag ? t : NULL;
}

static struct glk_context_tag *find_name(struct glk_context *context, const char *name)
{
	for (int i = 0; i < GLAKE_TAGS_MAX; i++) {
		if (context->tags[i].opens && !strcmp(context->tags[i].name, name))
			return &context->tags[i];
	}
	return NULL;
}

/* From each GPU up to one. */
static int close_until(struct glk_context *context, uint32_t id, int devices)
{
	int err = 0;

	for (int i = 0; i < devices && !err; i++) {
		err = glk_cache_tag_close(&context->caches[i], id);
		/* those that were closed before have no block of it */
		for (int open = 0; err && open < i; open++)
			glk_cache_tag_open(&context->caches[open], id);
	}
	return err;
}

static int make(struct glk_context *context, const char *name, uint32_t *ret_tag)
{
	struct glk_context_tag *t = NULL;
	uint32_t id;
	int err = 0;

	for (int i = 0; i < GLAKE_TAGS_MAX && !t; i++)
		t = context->tags[i].opens ? NULL : &context->tags[i];
	if (!t)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"%d tags are open, the most there can be", GLAKE_TAGS_MAX);
	id = (t->id >> BITS) + 1;
	id = id << BITS | (uint32_t)(t - context->tags + 1);
	for (int i = 0; i < context->devices && !err; i++) {
		err = glk_cache_tag_open(&context->caches[i], id);
		if (err)
			close_until(context, id, i);
	}
	if (err)
		return err;
	t->id = id;
	t->opens = 1;
	snprintf(t->name, sizeof(t->name), "%s", name);
	*ret_tag = id;
	return 0;
}

int glake_tag_open(struct glake *ctx, const char *name, uint32_t *ret_tag)
{
	struct glk_context *context;
	struct glk_context_tag *t;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	if (!name || !*name || strnlen(name, GLAKE_TAG_NAME_MAX) == GLAKE_TAG_NAME_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a tag has a name of 1 to %d bytes", GLAKE_TAG_NAME_MAX - 1);
	if (!ret_tag)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the tag");
	glk_lock(&lock);
	t = find_name(context, name);
	if (t && t->opens == UINT32_MAX) {
		err = glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"the tag is open as often as it can be");
	} else if (t) {
		t->opens++;
		*ret_tag = t->id;
	} else {
		err = make(context, name, ret_tag);
	}
	glk_unlock(&lock);
	return err;
}

int glake_tag_close(struct glake *ctx, uint32_t tag)
{
	struct glk_context *context;
	struct glk_context_tag *t;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	glk_lock(&lock);
	t = find(context, tag);
	if (!t)
		err = is_none(tag);
	else if (t->opens == 1)
		err = close_until(context, tag, context->devices);
	if (!err)
		t->opens--;
	glk_unlock(&lock);
	return err;
}

int glake_tag_set(struct glake *ctx, uint32_t tag, uint32_t *ret_was)
{
	struct glk_context *context;
	uint32_t was;
	int err = glk_context_get(ctx, &context);

	if (err)
		return err;
	glk_lock(&lock);
	if (tag && !find(context, tag))
		err = is_none(tag);
	glk_unlock(&lock);
	if (err)
		return err;
	was = glk_seat_tag(context->caches);
	err = glk_seat_set_tag(context->caches, tag);
	if (err)
		return glk_error(err, GLAKE_ERROR_NOMEM_HOST,
			"no memory to keep the tag of a thread in");
	for (int i = 0; tag && i < context->devices; i++)
		glk_seat_leave(&context->caches[i]);
	if (ret_was)
		*ret_was = was;
	return 0;
}

int glake_tag_get(struct glake *ctx, int device, uint32_t tag, struct glake_tag *ret_tag)
{
	struct glake_tag did = {.sz = sizeof(did)};
	const struct glk_context_tag *t;
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(ctx, device, &context, &cache);

	if (err)
		return err;
	glk_lock(&lock);
	t = find(context, tag);
	err = t ? glk_cache_tag_get(cache, tag, &did) : is_none(tag);
	if (!err)
		memcpy(did.name, t->name, sizeof(did.name));
	glk_unlock(&lock);
	return err ? err : glk_sized_out(ret_tag, &did, sizeof(did));
}

int glake_tag_limit_set(struct glake *ctx, int device, uint32_t tag, uint64_t bytes)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(ctx, device, &context, &cache);

	if (err)
		return err;
	glk_lock(&lock);
	err = find(context, tag) ? glk_cache_tag_limit(cache, tag, bytes) : is_none(tag);
	glk_unlock(&lock);
	return err;
}

/* A mode of blocks with a tag; less than 0: it is none. */
static int mode_of(const char *mode)
{
	if (!mode || !strcmp(mode, "off"))
		return GLK_GUARD_OFF;
	if (!strcmp(mode, "canary"))
		return GLK_GUARD_CANARY;
	if (!strcmp(mode, "poison"))
		return GLK_GUARD_POISON;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"'%s' is no mode of a tag: off, canary, poison", mode);
}

int glake_tag_guard_set(
	struct glake *ctx, int device, uint32_t tag, const char *mode, int level)
{
	struct glk_context *context;
	struct glk_cache *cache;
	int err = glk_context_device(ctx, device, &context, &cache), value;

	if (err)
		return err;
	value = mode_of(mode);
	if (value < 0)
		return value;
	if (level < -1 || level > 3)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%d is no level of security: 0 to 3, or -1", level);
	glk_lock(&lock);
	err = find(context, tag) ? glk_guard_tag(cache, tag, level, mode ? value : -1)
				 : is_none(tag);
	glk_unlock(&lock);
	return err;
}

/* What it can take is asked before anything moves. */
static int begin(struct glake *ctx, int device, struct glake_suspended *ret,
	struct glk_cache **ret_cache)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_context *context;
	int err = glk_context_device(ctx, device, &context, ret_cache);

	return !err && ret ? glk_sized_out(ret, &did, sizeof(did)) : err;
}

int glake_tag_suspend(struct glake *ctx, int device, uint32_t tag, uint32_t flags,
	struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_cache *cache;
	int err = begin(ctx, device, ret, &cache), cancel;

	if (err)
		return err;
	if (flags & ~GLAKE_TAG_DROP)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "unknown flags 0x%x",
			flags & ~GLAKE_TAG_DROP);
	cancel = glk_cancel_off();
	err = glk_cache_tag_suspend(cache, tag, flags, &did);
	glk_cancel_restore(cancel);
	if (ret)
		glk_sized_out(ret, &did, sizeof(did));
	return err;
}

int glake_tag_resume(
	struct glake *ctx, int device, uint32_t tag, struct glake_suspended *ret)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glk_cache *cache;
	int err = begin(ctx, device, ret, &cache), cancel;

	if (err)
		return err;
	cancel = glk_cancel_off();
	err = glk_cache_tag_resume(cache, tag, &did);
	glk_cancel_restore(cancel);
	if (ret)
		glk_sized_out(ret, &did, sizeof(did));
	return err;
}
