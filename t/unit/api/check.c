/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The books of the library beside the driver's, while a request is in the middle of a page, and where they are wrong. */
#include "api/context.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static struct glk_context *context;

static struct {
	const struct glk_drv_ops *usual;
	struct glk_drv_ops ops;
	int calls, wrong; /* checks, and those that said so */
	bool going;	  /* pages go back between the two questions of a check */
} during;

static void look(void)
{
	during.calls++;
	during.wrong += glake_check(ctx, NULL) != 0;
}

static int creates(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t kinds, uint64_t *ret_handle)
{
	int err;

	look();
	err = during.usual->create(drv, place, size, kinds, ret_handle);
	look();
	return err;
}

static int releases(struct glk_drv *drv, uint64_t handle)
{
	int err;

	look();
	err = during.usual->release(drv, handle);
	look();
	return err;
}

/* What the library holds goes back before the driver answers. */
static int tells(struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total)
{
	if (during.going) {
		during.going = false;
		is_int(glake_trim(ctx, 0, 0, NULL), 0, "pages go back while it is asked");
	}
	return during.usual->memory_info(drv, device, ret_free, ret_total);
}

static void begin(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
	during.usual = context->drv->ops;
	during.ops = *during.usual;
	during.ops.create = creates;
	during.ops.release = releases;
	during.ops.memory_info = tells;
	context->drv->ops = &during.ops;
}

static void beside(void)
{
	void *p = NULL;

	is_int(glake_alloc(ctx, 0, 5 * MIB, NULL, 0, &p), 0, "a block");
	ok(during.calls >= 2 && !during.wrong,
		"nothing is wrong before its pages are made, nor behind that");
	is_int(glake_free(ctx, p, NULL), 0, "it is freed");
	during.calls = 0;
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "its pages go back");
	ok(during.calls >= 2 && !during.wrong, "nothing is wrong meanwhile");
	is_int(glake_alloc(ctx, 0, 5 * MIB, NULL, 0, &p), 0, "one more");
	is_int(glake_free(ctx, p, NULL), 0, "  is freed");
	during.going = true;
	is_int(glake_check(ctx, NULL), 0, "  nor then");
	ok(!during.going, "  which was so");
}

/* The driver has less in use than it made for the library. */
static void wrong(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	struct glk_node *node = context->caches[0].node;
	void *p = NULL;

	is_int(glake_alloc(ctx, 0, 5 * MIB, NULL, 0, &p), 0, "a block");
	glk_add_relaxed(&node->made, 1024 * 1024 * MIB);
	is_int(glake_check(ctx, NULL), -EIO, "books that are wrong");
	glake_last_error(&error);
	ok(error.error_class == GLAKE_ERROR_CORRUPT, "  are said to be: %s", error.text);
	glk_sub_relaxed(&node->made, 1024 * 1024 * MIB);
	is_int(glake_check(ctx, NULL), 0, "  and right again");
	glake_free(ctx, p, NULL);
}

int main(void)
{
	size_t leaked;

	tap_plan_later();
	begin();
	beside();
	wrong();
	context->drv->ops = during.usual;
	is_int(sound_close(ctx, &leaked), 0, "closed");
	return tap_done();
}
