/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of the host for contents that are away: see tier.h. It is of the node of the GPU where that
 * is known, allowed and has room, made of huge pages where the system has them, and touched before it
 * is locked.
 */
#include "tier/tier.h"

#include "base/error.h"
#include "numa/topology.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

/* Runs there may be; each content has one or a few. */
#define RUNS (1u << 22)

#define HUGE ((uintptr_t)2 << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* of Linux 5.14 */
#endif

int glk_store_init(struct glk_store *store, struct glk_drv *drv, struct glk_lock *lock,
	int node, struct glk_node *host)
{
	int err;

	*store = (struct glk_store){
		.drv = drv, .lock = lock, .node = node, .host = host};
	store->piece = glk_region_new(GLK_STORE_PIECES * sizeof(*store->piece));
	if (!store->piece)
		return -ENOMEM;
	err = glk_slab_init(&store->runs, sizeof(struct glk_store_run), RUNS);
	if (err)
		glk_region_free(store->piece, GLK_STORE_PIECES * sizeof(*store->piece));
	return err;
}

/* A piece begins with a huge page. */
static char *map_piece(void)
{
	size_t size = GLK_STORE_PIECE + HUGE, lead;
	char *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	lead = -(uintptr_t)base & (HUGE - 1);
	if (lead)
		munmap(base, lead);
	munmap(base + lead + GLK_STORE_PIECE, HUGE - lead);
	return base + lead;
}

/* What is left to the rest of the machine, or of the control group. Memory is touched here, and a
 * system that has none ends processes. */
#define SPARE (4 * GLK_STORE_PIECE)

static int touch_piece(const struct glk_store *store, char **ret_base)
{
	uint64_t spare = glk_numa_spare(NULL);
	char *base;
	int err;

	if (spare < GLK_STORE_PIECE + SPARE)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"%" PRIu64 " MiB are left to the process on the host, too few for what "
			"leaves the GPU", spare >> 20);
	base = map_piece();
	if (!base)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", errno,
			"no addresses for memory of the host");
	madvise(base, GLK_STORE_PIECE, MADV_HUGEPAGE);
	madvise(base, GLK_STORE_PIECE, MADV_DONTFORK);
	/* where the node cannot be chosen it lies where it falls */
	if (store->node >= 0)
		glk_numa_prefer(base, GLK_STORE_PIECE, store->node);
	err = madvise(base, GLK_STORE_PIECE, MADV_POPULATE_WRITE) && errno == ENOMEM
		? glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "madvise", errno,
			  "no memory of the host for what leaves the GPU")
		: store->drv->ops->host_lock(store->drv, base, GLK_STORE_PIECE);
	if (err) {
		munmap(base, GLK_STORE_PIECE);
		return err;
	}
	*ret_base = base;
	return 0;
}

/* Without the lock of the GPU. All GPUs of the process take what is left one after the other. */
static int make_piece(const struct glk_store *store, char **ret_base)
{
	static struct glk_lock turns = GLK_LOCK_INIT(GLK_RANK_NODE);
	int err;

	glk_lock(&turns);
	err = touch_piece(store, ret_base);
	glk_unlock(&turns);
	return err;
}

/* What the driver keeps locked stays where it is. */
static void end_piece(const struct glk_store *store, char *base)
{
	if (!store->drv->ops->host_unlock(store->drv, base))
		munmap(base, GLK_STORE_PIECE);
}

/* The place of a piece that is not there, or a new one. */
static struct glk_store_piece *free_piece(struct glk_store *store)
{
	for (uint32_t i = 0; i < store->pieces; i++) {
		if (!store->piece[i].base)
			return &store->piece[i];
	}
	return &store->piece[store->pieces++];
}

/* Others may take memory meanwhile. */
static int grow(struct glk_store *store)
{
	char *base = NULL;
	int err;

	if (store->held / GLK_STORE_PIECE == GLK_STORE_PIECES ||
		glk_node_claim(store->host, GLK_STORE_PIECE))
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"%" PRIu64 " bytes of the host are held for the GPU, of the %" PRIu64
			" that tier.host allows",
			glk_load_relaxed(&store->host->held),
			glk_load_relaxed(&store->host->budget));
	store->held += GLK_STORE_PIECE;
	glk_lock_pause(store->lock);
	err = make_piece(store, &base);
	glk_lock_resume(store->lock);
	if (err) {
		store->held -= GLK_STORE_PIECE;
		glk_node_unclaim(store->host, GLK_STORE_PIECE);
		return err;
	}
	glk_node_note_peak(store->host);
	*free_piece(store) = (struct glk_store_piece){.base = base};
	return 0;
}

static bool is_used(const struct glk_store_piece *p, uint32_t chunk)
{
	return p->used[chunk >> 6] >> (chunk & 63) & 1;
}

static void mark(struct glk_store *store, struct glk_store_piece *p, uint32_t first,
	uint32_t chunks, bool used)
{
	for (uint32_t i = first; i < first + chunks; i++) {
		uint64_t bit = UINT64_C(1) << (i & 63);

		p->used[i >> 6] = used ? p->used[i >> 6] | bit : p->used[i >> 6] & ~bit;
	}
	p->count += used ? chunks : -chunks;
	store->used += used ? chunks * GLK_STORE_CHUNK : -(chunks * GLK_STORE_CHUNK);
}

/* The next run of free chunks of a piece, of no more than `most`; 0 chunks: there is none. */
static uint32_t find_run(
	const struct glk_store_piece *p, uint32_t from, uint32_t most, uint32_t *ret_first)
{
	uint32_t chunks = 0;

	while (from < GLK_STORE_CHUNKS && is_used(p, from))
		from++;
	while (from + chunks < GLK_STORE_CHUNKS && chunks < most &&
		!is_used(p, from + chunks))
		chunks++;
	*ret_first = from;
	return chunks;
}

/* Takes what a piece has of the chunks that are left, and links it before a chain. */
static int take_from(
	struct glk_store *store, uint32_t piece, uint64_t *left, uint32_t *chain)
{
	struct glk_store_piece *p = &store->piece[piece];
	uint32_t first = 0, chunks, id;

	while (*left && p->base && p->count < GLK_STORE_CHUNKS) {
		chunks = find_run(p, first,
			*left < GLK_STORE_CHUNKS ? (uint32_t)*left : GLK_STORE_CHUNKS,
			&first);
		if (!chunks)
			break;
		id = glk_slab_get(&store->runs);
		if (!id)
			return -ENOMEM;
		*glk_store_at(store, id) = (struct glk_store_run){.next = *chain,
			.piece = piece,
			.first = (uint16_t)first,
			.chunks = (uint16_t)chunks};
		*chain = id;
		mark(store, p, first, chunks, true);
		*left -= chunks;
	}
	return 0;
}

int glk_store_take(struct glk_store *store, uint64_t bytes, uint32_t *ret_run)
{
	uint64_t left = (bytes + GLK_STORE_CHUNK - 1) / GLK_STORE_CHUNK;
	uint32_t chain = 0;
	int err = 0;

	while (left && !err) {
		for (uint32_t i = 0; i < store->pieces && left && !err; i++)
			err = take_from(store, i, &left, &chain);
		if (left && !err)
			err = grow(store);
	}
	if (err) {
		glk_store_put(store, chain, 0);
		return err;
	}
	glk_store_at(store, chain)->bytes = bytes;
	*ret_run = chain;
	return 0;
}

void glk_store_put(struct glk_store *store, uint32_t run, uint64_t read)
{
	for (uint32_t next; run; run = next) {
		struct glk_store_run *r = glk_store_at(store, run);
		struct glk_store_piece *p = &store->piece[r->piece];

		next = r->next;
		mark(store, p, r->first, r->chunks, false);
		p->read = p->read < read ? read : p->read;
		glk_slab_put(&store->runs, run);
	}
}

uint64_t glk_store_read(const struct glk_store *store, uint32_t run)
{
	uint64_t read = 0;

	for (; run; run = glk_store_at(store, run)->next) {
		uint64_t of = store->piece[glk_store_at(store, run)->piece].read;

		read = read < of ? of : read;
	}
	return read;
}

uint64_t glk_store_trim(struct glk_store *store)
{
	uint64_t given = 0;

	for (uint32_t i = 0; i < store->pieces; i++) {
		char *base = store->piece[i].base;

		if (!base || store->piece[i].count)
			continue;
		store->piece[i].base = NULL;
		glk_lock_pause(store->lock);
		end_piece(store, base);
		glk_lock_resume(store->lock);
		store->held -= GLK_STORE_PIECE;
		glk_node_unclaim(store->host, GLK_STORE_PIECE);
		given += GLK_STORE_PIECE;
	}
	return given;
}

void glk_store_fini(struct glk_store *store)
{
	for (uint32_t i = 0; i < store->pieces; i++) {
		if (!store->piece[i].base)
			continue;
		end_piece(store, store->piece[i].base);
		glk_node_unclaim(store->host, GLK_STORE_PIECE);
	}
	if (store->piece)
		glk_region_free(store->piece, GLK_STORE_PIECES * sizeof(*store->piece));
	glk_slab_fini(&store->runs);
	store->piece = NULL;
}
