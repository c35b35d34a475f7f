/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A thread makes contents smaller that rest: see pack.h. */
#include "tier/pack.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "tier/cipher.h"
#include "tier/lz4.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNKS (GLK_PACK_UNIT / GLK_STORE_CHUNK) /* of a unit */

/* Between two looks at a copy that has not ended. */
#define LOOK_NS ((int64_t)10000000)

static struct glk_lock *lock_of(const struct glk_pack *pack)
{
	return pack->mover->store.lock;
}

static struct glk_store_run *run_at(const struct glk_pack *pack, uint32_t run)
{
	return glk_store_at(&pack->mover->store, run);
}

/* ---- Those that wait ---- */

void glk_pack_note(struct glk_pack *pack, uint32_t run)
{
	struct glk_store_run *r = run_at(pack, run);

	if (r->waits || r->loose)
		return;
	r->waits = true;
	r->since = glk_clock_ns();
	r->newer = 0;
	r->older = pack->last;
	if (pack->last)
		run_at(pack, pack->last)->newer = run;
	else
		pack->first = run;
	pack->last = run;
	pthread_cond_signal(&pack->wake);
}

void glk_pack_leave(struct glk_pack *pack, uint32_t run)
{
	struct glk_store_run *r = run_at(pack, run);

	if (!r->waits)
		return;
	r->waits = false;
	if (r->older)
		run_at(pack, r->older)->newer = r->newer;
	else
		pack->first = r->newer;
	if (r->newer)
		run_at(pack, r->newer)->older = r->older;
	else
		pack->last = r->older;
}

bool glk_pack_drops(struct glk_pack *pack, uint32_t run, uint64_t read)
{
	if (pack->unit != run)
		return false;
	pack->dropped = true;
	pack->read = read;
	glk_store_relaxed(&pack->unwanted, true);
	return true;
}

void glk_pack_spend(struct glk_pack *pack, struct glk_store_run *run)
{
	struct glk_packed *packed = run->packed;

	pack->bytes -= run->size;
	pack->held -= packed->bytes;
	pack->mover->store.packs -= packed->bytes;
	glk_node_unclaim(pack->mover->store.host, packed->bytes);
	run->packed = NULL;
	packed->next = pack->spent;
	pack->spent = packed;
	pthread_cond_signal(&pack->wake);
}

/* ---- A unit ---- */

/* The memory goes without the lock. */
static void free_spent(struct glk_pack *pack)
{
	struct glk_packed *spent = pack->spent, *next;

	pack->spent = NULL;
	glk_lock_pause(lock_of(pack));
	for (; spent; spent = next) {
		next = spent->next;
		glk_region_free(spent, spent->bytes);
	}
	glk_lock_resume(lock_of(pack));
}

/* From the bytes as they were. */
static struct glk_packed *pack_plain(struct glk_pack *pack, const char *from, size_t size,
	char *scratch, bool encrypts)
{
	size_t room = size - size / 8, used, bytes;
	struct glk_packed *packed;

	used = glk_lz4_pack(from, size, scratch, room, &pack->unwanted);
	if (!used)
		return NULL;
	bytes = (sizeof(*packed) + used + 4095) & ~(size_t)4095;
	packed = bytes < size ? glk_region_new(bytes) : NULL;
	if (!packed)
		return NULL;
	madvise(packed, bytes, MADV_DONTFORK);
	packed->bytes = bytes;
	packed->used = used;
	if (encrypts)
		glk_sodium_encrypt(
			packed->data, scratch, used, (uintptr_t)packed, &packed->tag);
	else
		memcpy(packed->data, scratch, used);
	return packed;
}

/* Without the lock. NULL: it does not shrink, nobody wants it any more, or there is no memory for it. */
static struct glk_packed *pack_bytes(
	struct glk_pack *pack, const struct glk_store_run *r, bool encrypts)
{
	const struct glk_store *store = &pack->mover->store;
	const char *from = store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;
	struct glk_packed *packed = NULL;
	char *plain;

	if (!encrypts)
		return pack_plain(pack, from, r->size, pack->scratch, false);
	if (!pack->plain)
		pack->plain = glk_sodium_room_new(2 * GLK_PACK_UNIT);
	plain = pack->plain;
	if (!plain)
		return NULL;
	/* one that is not what it was is said to be so when it comes back */
	if (glk_cipher_read(store, r, plain, r->size))
		packed = pack_plain(pack, plain, r->size, plain + GLK_PACK_UNIT, true);
	explicit_bzero(plain, 2 * GLK_PACK_UNIT);
	return packed;
}

bool glk_pack_open(const struct glk_packed *packed, char *to, size_t bytes, char *room)
{
	if (!packed->tag.number)
		return glk_lz4_unpack(packed->data, packed->used, to, bytes);
	/* both lie beside the bytes, where others may write */
	if (packed->tag.bytes != packed->used || packed->used > bytes)
		return false;
	return glk_sodium_decrypt(room, packed->data, (uintptr_t)packed, &packed->tag) &&
		glk_lz4_unpack(room, packed->used, to, bytes);
}

/* Its bytes lie there from now on, and its chunks serve others, behind what may still read them. False:
 * the host has no room for it. */
static bool swap(struct glk_pack *pack, const struct glk_store_run *first,
	struct glk_store_run *r, struct glk_packed *packed)
{
	struct glk_store *store = &pack->mover->store;

	if (glk_node_claim(store->host, packed->bytes))
		return false;
	glk_node_note_peak(store->host);
	store->packs += packed->bytes;
	pack->held += packed->bytes;
	pack->bytes += r->size;
	glk_store_leave(store, r, first->read);
	r->packed = packed;
	return true;
}

/* A run longer than a unit is two from then on. */
static bool cut(struct glk_pack *pack, struct glk_store_run *r)
{
	struct glk_store_run *rest;
	uint32_t id;

	if (r->chunks <= CHUNKS)
		return true;
	id = glk_slab_get(&pack->mover->store.runs);
	if (!id)
		return false;
	rest = run_at(pack, id);
	*rest = (struct glk_store_run){.next = r->next,
		.piece = r->piece,
		.first = (uint16_t)(r->first + CHUNKS),
		.chunks = (uint16_t)(r->chunks - CHUNKS)};
	r->chunks = CHUNKS;
	r->next = id;
	return true;
}

/* Whether the content goes on: it is there, nobody reads it, and there is room. */
static bool pack_unit(struct glk_pack *pack, uint32_t content, uint32_t run)
{
	struct glk_store *store = &pack->mover->store;
	struct glk_store_run *r = run_at(pack, run);
	bool done = false, encrypts = store->cipher;
	struct glk_packed *packed;

	pack->unit = run;
	pack->dropped = false;
	glk_store_relaxed(&pack->unwanted, false);
	glk_lock_pause(store->lock);
	packed = pack_bytes(pack, r, encrypts);
	glk_lock_resume(store->lock);
	pack->unit = 0;
	pthread_cond_broadcast(&pack->landed);
	if (pack->dropped) {
		glk_store_leave(store, r, pack->read);
		glk_slab_put(&store->runs, run);
	} else if (run_at(pack, content)->readers || run_at(pack, content)->loose) {
		glk_pack_note(pack, content);
	} else {
		done = !packed || swap(pack, run_at(pack, content), r, packed);
		packed = done ? NULL : packed;
	}
	if (packed)
		glk_region_free(packed, packed->bytes);
	return done && !glk_load_relaxed(&pack->stop);
}

static void pack_content(struct glk_pack *pack, uint32_t content)
{
	uint64_t left = run_at(pack, content)->bytes;
	bool on = true;

	for (uint32_t run = content, next; run && on; run = next) {
		struct glk_store_run *r = run_at(pack, run);

		if (!r->packed && !cut(pack, r))
			return;
		r->size = r->chunks * GLK_STORE_CHUNK < left
			? (uint32_t)(r->chunks * GLK_STORE_CHUNK)
			: (uint32_t)left;
		left -= r->size;
		on = r->packed || pack_unit(pack, content, run);
		/* what was dropped has been given back */
		next = on ? r->next : 0;
	}
}

/* ---- The thread ---- */

/* Ns until a content may be packed, as far as is known; 0: now. */
static int64_t must_rest(struct glk_pack *pack, const struct glk_store_run *r)
{
	struct glk_streams *streams = pack->mover->streams;
	struct glk_use use =
		glk_stream_use(glk_stream_enter(streams, pack->mover->out), r->written);
	int64_t left = r->since + pack->rest - glk_clock_ns();

	if (left > 0)
		return left;
	if (glk_clock_finished(streams, &use))
		return r->readers ? LOOK_NS : 0;
	/* what it tells is seen at the next look: the content may be gone now */
	glk_event_poll(streams);
	return LOOK_NS;
}

static void *run(void *arg)
{
	struct glk_pack *pack = arg;
	struct glk_lock *lock = lock_of(pack);

	glk_lock(lock);
	while (!glk_load_relaxed(&pack->stop)) {
		uint32_t content = pack->first;
		int64_t left = content ? must_rest(pack, run_at(pack, content)) : 0;

		if (pack->spent) {
			free_spent(pack);
		} else if (!content) {
			pack->rests = true;
			glk_lock_wait(lock, &pack->wake);
			pack->rests = false;
		} else if (left) {
			glk_lock_wait_for(lock, &pack->wake, left);
		} else if (!pack->landing.base) {
			/* without it nothing that is packed could come back */
			if (glk_landing_have(
				    &pack->mover->store, &pack->landing, GLK_PACK_LAND) &&
				pack->first)
				glk_pack_leave(pack, pack->first);
		} else {
			glk_pack_leave(pack, content);
			pack_content(pack, content);
			if (!pack->first)
				glk_mover_trim(pack->mover);
		}
	}
	glk_unlock(lock);
	return NULL;
}

static int refuse(int err)
{
	return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "pthread_create", err,
		"no thread to compress contents of the host");
}

void glk_pack_figures(
	const struct glk_mover *mover, uint64_t *ret_bytes, uint64_t *ret_held)
{
	const struct glk_pack *pack = mover->store.pack;

	*ret_bytes = pack ? pack->bytes : 0;
	*ret_held = pack ? pack->held : 0;
}

int glk_pack_start(struct glk_mover *mover, int64_t rest)
{
	int err = glk_pack_able();
	struct glk_pack *pack = err ? NULL : glk_region_new(sizeof(*pack));

	if (!pack)
		return err ? err : -ENOMEM;
	pack->mover = mover;
	pack->rest = rest;
	pthread_cond_init(&pack->landed, NULL);
	glk_lock_cond_init(&pack->wake);
	mover->store.pack = pack;
	pack->scratch = glk_region_new(GLK_PACK_UNIT);
	if (!pack->scratch)
		return -ENOMEM;
	err = glk_thread_start(&pack->thread, "glake-compress", run, pack);
	pack->runs = !err;
	return err ? refuse(err) : 0;
}

void glk_pack_stop(struct glk_mover *mover)
{
	struct glk_pack *pack = mover->store.pack;

	if (!pack || !pack->runs)
		return;
	glk_lock(lock_of(pack));
	glk_store_relaxed(&pack->stop, true);
	glk_store_relaxed(&pack->unwanted, true);
	pthread_cond_signal(&pack->wake);
	glk_unlock(lock_of(pack));
	pthread_join(pack->thread, NULL);
	pack->runs = false;
}

void glk_pack_fini(struct glk_mover *mover)
{
	struct glk_pack *pack = mover->store.pack;

	if (!pack)
		return;
	glk_pack_stop(mover);
	for (struct glk_packed *spent = pack->spent, *next; spent; spent = next) {
		next = spent->next;
		glk_region_free(spent, spent->bytes);
	}
	for (uint32_t id = 1; id <= glk_load_relaxed(&mover->store.runs.used); id++) {
		struct glk_store_run *r = run_at(pack, id);

		if (!r->packed)
			continue;
		glk_node_unclaim(mover->store.host, r->packed->bytes);
		glk_region_free(r->packed, r->packed->bytes);
	}
	glk_landing_end(&mover->store, &pack->landing);
	if (pack->scratch)
		glk_region_free(pack->scratch, GLK_PACK_UNIT);
	if (pack->plain)
		glk_sodium_room_free(pack->plain, 2 * GLK_PACK_UNIT);
	pthread_cond_destroy(&pack->wake);
	pthread_cond_destroy(&pack->landed);
	mover->store.pack = NULL;
	glk_region_free(pack, sizeof(*pack));
}

/* ---- Threads that have units back, for as long as that takes ---- */

static void *work_on(void *arg)
{
	struct glk_pack_work *w = arg;
	char *room = NULL;
	uint32_t i;
	int err;

	while (!glk_load_relaxed(&w->err) &&
		(i = glk_add_relaxed(&w->next, 1)) < w->units) {
		err = w->fn(w->arg, i, &room);
		if (err)
			glk_store_relaxed(&w->err, err);
	}
	if (room)
		glk_sodium_room_free(room, w->room);
	return NULL;
}

/* Threads beside the caller's: one for each part more and each processor more. */
static uint32_t threads_for(uint32_t parts)
{
	uint32_t most = parts < GLK_PACK_THREADS ? parts : GLK_PACK_THREADS, have;
	cpu_set_t cpus;

	most -= most > 0;
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return most;
	have = (uint32_t)CPU_COUNT(&cpus) - 1;
	return most < have ? most : have;
}

int glk_pack_together(struct glk_pack_work *work)
{
	uint32_t wanted = threads_for((work->units + work->each - 1) / work->each),
		 threads = 0;
	pthread_t thread[GLK_PACK_THREADS];

	while (threads < wanted &&
		!glk_thread_start(&thread[threads], "glake-compress", work_on, work))
		threads++;
	work_on(work);
	while (threads)
		pthread_join(thread[--threads], NULL);
	return glk_load_relaxed(&work->err);
}
