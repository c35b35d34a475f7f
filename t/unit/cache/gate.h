/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_GATE_H
#define GLK_UNIT_CACHE_GATE_H

/*
 * A request that stands in the middle of its plan for as long as a test wants: it runs in a thread
 * of its own, whose n-th call of one operation of the driver waits at a gate. Other threads pass.
 * When the gate is opened the call goes on to the driver, or fails without reaching it.
 */
#include "unit/cache/rig.h"

#include "base/error.h"
#include "driver/ops.h"

struct gate {
	struct glk_drv drv;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int op, left; /* the calls of that operation before the one that waits */
	int err;      /* its answer; 0: that of the driver */
	bool standing, open;
};

static struct gate gate = {
	.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Whether the thread is one that waits. */
static _Thread_local bool gate_is_mine;

static inline int gate_pass(int op)
{
	int err = 0;

	if (!gate_is_mine)
		return 0;
	pthread_mutex_lock(&gate.mutex);
	if (op == gate.op && !gate.left--) {
		gate.standing = true;
		pthread_cond_broadcast(&gate.changed);
		while (!gate.open)
			pthread_cond_wait(&gate.changed, &gate.mutex);
		gate.standing = false;
		gate.op = -1;
		err = gate.err;
	}
	pthread_mutex_unlock(&gate.mutex);
	return err ? glk_error(err, GLAKE_ERROR_DRIVER, "refused at the gate") : 0;
}

#define X(op, params, args, call)                                                        \
	static int gate_##op params                                                      \
	{                                                                                \
		int err = gate_pass(GLK_OP_##op);                                        \
		struct glk_drv *inner = drv->inner;                                      \
                                                                                         \
		return err ? err : inner->ops->op args;                                  \
	}
GLK_DRV_OPS(X)
#undef X

static int gate_figures(struct glk_drv *drv, struct glake_driver_stats *ret_stats)
{
	return drv->inner->ops->figures(drv->inner, ret_stats);
}

static int gate_close(struct glk_drv *drv)
{
	return drv->inner->ops->close(drv->inner);
}

static const struct glk_drv_ops gate_ops = {.version = GLK_DRV_OPS_VERSION,
	.name = "gate",
	.close = gate_close,
	.figures = gate_figures,
#define X(op, params, args, call) .op = gate_##op,
	GLK_DRV_OPS(X)
#undef X
};

static inline void gate_open_rig(struct rig *rig, const char *const *settings)
{
	rig_open(rig, settings);
	gate.drv = (struct glk_drv){.ops = &gate_ops, .inner = rig->drv};
	rig->drv = &gate.drv;
	rig->pool.drv = &gate.drv;
	rig->cache.drv = &gate.drv;
	rig->cache.imports.drv = &gate.drv;
	gate.op = -1;
}

/* Something for a thread to do, and what came of it. */
struct errand {
	void (*fn)(struct errand *errand);
	struct rig *rig;
	struct CUstream_st *stream;
	size_t size;
	uint32_t flags;
	uint64_t pool;
	uint64_t addr;
	int err;
	glk_atomic(bool) done;
	pthread_t thread;
};

static inline void errand_alloc(struct errand *e)
{
	e->err = rig_try(e->rig, e->size, e->stream, e->flags, &e->addr);
}

static inline void errand_free(struct errand *e)
{
	e->err = rig_free(e->rig, e->addr, e->stream);
}

static inline void errand_trim(struct errand *e)
{
	e->err = glk_cache_trim(&e->rig->cache, 0, false, &e->addr);
}

static inline void errand_release(struct errand *e)
{
	e->err = rig_release(e->rig, e->pool);
}

static inline void *gate_run(void *arg)
{
	struct errand *e = arg;

	gate_is_mine = true;
	e->fn(e);
	glk_store_release(&e->done, true);
	/* it may have ended without a call that waits */
	pthread_mutex_lock(&gate.mutex);
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
	return NULL;
}

/* Runs it until it stands in call number `nth` of an operation, from 1; false: it has ended
 * without. */
static inline bool gate_send(struct errand *e, int op, int nth)
{
	bool standing;

	gate.op = op;
	gate.left = nth - 1;
	gate.open = false;
	gate.err = 0;
	if (pthread_create(&e->thread, NULL, gate_run, e))
		tap_bail("no thread");
	pthread_mutex_lock(&gate.mutex);
	while (!gate.standing && !glk_load_acquire(&e->done))
		pthread_cond_wait(&gate.changed, &gate.mutex);
	standing = gate.standing;
	pthread_mutex_unlock(&gate.mutex);
	return standing;
}

static inline void gate_let(int err)
{
	pthread_mutex_lock(&gate.mutex);
	gate.err = err;
	gate.open = true;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
}

/* Lets it go on, and waits for its end; `err` is what the call answers. */
static inline int gate_end(struct errand *e, int err)
{
	gate_let(err);
	pthread_join(e->thread, NULL);
	return e->err;
}

#endif
