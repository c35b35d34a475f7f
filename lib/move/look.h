/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_LOOK_H
#define GLK_MOVE_LOOK_H

/*
 * A look into tables without the lock: an RCU section, in which tables of arenas that go stay as
 * they are; under the lock of the GPU for a thread that there is no host memory to register. Nothing
 * blocks, allocates, leaves a record or calls the driver inside.
 */
#include "base/cancel.h"
#include "base/rcu.h"
#include "move/gpu.h"

struct glk_look {
	int cancel;
	bool locked;
};

static inline struct glk_look glk_look_begin(struct glk_cache *cache)
{
	/* a thread that is cancelled inside would never end its section */
	struct glk_look look = {.cancel = glk_cancel_off(), .locked = glk_rcu_ready()};

	if (look.locked)
		glk_lock(&cache->lock);
	else
		glk_rcu_read_lock();
	return look;
}

static inline void glk_look_end(struct glk_cache *cache, const struct glk_look *look)
{
	if (look->locked)
		glk_unlock(&cache->lock);
	else
		glk_rcu_read_unlock();
	glk_cancel_restore(look->cancel);
}

#endif
