/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How much of some memory is there more than once. Each part of it has a number (alike.h), which a kernel makes; parts
 * of equal numbers are compared, each with the first of its number, by another. What is equal is told, and nothing is
 * changed.
 */
#include "share/alike.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/slab.h"
#include "share/kernels.ptx.h"
#include "share/share.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* Blocks of a kernel at most; each goes on with the parts behind. */
#define BLOCKS 65536

/* The chains of all threads side by side, as the words lie. */
static void hash_part(const uint32_t *words, uint64_t bytes, struct glk_alike_number *ret)
{
	enum { CHAINS = GLK_ALIKE_THREADS * 4 };
	struct glk_alike_number number = {{0}};
	uint32_t chain[CHAINS];

	for (uint32_t k = 0; k < CHAINS; k++)
		chain[k] = k % 4 + 1;
	for (uint64_t left = bytes / 4, n; left; words += n, left -= n) {
		n = left < CHAINS ? left : CHAINS;
		for (uint64_t k = 0; k < n; k++)
			chain[k] = glk_alike_step(chain[k], words[k]);
	}
	for (uint32_t k = 0; k < CHAINS; k++)
		number.word[k % 4] += glk_alike_stir(chain[k], k / 4, k % 4);
	*ret = number;
}

static void hash_twin(const void *args)
{
	const struct glk_alike_hash *h = args;

	for (uint64_t i = 0; i < h->count; i++)
		hash_part((const uint32_t *)(h->addr + i * h->part), h->part,
			(struct glk_alike_number *)h->numbers + i);
}

static void compare_twin(const void *args)
{
	const struct glk_alike_compare *c = args;
	struct glk_alike_pair *pairs = (struct glk_alike_pair *)c->pairs;

	for (uint64_t i = 0; i < c->count; i++)
		pairs[i].differ = memcmp((const void *)pairs[i].a,
					  (const void *)pairs[i].b, c->part) != 0;
}

const struct glk_kernel glk_alike_hash = {"glake_alike_hash", hash_twin};
const struct glk_kernel glk_alike_compare = {"glake_alike_compare", compare_twin};

/* Bytes that one kernel hashes at most, where a look has a rate: then it rests. */
#define CHUNK ((size_t)256 << 20)
/* Of which the numbers of larger contents are made. */
#define PART ((size_t)64 << 10)
/* Pairs that a look has room for, however few parts. */
#define PAIRS_LEAST ((size_t)GLK_LIKENESS_PAGES * GLK_LIKENESS_SPLIT)

/* Kernels, a stream, and memory that they write to. */
struct glk_likeness {
	struct glk_drv *drv;
	int device;
	size_t part;
	uint64_t rate; /* bytes a second; 0: any */
	int64_t since; /* when it began */
	uint64_t module, hash, compare;
	struct CUstream_st *stream;
	size_t bytes; /* of all of it */
	struct glk_alike_number *numbers;
	struct glk_alike_pair *pairs;
	uint64_t *addr; /* of each part */
	uint32_t *order, *spare;
	uint64_t parts, room; /* that were hashed, and may be */
};

/* By the first word of their numbers; equal ones stay in their order. */
static void sort(struct glk_likeness *l)
{
	for (unsigned shift = 0; shift < 32; shift += 8) {
		uint64_t at[257] = {0};
		uint32_t *swap;

		for (uint64_t i = 0; i < l->parts; i++)
			at[(l->numbers[l->order[i]].word[0] >> shift & 255) + 1]++;
		for (int i = 0; i < 256; i++)
			at[i + 1] += at[i];
		for (uint64_t i = 0; i < l->parts; i++)
			l->spare[at[l->numbers[l->order[i]].word[0] >> shift & 255]++] =
				l->order[i];
		swap = l->order;
		l->order = l->spare;
		l->spare = swap;
	}
}

int glk_likeness_new(struct glk_drv *drv, int device, uint64_t parts, size_t part,
	uint64_t rate, struct glk_likeness **ret)
{
	uint64_t pairs = parts < PAIRS_LEAST ? PAIRS_LEAST : parts;
	struct glk_likeness *l;
	size_t bytes;
	int err;

	if (parts > UINT32_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%llu parts: %u are the most", (unsigned long long)parts,
			UINT32_MAX);
	bytes = sizeof(*l) +
		parts * (sizeof(*l->numbers) + sizeof(*l->addr) + 2 * sizeof(*l->order)) +
		pairs * sizeof(*l->pairs);
	l = glk_region_new(bytes);
	if (!l)
		return -ENOMEM;
	*l = (struct glk_likeness){.drv = drv,
		.device = device,
		.part = part,
		.rate = rate,
		.since = glk_clock_ns(),
		.bytes = bytes,
		.room = parts};
	l->numbers = (struct glk_alike_number *)(l + 1);
	l->pairs = (struct glk_alike_pair *)(l->numbers + parts);
	l->addr = (uint64_t *)(l->pairs + pairs);
	l->order = (uint32_t *)(l->addr + parts);
	l->spare = l->order + parts;
	err = drv->ops->host_lock(drv, device, l, bytes);
	if (err)
		goto memory;
	err = drv->ops->module_load(drv, device, alike_text, &l->module);
	if (err)
		goto locked;
	err = drv->ops->kernel_find(drv, device, l->module, &glk_alike_hash, &l->hash);
	if (!err)
		err = drv->ops->kernel_find(
			drv, device, l->module, &glk_alike_compare, &l->compare);
	if (!err)
		err = drv->ops->stream_new(drv, device, &l->stream);
	if (!err) {
		*ret = l;
		return 0;
	}
	drv->ops->module_free(drv, device, l->module);
locked:
	drv->ops->host_unlock(drv, device, l);
memory:
	glk_region_free(l, bytes);
	return err;
}

void glk_likeness_free(struct glk_likeness *l)
{
	struct glk_drv *drv = l->drv;

	drv->ops->stream_free(drv, l->device, l->stream);
	drv->ops->module_free(drv, l->device, l->module);
	drv->ops->host_unlock(drv, l->device, l);
	glk_region_free(l, l->bytes);
}

static int launch(struct glk_likeness *l, uint64_t kernel, uint64_t count,
	const void *args, size_t size)
{
	struct glk_launch launch = {.kernel = kernel,
		.blocks = (uint32_t)(count < BLOCKS ? count : BLOCKS),
		.threads = GLK_ALIKE_THREADS,
		.args = args,
		.size = size};

	return l->drv->ops->launch(l->drv, l->device, &launch, l->stream);
}

int glk_likeness_wait(struct glk_likeness *l)
{
	return l->drv->ops->stream_sync(l->drv, l->device, l->stream);
}

/* Until all that was hashed is no more than its rate allows. */
static void rest(const struct glk_likeness *l)
{
	double due = (double)(l->parts * l->part) * 1e9 / (double)l->rate;
	int64_t left =
		(due < 9e18 ? (int64_t)due : INT64_MAX) - (glk_clock_ns() - l->since);
	struct timespec time = {
		.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};

	if (left > 0)
		nanosleep(&time, NULL);
}

int glk_likeness_hash(struct glk_likeness *l, uint64_t addr, uint64_t bytes)
{
	uint64_t left = bytes / l->part, most = l->rate ? CHUNK / l->part : left;
	int err = 0;

	left = left < l->room - l->parts ? left : l->room - l->parts;
	most = most ? most : 1;
	while (left && !err) {
		struct glk_alike_hash h = {.addr = addr,
			.part = l->part,
			.count = left < most ? left : most,
			.numbers = (uintptr_t)(l->numbers + l->parts)};

		err = launch(l, l->hash, h.count, &h, sizeof(h));
		if (!err && l->rate)
			err = glk_likeness_wait(l);
		for (uint64_t k = 0; k < h.count && !err; k++) {
			l->order[l->parts] = (uint32_t)l->parts;
			l->addr[l->parts++] = addr + k * l->part;
		}
		addr += h.count * l->part;
		left -= h.count;
		if (l->rate)
			rest(l);
	}
	return err;
}

uint64_t glk_likeness_looked(const struct glk_likeness *l)
{
	return l->parts * l->part;
}

const struct glk_alike_number *glk_likeness_number(
	const struct glk_likeness *l, uint64_t part, uint64_t *ret_addr)
{
	*ret_addr = l->addr[part];
	return &l->numbers[part];
}

/* Of those that have its first word, which are next to each other, the firsts of other numbers are few. */
uint64_t glk_likeness_pair(struct glk_likeness *l, const struct glk_alike_pair **ret)
{
	const struct glk_alike_number *n = l->numbers;
	uint64_t pairs = 0, begin = 0, firsts = 0;

	sort(l);
	for (uint64_t i = 0; i < l->parts; i++) {
		uint32_t part = l->order[i];
		uint64_t k;

		if (n[part].word[0] != n[l->order[begin]].word[0]) {
			begin = i;
			firsts = 0;
		}
		for (k = 0; k < firsts; k++)
			if (!memcmp(&n[part], &n[l->spare[k]], sizeof(*n)))
				break;
		if (k == firsts)
			l->spare[firsts++] = part;
		else
			l->pairs[pairs++] = (struct glk_alike_pair){
				l->addr[l->spare[k]], l->addr[part], 0};
	}
	*ret = l->pairs;
	return pairs;
}

/* All of the pairs that it has, of so many bytes each. */
static int compare(struct glk_likeness *l, uint64_t pairs, size_t bytes)
{
	struct glk_alike_compare c = {(uintptr_t)l->pairs, pairs, bytes};
	int err = launch(l, l->compare, pairs, &c, sizeof(c));

	return err ? err : glk_likeness_wait(l);
}

int glk_likeness_compare(struct glk_likeness *l, struct glk_alike_pair *pairs,
	uint32_t count, size_t bytes)
{
	size_t grain = bytes / GLK_LIKENESS_SPLIT;
	int err;

	/* more blocks than pairs, so that all of the GPU is at work */
	for (uint32_t i = 0; i < count * GLK_LIKENESS_SPLIT; i++) {
		const struct glk_alike_pair *p = &pairs[i / GLK_LIKENESS_SPLIT];
		uint64_t at = i % GLK_LIKENESS_SPLIT * grain;

		l->pairs[i] = (struct glk_alike_pair){p->a + at, p->b + at, 0};
	}
	err = compare(l, (uint64_t)count * GLK_LIKENESS_SPLIT, grain);
	for (uint32_t i = 0; i < count && !err; i++) {
		pairs[i].differ = 0;
		for (uint32_t k = 0; k < GLK_LIKENESS_SPLIT; k++)
			pairs[i].differ |= l->pairs[i * GLK_LIKENESS_SPLIT + k].differ;
	}
	return err;
}

int glk_alike_number(struct glk_drv *drv, int device, uint64_t addr, uint64_t bytes,
	struct glk_alike_number *ret)
{
	struct glk_alike_number number = {{1, 2, 3, 4}};
	struct glk_likeness *l;
	int err;

	err = glk_likeness_new(drv, device, bytes / PART, PART, 0, &l);
	if (err)
		return err;
	err = glk_likeness_hash(l, addr, bytes);
	if (!err)
		err = glk_likeness_wait(l);
	for (uint64_t i = 0; i < l->parts && !err; i++) {
		for (int w = 0; w < 4; w++)
			number.word[w] =
				glk_alike_step(number.word[w], l->numbers[i].word[w]);
	}
	glk_likeness_free(l);
	if (!err)
		*ret = number;
	return err;
}

int glk_alike(struct glk_drv *drv, int device, const struct glk_alike_range *ranges,
	size_t count, size_t part, struct glake_likeness *ret)
{
	const struct glk_alike_pair *found;
	uint64_t parts = 0, pairs, equal = 0;
	struct glk_likeness *l;
	int err;

	for (size_t i = 0; i < count; i++)
		parts += ranges[i].size / part;
	ret->looked = parts * part;
	ret->equal = ret->differ = 0;
	if (!parts)
		return 0;
	err = glk_likeness_new(drv, device, parts, part, 0, &l);
	if (err)
		return err;
	for (size_t i = 0; i < count && !err; i++)
		err = glk_likeness_hash(l, ranges[i].addr, ranges[i].size);
	if (!err)
		err = glk_likeness_wait(l);
	pairs = err ? 0 : glk_likeness_pair(l, &found);
	if (pairs)
		err = compare(l, pairs, part);
	for (uint64_t i = 0; i < pairs && !err; i++)
		equal += !l->pairs[i].differ;
	glk_likeness_free(l);
	if (err)
		return err;
	ret->equal = equal * part;
	ret->differ = pairs - equal;
	return 0;
}
