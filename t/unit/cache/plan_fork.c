/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A process is forked while a request stands in a call of the driver: the child may close the context,
 * and start another program. */
#include "plan_parts.h"

#include "api/context.h"

#include <glake/glake.h>

#include <sys/wait.h>

static struct glake *ctx;

/* A context whose driver has the gate before it. */
static void open_context(void)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = (const char *const[]){"soft.memory=1GiB", NULL}};
	struct glk_context *context;

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
	gate.drv = (struct glk_drv){.ops = &gate_ops, .inner = context->drv};
	gate.op = -1;
	context->drv = &gate.drv;
	context->pool.drv = &gate.drv;
	for (int i = 0; i < context->devices; i++) {
		context->caches[i].drv = &gate.drv;
		context->caches[i].imports.drv = &gate.drv;
	}
}

static void errand_context(struct errand *e)
{
	void *ptr = NULL;

	e->err = glake_alloc(ctx, 0, e->size, NULL, e->flags, &ptr);
	e->addr = (uint64_t)(uintptr_t)ptr;
}

/* What a child may do, or the number of what went wrong. */
static int live_as_child(bool starts)
{
	void *ptr;

	alarm(300);
	if (glake_alloc(ctx, 0, 1, NULL, 0, &ptr) != -ENODEV)
		return 1;
	if (glake_close(ctx, NULL))
		return 2;
	if (starts)
		execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
	return starts ? 3 : 0;
}

static void forks(const struct plan_op *op, int err, bool starts)
{
	struct errand e = {.fn = errand_context, .size = 20 * MIB};
	size_t leaked = 9;
	int status = -1;
	struct held got;
	pid_t pid;
	void *ptr;

	open_context();
	if (glake_alloc(ctx, 0, 5000, NULL, 0, &ptr))
		tap_bail("no block");
	ok(gate_send(&e, op->op, 1), "a request stands in %s", op->name);
	pid = fork();
	if (!pid)
		_exit(live_as_child(starts));
	waitpid(pid, &status, 0);
	is_int(status, 0, "a child closes the context and ends");
	is_int(gate_end(&e, err), err, "the request of its parent ends as the call does");
	got = plan_got(&e);
	ok(!got.addr ||
			(has_marks(&got) &&
				!glake_free(ctx, (void *)(uintptr_t)got.addr, NULL)),
		"its block can be used");
	is_int(glake_free(ctx, ptr, NULL), 0, "and the others");
	is_int(glake_close(ctx, &leaked), 0, "the parent closes it");
	is_int((int64_t)leaked, 0, "and nothing is left");
}

int main(void)
{
	tap_plan_later();
	for (size_t i = 0; i < 3; i++) {
		forks(&plan_ops[i], 0, false);
		forks(&plan_ops[i], -EIO, true);
	}
	return tap_done();
}
