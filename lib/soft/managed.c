/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Managed memory of the software device: pieces, had and given back, and where each block of them lies,
 * by the rules of the driver for GPUs that share it with the host:
 *
 *  - a block lies nowhere until it is touched, and then with who touched it, or at the place it was
 *    said to be best at
 *  - who touches a block that lies elsewhere has it moved there, which is a fault; but where the block
 *    is at its best place it stays, and is used over the link
 *  - a GPU that was said to use it has it mapped wherever it lies: it uses it over the link, and neither
 *    faults nor has it moved, unless that GPU is its best place
 *  - a GPU that is full evicts what was touched longest ago; where there is nothing to evict, since
 *    all of it is memory of other kinds, the block stays on the host and is used from there
 *
 * What lies on the host is the system's to account for, as other memory of the process is.
 */
#include "soft/managed.h"

#include "base/error.h"

#include <errno.h>
#include <sys/mman.h>

static bool is_gpu(const struct soft *soft, uint8_t lies)
{
	return lies && lies <= soft->gpus;
}

static struct soft_managed_gpu *gpu_at(struct soft *soft, uint8_t lies)
{
	return &soft->managed->gpu[lies - 1];
}

static void unlink_block(struct soft *soft, struct soft_managed_block *b)
{
	struct soft_managed_gpu *gpu = gpu_at(soft, b->lies);

	*(b->older ? &b->older->newer : &gpu->oldest) = b->newer;
	*(b->newer ? &b->newer->older : &gpu->newest) = b->older;
	b->older = b->newer = NULL;
}

static void link_block(struct soft *soft, struct soft_managed_block *b)
{
	struct soft_managed_gpu *gpu = gpu_at(soft, b->lies);

	b->older = gpu->newest;
	b->newer = NULL;
	*(gpu->newest ? &gpu->newest->newer : &gpu->oldest) = b;
	gpu->newest = b;
}

/* Books where a block lies; a GPU has room for it. */
static void put(struct soft *soft, struct soft_managed_block *b, uint8_t to)
{
	if (is_gpu(soft, b->lies)) {
		unlink_block(soft, b);
		soft->rooms[b->lies - 1].used -= SOFT_MANAGED_BLOCK;
		gpu_at(soft, b->lies)->did.resident -= SOFT_MANAGED_BLOCK;
		gpu_at(soft, b->lies)->did.to_host +=
			to && !is_gpu(soft, to) ? SOFT_MANAGED_BLOCK : 0;
	}
	if (is_gpu(soft, to)) {
		gpu_at(soft, to)->did.to_gpu += b->lies ? SOFT_MANAGED_BLOCK : 0;
		gpu_at(soft, to)->did.resident += SOFT_MANAGED_BLOCK;
		soft->rooms[to - 1].used += SOFT_MANAGED_BLOCK;
	}
	b->lies = to;
	if (is_gpu(soft, to))
		link_block(soft, b);
}

/* The memory of a piece lies nowhere any more. */
static void forget(struct soft *soft, struct soft_managed_piece *piece)
{
	for (size_t i = 0; i < piece->count; i++)
		put(soft, &piece->blocks[i], 0);
}

/* The node that a GPU is near. */
static uint8_t host_of(const struct soft *soft, int device)
{
	return (uint8_t)(soft->gpus + device % soft->nodes + 1);
}

static size_t room(const struct soft *soft, int device)
{
	return soft->rooms[device].total - soft->rooms[device].used;
}

void glk_soft_managed_yield(struct soft *soft, int device, size_t bytes)
{
	struct soft_managed_gpu *gpu;

	if (!soft->managed || device >= soft->gpus)
		return;
	gpu = &soft->managed->gpu[device];
	while (room(soft, device) < bytes && gpu->oldest) {
		put(soft, gpu->oldest, host_of(soft, device));
		gpu->did.evicted++;
	}
}

/* Has a block at a place, or at the host near a GPU that is full of other things. */
static void move(struct soft *soft, struct soft_managed_block *b, uint8_t to)
{
	if (b->lies == to)
		return;
	if (is_gpu(soft, to)) {
		glk_soft_managed_yield(soft, to - 1, SOFT_MANAGED_BLOCK);
		if (room(soft, to - 1) < SOFT_MANAGED_BLOCK)
			to = host_of(soft, to - 1);
	}
	if (b->lies != to)
		put(soft, b, to);
}

static void touch(
	struct soft *soft, struct soft_managed_block *b, uint8_t by, int account)
{
	struct glk_soft_managed *did = &soft->managed->gpu[account].did;
	bool gpu = is_gpu(soft, by);
	uint8_t to = b->best ? b->best : by;
	bool mapped = gpu && b->lies && b->best != by && (b->users >> (by - 1) & 1);

	if (b->lies != by && !mapped) {
		*(gpu ? &did->gpu_faults : &did->host_faults) += 1;
		/* a place of the host is as good as another one for the host */
		if (gpu || !b->lies || is_gpu(soft, b->lies))
			move(soft, b, to);
	}
	if (b->lies != by && (gpu || is_gpu(soft, b->lies)))
		did->remote++;
	if (is_gpu(soft, b->lies)) {
		unlink_block(soft, b);
		link_block(soft, b);
	}
}

int glk_soft_managed_find(const struct soft *soft, uint64_t addr)
{
	const struct soft_managed *m = soft->managed;

	for (uint32_t i = 0; m && i < m->used; i++)
		if (m->piece[i].size && addr >= m->piece[i].addr &&
			addr - m->piece[i].addr < m->piece[i].size)
			return (int)i;
	return -1;
}

int glk_soft_managed_whole(
	const struct soft *soft, uint64_t addr, size_t size, const char *call)
{
	int piece = glk_soft_managed_find(soft, addr);

	if (piece < 0 ||
		size <= soft->managed->piece[piece].size -
				(addr - soft->managed->piece[piece].addr))
		return 0;
	return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
		"%s rule: %#lx + %zu reaches over the end of managed memory", call,
		(unsigned long)addr, size);
}

/* Of a range in a piece: its blocks. */
static struct soft_managed_block *blocks_of(
	const struct soft *soft, uint64_t addr, size_t size, size_t *ret_count)
{
	int i = glk_soft_managed_find(soft, addr);
	const struct soft_managed_piece *piece;
	size_t first, last;

	*ret_count = 0;
	if (i < 0 || !size)
		return NULL;
	piece = &soft->managed->piece[i];
	first = (addr - piece->addr) / SOFT_MANAGED_BLOCK;
	last = (addr - piece->addr + size - 1) / SOFT_MANAGED_BLOCK;
	*ret_count = (last < piece->count ? last : piece->count - 1) - first + 1;
	return &piece->blocks[first];
}

static void touch_all(
	struct soft *soft, uint64_t addr, size_t size, uint8_t by, int account)
{
	size_t count;
	struct soft_managed_block *b = blocks_of(soft, addr, size, &count);

	for (size_t i = 0; i < count; i++)
		touch(soft, &b[i], by, account);
}

void glk_soft_managed_run(struct soft *soft, int device, const struct soft_op *op)
{
	struct soft_managed_block *b;
	size_t count;

	if (!soft->managed)
		return;
	if (op->kind != SOFT_PREFETCH) {
		touch_all(soft, op->dst, op->size, (uint8_t)(device + 1), device);
		touch_all(soft, op->src, op->size, (uint8_t)(device + 1), device);
		return;
	}
	b = blocks_of(soft, op->dst, op->size, &count);
	for (size_t i = 0; i < count; i++) {
		move(soft, &b[i], (uint8_t)(op->value + 1));
		b[i].sent = (uint8_t)(op->value + 1);
	}
}

int glk_soft_managed_touch(
	struct glk_drv *drv, int device, uint64_t addr, size_t size, bool write)
{
	struct soft *soft = glk_soft_below(drv);
	int err = 0;

	(void)write; /* one copy of each block: who reads has it moved too */
	if (!soft)
		return -EINVAL;
	glk_soft_enter(soft);
	if (device < 0 || device >= soft->gpus || glk_soft_managed_find(soft, addr) < 0)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"there is no managed memory at %#lx, or no GPU %d",
			(unsigned long)addr, device);
	if (!err)
		err = glk_soft_managed_whole(soft, addr, size, "a touch of the host");
	if (!err)
		touch_all(soft, addr, size, host_of(soft, device), device);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_managed_figures(
	struct glk_drv *drv, int device, struct glk_soft_managed *ret_did)
{
	struct soft *soft = glk_soft_below(drv);
	int err = 0;

	if (!soft)
		return -EINVAL;
	glk_soft_enter(soft);
	if (device < 0 || device >= soft->gpus)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "there is no GPU %d", device);
	else
		*ret_did = soft->managed ? soft->managed->gpu[device].did
					 : (struct glk_soft_managed){0};
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_managed_range(
	const struct soft *soft, uint64_t addr, size_t size, const char *call)
{
	if (size && glk_soft_managed_find(soft, addr) >= 0)
		return glk_soft_managed_whole(soft, addr, size, call);
	return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
		"%s rule: %#lx + %zu is no managed memory", call, (unsigned long)addr,
		size);
}

int glk_soft_managed_place(
	const struct soft *soft, struct glk_place place, uint8_t *ret_lies)
{
	uint8_t number = (uint8_t)soft->gpus;
	int err = place.kind == GLK_PLACE_ANY ? 0 : glk_soft_place(soft, place, &number);

	*ret_lies = (uint8_t)(number + 1);
	return err;
}

int glk_soft_managed_say(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_say what, struct glk_place place)
{
	struct soft *soft = soft_of(drv);
	struct soft_managed_block *b;
	uint8_t lies = 0;
	size_t count;
	int err;

	glk_soft_charge(soft, GLAKE_CALL_MANAGED_ADVISE, 1);
	err = what == GLK_MANAGED_UNPREFER ? 0
					   : glk_soft_managed_place(soft, place, &lies);
	if (err)
		return err;
	glk_soft_enter(soft);
	err = glk_soft_managed_range(soft, addr, size, "cuMemAdvise");
	b = err ? NULL : blocks_of(soft, addr, size, &count);
	for (size_t i = 0; b && i < count; i++) {
		uint64_t bit = is_gpu(soft, lies) ? UINT64_C(1) << (lies - 1) : 0;

		if (what == GLK_MANAGED_PREFER || what == GLK_MANAGED_UNPREFER)
			b[i].best = lies;
		else if (what == GLK_MANAGED_ACCESSED)
			b[i].users |= bit;
		else
			b[i].users &= ~bit;
	}
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_managed_ask(struct glk_drv *drv, uint64_t addr, size_t size,
	enum glk_managed_ask what, struct glk_place *ret_place)
{
	bool sent = what == GLK_MANAGED_PREFETCHED;
	struct soft *soft = soft_of(drv);
	struct soft_managed_block *b;
	uint8_t lies = 0;
	size_t count;
	int err;

	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	glk_soft_enter(soft);
	err = glk_soft_managed_range(soft, addr, size, "cuMemRangeGetAttribute");
	b = err ? NULL : blocks_of(soft, addr, size, &count);
	for (size_t i = 0; b && i < count; i++) {
		uint8_t is = sent ? b[i].sent : b[i].best;

		if (!is || (i && is != lies))
			err = -ENOENT;
		lies = is;
	}
	glk_unlock(&soft->lock);
	if (err)
		return err;
	*ret_place = is_gpu(soft, lies)
		? (struct glk_place){GLK_PLACE_GPU, lies - 1}
		: (struct glk_place){GLK_PLACE_HOST, lies - 1 - soft->gpus};
	return 0;
}

static size_t blocks_bytes(size_t count)
{
	return count * sizeof(struct soft_managed_block);
}

static int no_room(size_t size)
{
	return glk_error_native(-ENOMEM, GLAKE_ERROR_ADDRESS, "cuMemAllocManaged", 2,
		"the system has no %zu bytes of addresses", size);
}

/* A place in the table; with the table made at the first. NULL and a record: there is none. */
static struct soft_managed_piece *take(struct soft *soft)
{
	struct soft_managed *m = soft->managed;

	if (!m)
		m = soft->managed = glk_region_new(sizeof(*m));
	if (!m)
		return NULL;
	for (uint32_t i = 0; i < SOFT_MANAGED; i++) {
		if (m->piece[i].size)
			continue;
		m->used = m->used > i ? m->used : i + 1;
		return &m->piece[i];
	}
	glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"the software device has %u pieces of managed memory at most",
		SOFT_MANAGED);
	return NULL;
}

/* Aligned to blocks. Forked children have a copy, as of other memory of the process; they may not
 * use it. */
static int map_piece(struct soft *soft, size_t size, struct soft_managed_piece *piece)
{
	size_t whole = size + SOFT_MANAGED_BLOCK;
	uint64_t addr, end;
	void *p;

	if (whole < size || glk_soft_maps_room(1))
		return no_room(size);
	p = mmap(NULL, whole, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return no_room(size);
	addr = ((uint64_t)p + SOFT_MANAGED_BLOCK - 1) & ~(SOFT_MANAGED_BLOCK - 1);
	end = (uint64_t)p + whole;
	if (addr > (uint64_t)p)
		munmap(p, addr - (uint64_t)p);
	if (end > addr + size)
		munmap((void *)(addr + size), end - addr - size);
	piece->addr = addr;
	glk_soft_maps_note(soft, 1);
	return 0;
}

int glk_soft_managed_alloc(
	struct glk_drv *drv, int device, size_t size, uint64_t *ret_addr)
{
	struct soft *soft = soft_of(drv);
	struct soft_managed_piece *piece;
	uint8_t place;
	int err;

	glk_soft_charge(soft, GLAKE_CALL_MANAGED_ALLOC, 1);
	err = glk_soft_place(soft, (struct glk_place){GLK_PLACE_GPU, device}, &place);
	if (err)
		return err;
	/* whole pages of the system, as the driver gives them */
	if (!size || size > SIZE_MAX / 2)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemAllocManaged",
			1, "%zu bytes of managed memory", size);
	size = (size + 4095) & ~(size_t)4095;
	glk_soft_enter(soft);
	err = -ENOMEM;
	piece = take(soft);
	if (!piece)
		goto out;
	piece->count = (size + SOFT_MANAGED_BLOCK - 1) / SOFT_MANAGED_BLOCK;
	piece->blocks = glk_region_new(blocks_bytes(piece->count));
	if (!piece->blocks)
		goto out;
	err = map_piece(soft, size, piece);
	if (err) {
		glk_region_free(piece->blocks, blocks_bytes(piece->count));
		goto out;
	}
	piece->size = size;
	piece->queued = 0;
	piece->gpu = device;
	*ret_addr = piece->addr;
out:
	glk_unlock(&soft->lock);
	return err;
}

static void drop(struct soft *soft, struct soft_managed_piece *piece)
{
	munmap((void *)piece->addr, piece->size);
	glk_soft_maps_note(soft, -1);
	glk_region_free(piece->blocks, blocks_bytes(piece->count));
	*piece = (struct soft_managed_piece){0};
}

/* Work that is queued could name it later, where the driver would wait: nobody shall count on that. */
int glk_soft_managed_free(struct glk_drv *drv, uint64_t addr)
{
	struct soft *soft = soft_of(drv);
	struct soft_managed_piece *piece;
	int i, err = 0;

	glk_soft_charge(soft, GLAKE_CALL_MANAGED_FREE, 1);
	glk_soft_enter(soft);
	i = glk_soft_managed_find(soft, addr);
	piece = i < 0 ? NULL : &soft->managed->piece[i];
	if (!piece || piece->addr != addr)
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemFree", 1,
			"cuMemFree rule: no managed memory begins at %#lx",
			(unsigned long)addr);
	else if (piece->queued)
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemFree", 1,
			"cuMemFree rule: %#lx + %zu is named by %u ranges of work not yet run",
			(unsigned long)addr, piece->size, piece->queued);
	if (!err) {
		forget(soft, piece);
		drop(soft, piece);
	}
	glk_unlock(&soft->lock);
	return err;
}

void glk_soft_managed_fini(struct soft *soft)
{
	struct soft_managed *m = soft->managed;

	for (uint32_t i = 0; m && i < m->used; i++)
		if (m->piece[i].size)
			drop(soft, &m->piece[i]);
	if (m)
		glk_region_free(m, sizeof(*m));
	soft->managed = NULL;
}
