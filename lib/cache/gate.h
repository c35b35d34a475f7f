/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_GATE_H
#define GLK_CACHE_GATE_H

/*
 * Mappings that go when a stream comes to the place of a free, and before it goes on: gate.c. So what was queued before
 * the free has its memory, and what is queued behind it on that stream meets none, while the program does not wait.
 */
#include "cache/cache.h"

struct glk_gates;

/* None: NULL, with a record. Takes memory that is locked for the GPU, and a thread. Without the lock. */
struct glk_gates *glk_gates_new(struct glk_cache *cache);
/* All of them were passed, or the GPU is lost: behind that the thread ends. Takes NULL. Without the lock. */
void glk_gates_end(struct glk_gates *gates);
/*
 * Under the lock, which it gives up where many are under way: slots of a block that was freed, with a use, all of them
 * mapped for it alone. False, and nothing has changed: it was used by more than one stream, or others are known, for
 * which nothing would hold them; the stream captures; somebody has closed the way in; or the driver has no gates.
 */
bool glk_gate_put(struct glk_gates *gates, struct glk_arena *arena,
	struct glk_stretch run, const struct glk_use *use);

#endif
