/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How much of some memory is there more than once. Each part of it has a number (alike.h), which a kernel makes; parts
 * of equal numbers are compared, each with the first of its number, by another. What is equal is told, and nothing is
 * changed.
 */
#include "share/alike.h"
#include "base/error.h"
#include "base/slab.h"
#include "share/kernels.ptx.h"
#include "share/share.h"

#include <errno.h>
#include <string.h>

/* Blocks of a kernel at most; each goes on with the parts behind. */
#define BLOCKS 65536

static void hash_part(const uint32_t *words, uint64_t bytes, struct glk_alike_number *ret)
{
	struct glk_alike_number number = {{0}};

	for (uint32_t t = 0; t < GLK_ALIKE_THREADS; t++) {
		uint32_t chain[4] = {1, 2, 3, 4};

		for (uint64_t at = t * 4; at < bytes / 4; at += GLK_ALIKE_THREADS * 4)
			for (uint32_t i = 0; i < 4; i++)
				chain[i] = glk_alike_step(chain[i], words[at + i]);
		for (uint32_t i = 0; i < 4; i++)
			number.word[i] += glk_alike_stir(chain[i], t, i);
	}
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

/* What one look needs: kernels, a stream, and memory that they write to. */
struct look {
	struct glk_drv *drv;
	int device;
	uint64_t module, hash, compare;
	struct CUstream_st *stream;
	void *memory;
	size_t bytes;
	struct glk_alike_number *numbers;
	struct glk_alike_pair *pairs; /* as many as parts */
	uint64_t *addr;		      /* of each part */
	uint32_t *order, *spare;
	uint64_t parts;
};

/* By the first word of their numbers; equal ones stay in their order. */
static void sort(struct look *l)
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

static int begin(struct look *l, uint64_t parts)
{
	struct glk_drv *drv = l->drv;
	int err;

	l->parts = parts;
	l->bytes = parts *
		(sizeof(*l->numbers) + sizeof(*l->pairs) + sizeof(*l->addr) +
			2 * sizeof(*l->order));
	l->memory = glk_region_new(l->bytes);
	if (!l->memory)
		return -ENOMEM;
	l->numbers = l->memory;
	l->pairs = (struct glk_alike_pair *)(l->numbers + parts);
	l->addr = (uint64_t *)(l->pairs + parts);
	l->order = (uint32_t *)(l->addr + parts);
	l->spare = l->order + parts;
	err = drv->ops->host_lock(drv, l->device, l->memory, l->bytes);
	if (err)
		goto memory;
	err = drv->ops->module_load(drv, l->device, alike_text, &l->module);
	if (err)
		goto locked;
	err = drv->ops->kernel_find(drv, l->device, l->module, &glk_alike_hash, &l->hash);
	if (!err)
		err = drv->ops->kernel_find(
			drv, l->device, l->module, &glk_alike_compare, &l->compare);
	if (!err)
		err = drv->ops->stream_new(drv, l->device, &l->stream);
	if (!err)
		return 0;
	drv->ops->module_free(drv, l->device, l->module);
locked:
	drv->ops->host_unlock(drv, l->device, l->memory);
memory:
	glk_region_free(l->memory, l->bytes);
	return err;
}

static void end(struct look *l)
{
	struct glk_drv *drv = l->drv;

	drv->ops->stream_free(drv, l->device, l->stream);
	drv->ops->module_free(drv, l->device, l->module);
	drv->ops->host_unlock(drv, l->device, l->memory);
	glk_region_free(l->memory, l->bytes);
}

static int launch(
	struct look *l, uint64_t kernel, uint64_t count, const void *args, size_t size)
{
	struct glk_launch launch = {.kernel = kernel,
		.blocks = (uint32_t)(count < BLOCKS ? count : BLOCKS),
		.threads = GLK_ALIKE_THREADS,
		.args = args,
		.size = size};

	return l->drv->ops->launch(l->drv, l->device, &launch, l->stream);
}

static int make_numbers(
	struct look *l, const struct glk_alike_range *ranges, size_t count, size_t part)
{
	uint64_t first = 0;
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		struct glk_alike_hash h = {.addr = ranges[i].addr,
			.part = part,
			.count = ranges[i].size / part,
			.numbers = (uintptr_t)(l->numbers + first)};

		for (uint64_t k = 0; k < h.count; k++) {
			l->addr[first + k] = h.addr + k * part;
			l->order[first + k] = (uint32_t)(first + k);
		}
		first += h.count;
		if (h.count)
			err = launch(l, l->hash, h.count, &h, sizeof(h));
	}
	return err ? err : l->drv->ops->stream_sync(l->drv, l->device, l->stream);
}

/* Each part with the first of its number: of those that have its first word, which are next to each other, the firsts of
 * other numbers are few. */
static uint64_t make_pairs(struct look *l)
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
	return pairs;
}

int glk_alike(struct glk_drv *drv, int device, const struct glk_alike_range *ranges,
	size_t count, size_t part, struct glake_likeness *ret)
{
	struct look l = {.drv = drv, .device = device};
	uint64_t parts = 0, pairs, equal = 0;
	struct glk_alike_compare c;
	int err;

	for (size_t i = 0; i < count; i++)
		parts += ranges[i].size / part;
	ret->looked = parts * part;
	ret->equal = ret->differ = 0;
	if (!parts)
		return 0;
	if (parts > UINT32_MAX)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"%llu parts: %u are the most", (unsigned long long)parts,
			UINT32_MAX);
	err = begin(&l, parts);
	if (err)
		return err;
	err = make_numbers(&l, ranges, count, part);
	pairs = err ? 0 : make_pairs(&l);
	if (pairs) {
		c = (struct glk_alike_compare){(uintptr_t)l.pairs, pairs, part};
		err = launch(&l, l.compare, pairs, &c, sizeof(c));
		if (!err)
			err = drv->ops->stream_sync(drv, device, l.stream);
	}
	for (uint64_t i = 0; i < pairs && !err; i++)
		equal += !l.pairs[i].differ;
	end(&l);
	if (err)
		return err;
	ret->equal = equal * part;
	ret->differ = pairs - equal;
	return 0;
}
