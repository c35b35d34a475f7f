/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bins: freed blocks of one exact size, kept whole. Bins that hold blocks are in the order in
 * which their size was last asked for.
 */
#include "policy.h"

uint64_t bin_round(const struct conf *conf, uint64_t size)
{
	uint64_t grain = GRAIN, power = 1;
	bool classed = size <= conf->small ? conf->round & 1 : conf->round & 2;

	while (power * 2 <= size)
		power *= 2;
	if (classed && power / 8 > grain)
		grain = power / 8;
	return (size + grain - 1) / grain * grain;
}

static struct bin *bin_of(struct sim *sim, uint64_t len)
{
	uint32_t h = (uint32_t)(len * 0x9e3779b97f4a7c15u >> 48) % BINS;

	while (sim->bin[h].len && sim->bin[h].len != len)
		h = (h + 1) % BINS;
	if (!sim->bin[h].len)
		sim->bin[h] = (struct bin){len, NONE, NONE, NONE, 0};
	return &sim->bin[h];
}

static void unlist(struct sim *sim, struct bin *bin)
{
	*(bin->prev == NONE ? &sim->bins.first : &sim->bin[bin->prev].next) = bin->next;
	*(bin->next == NONE ? &sim->bins.last : &sim->bin[bin->next].prev) = bin->prev;
}

static void list(struct sim *sim, struct bin *bin)
{
	uint32_t b = (uint32_t)(bin - sim->bin);

	bin->prev = sim->bins.last;
	bin->next = NONE;
	*(bin->prev == NONE ? &sim->bins.first : &sim->bin[bin->prev].next) = b;
	sim->bins.last = b;
}

static uint32_t pop(struct sim *sim, struct bin *bin)
{
	uint32_t e = bin->first;

	bin->first = sim->space.extent[e].bin_next;
	bin->blocks--;
	sim->binned--;
	if (!bin->blocks)
		unlist(sim, bin);
	sim->space.extent[e].state = EXTENT_GIVEN;
	return e;
}

uint32_t bin_pop(struct sim *sim, uint64_t len)
{
	struct bin *bin = bin_of(sim, len);
	uint32_t e;

	if (!bin->blocks)
		return NONE;
	e = pop(sim, bin);
	if (bin->blocks) {
		unlist(sim, bin);
		list(sim, bin);
	}
	return e;
}

void bin_push(struct sim *sim, uint32_t e)
{
	struct bin *bin = bin_of(sim, sim->space.extent[e].len);

	if (!bin->blocks)
		list(sim, bin);
	sim->space.extent[e].bin_next = bin->first;
	sim->space.extent[e].state = EXTENT_BINNED;
	bin->first = e;
	bin->blocks++;
	sim->binned++;
}

bool bin_flush(struct sim *sim, int blocks)
{
	if (!sim->binned || !blocks)
		return false;
	while (sim->binned && blocks--)
		block_release(sim, pop(sim, &sim->bin[sim->bins.first]));
	return true;
}
