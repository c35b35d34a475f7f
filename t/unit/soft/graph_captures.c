/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random captures over four streams against a model that keeps, for each stream and event, the
 * set of nodes that come before it: what is refused as a race, whether the end gives a graph,
 * and what memory holds after launches that shuffle the nodes.
 */
#include "queues.h"

#include "seed.h"

enum { CELLS = 6, NODES = 40, CAPTURES = 3000 };

static uint64_t state;

/* Of the capture at hand. */
static uint64_t tails[STREAMS], recorded[EVENTS]; /* sets of nodes */
static bool joined[STREAMS], known[EVENTS];
static uint32_t reads[NODES], writes[NODES]; /* sets of cells */
static uint32_t memory[CELLS];		     /* after the nodes in the order of capture */
static uint32_t nodes;

static uint32_t dice(uint32_t sides)
{
	return (uint32_t)(seed_next(&state) >> 33) % sides;
}

static bool may(int stream, uint32_t read, uint32_t write)
{
	for (uint32_t i = 0; i < nodes; i++) {
		if (tails[stream] >> i & 1)
			continue;
		if ((writes[i] & (read | write)) || (reads[i] & write))
			return false;
	}
	return true;
}

static void put(int stream, uint32_t read, uint32_t write)
{
	reads[nodes] = read;
	writes[nodes] = write;
	tails[stream] |= UINT64_C(1) << nodes++;
}

static uint64_t cell(uint32_t i)
{
	return (dice(2) ? base : alias) + i * 512;
}

/* Work of one of three kinds; whether the device agrees that it may be. */
static bool random_work(int stream)
{
	uint32_t a = dice(CELLS), b = dice(CELLS), value = dice(1000);
	uint32_t read = 0, write = 1u << a;
	int err;

	switch (dice(3)) {
	case 0:
		err = drv->ops->fill(drv, cell(a), value, 1, streams[stream]);
		break;
	case 1:
		read = 1u << b;
		err = drv->ops->copy(drv, cell(a), cell(b), WORD, streams[stream]);
		value = memory[b];
		break;
	default:
		read = 1u << a;
		write = 0;
		err = work(stream, cell(a), WORD, false);
		value = memory[a];
	}
	if (err && setup_error().error_class != GLAKE_ERROR_INVAL)
		return false;
	if (!err != may(stream, read, write))
		return false;
	if (err)
		return true;
	put(stream, read, write);
	memory[a] = value;
	return true;
}

static bool random_call(void)
{
	int s = (int)dice(STREAMS), e = (int)dice(EVENTS);

	switch (dice(4)) {
	case 0:
		if (!joined[s])
			return true;
		recorded[e] = tails[s];
		known[e] = true;
		return !record(s, e);
	case 1:
		if (!known[e])
			return true;
		tails[s] |= recorded[e];
		joined[s] = true;
		return !wait_for(s, e);
	default:
		return !joined[s] || nodes == NODES || random_work(s);
	}
}

static void join_all(void)
{
	for (int s = 1; s < STREAMS; s++) {
		if (!joined[s])
			continue;
		record(s, 0);
		wait_for(0, 0);
		tails[0] |= tails[s];
	}
}

static uint32_t cell_value(uint32_t i)
{
	return *(volatile uint32_t *)(base + i * 512);
}

/* Twice, from the same start, on any stream; whether memory is what the model says. */
static bool launches(uint32_t graph)
{
	uint32_t *end = memory;
	bool right = true;

	for (int i = 0; i < 2; i++) {
		int s = (int)dice(STREAMS);

		for (uint32_t c = 0; c < CELLS; c++)
			drv->ops->fill(drv, base + c * 512, 5000 + c, 1, streams[s]);
		right &= !glk_soft_graph_launch(drv, graph, 0, streams[s]);
		drv->ops->stream_sync(drv, 0, streams[s]);
		for (uint32_t c = 0; c < CELLS; c++)
			right &= cell_value(c) == end[c];
	}
	return right;
}

/* Counts what was right. */
struct score {
	int calls, ends, graphs, unjoined, memory;
};

static void capture(struct score *score)
{
	uint32_t graph = 0, length = 5 + dice(70);
	bool agreed = true, all;
	int err;

	nodes = 0;
	memset(tails, 0, sizeof(tails));
	memset(joined, 0, sizeof(joined));
	memset(known, 0, sizeof(known));
	for (uint32_t c = 0; c < CELLS; c++)
		memory[c] = 5000 + c;
	joined[0] = true;
	begin(0);
	while (length--)
		agreed &= random_call();
	if (dice(3))
		join_all();
	all = tails[0] == (UINT64_C(1) << nodes) - 1;
	err = end(0, &graph);
	score->calls += agreed;
	score->ends += err == (all ? 0 : -EIO);
	score->unjoined += !all;
	if (err)
		return;
	score->graphs++;
	score->memory += launches(graph);
	glk_soft_graph_free(drv, graph);
}

int main(void)
{
	struct glk_conf conf = setup_conf();
	struct score score = {0};

	tap_plan_later();
	state = seed_thread(seed_start(), 0);
	conf.soft_streams = GLK_SOFT_STREAMS_RANDOM;
	conf.soft_seed = (int64_t)(seed_next(&state) >> 1);
	set_up(&conf);
	for (int i = 0; i < CAPTURES; i++)
		capture(&score);
	is_int(score.calls, CAPTURES, "races are those of the model");
	is_int(score.ends, CAPTURES, "so are the ends");
	is_int(score.memory, score.graphs, "and what launches do to memory");
	ok(score.graphs > CAPTURES / 4, "%d graphs", score.graphs);
	ok(score.unjoined > CAPTURES / 20, "%d captures left something unjoined",
		score.unjoined);
	take_down();
	return tap_done();
}
