/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The same sequence of requests gives the same addresses: counted from the first block, in two
 * contexts at once, for the recorded jobs and for a random sequence from a fixed seed.
 */
#include "context.h"
#include "seed.h"

#define ROWS	120000
#define STREAMS 4

struct row {
	size_t size; /* 0: free */
	uint32_t block, stream, flags;
};

static struct row rows[ROWS];
static unsigned count;
static void *held[2][ROWS];

/* A sequence with blocks that live long and short, from a seed that never changes. */
static void make_up(void)
{
	static uint32_t live[2000];
	uint64_t state = 20221;
	unsigned lives = 0, blocks = 0;

	for (count = 0; count < 50000; count++) {
		struct row *row = &rows[count];
		unsigned victim;

		if (lives == 2000 || (lives && !seed_below(&state, 2))) {
			victim = (unsigned)seed_below(&state, lives);
			*row = (struct row){.block = live[victim],
				.stream = (uint32_t)seed_below(&state, STREAMS)};
			live[victim] = live[--lives];
			continue;
		}
		*row = (struct row){.size = 1 +
				seed_below(&state,
					seed_below(&state, 6) ? 256 << 10 : 24 * MIB),
			.block = blocks,
			.stream = (uint32_t)seed_below(&state, STREAMS),
			.flags = seed_below(&state, 100) ? 0 : GLAKE_ALLOC_CONTIGUOUS};
		live[lives++] = blocks++;
	}
}

static const char *const jobs[] = {
	GLK_DATA "/opt13_N.csv.xz",
	GLK_DATA "/opt13b_LR.csv.xz",
	GLK_DATA "/detect.csv.xz",
	GLK_DATA "/fsdp1.csv.xz",
};

static struct {
	uint64_t address;
	uint32_t block;
} table[1 << 18];

/* The number of the block that lives at an address of the trace, by linear probing. */
static uint32_t *block_of(uint64_t address)
{
	uint32_t i = (uint32_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 46);

	while (table[i].address && table[i].address != address)
		i = (i + 1) & ((1 << 18) - 1);
	table[i].address = address;
	return &table[i].block;
}

/* A recorded job, or false where there is no xz to read it with. */
static bool read_job(const char *path)
{
	unsigned blocks = 0, stream;
	char line[256];
	FILE *pipe;

	snprintf(line, sizeof(line), "xz -dc '%s' 2>/dev/null", path);
	memset(table, 0, sizeof(table));
	pipe = popen(line, "re");

	count = 0;
	if (!pipe)
		return false;
	while (count < ROWS && fgets(line, sizeof(line), pipe)) {
		struct row *row = &rows[count];
		unsigned long long address;
		char action[16];
		size_t size;

		if (sscanf(line, "%*u,%*u,%15[a-z],%llx,%zu,%u", action, &address, &size,
			    &stream) != 4)
			continue;
		count++;
		*row = (struct row){
			.block = *block_of(address), .stream = stream % STREAMS};
		if (strcmp(action, "allocate"))
			continue;
		row->size = size;
		row->block = *block_of(address) = blocks++;
	}
	return !pclose(pipe) && count > 1000;
}

/* Runs the rows through two contexts side by side; where they part, the row. */
static unsigned run(struct glake *ctx[2], struct CUstream_st *stream[2][STREAMS])
{
	char *first[2] = {0};

	for (unsigned i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		ptrdiff_t offset[2] = {0};
		int err[2];

		for (int c = 0; c < 2; c++) {
			void **at = &held[c][row->block];

			if (!row->size) {
				err[c] = glake_free(ctx[c], *at, stream[c][row->stream]);
				*at = NULL;
				continue;
			}
			err[c] = glake_alloc(ctx[c], 0, row->size, stream[c][row->stream],
				row->flags, at);
			if (!first[c])
				first[c] = *at;
			if (!err[c])
				offset[c] = (char *)*at - first[c];
		}
		if (err[0] != err[1] || offset[0] != offset[1])
			return i;
	}
	return count;
}

static void compare(const char *what, const char *budget)
{
	struct CUstream_st *stream[2][STREAMS] = {0};
	struct glake_stats stats[2];
	struct glake *ctx[2];

	memset(held, 0, sizeof(held));
	for (int c = 0; c < 2; c++) {
		ctx[c] =
			flow_open((const char *const[]){budget, "map.span=256GiB", NULL});
		for (int i = 1; i < STREAMS; i++)
			glake_stream_new(ctx[c], 0, &stream[c][i]);
	}
	is_int(run(ctx, stream), count, what);
	for (int c = 0; c < 2; c++) {
		stats[c] = flow_stats(ctx[c], 0);
		stats[c].hold_max = 0; /* a time */
	}
	ok(!memcmp(&stats[0], &stats[1], sizeof(stats[0])), "  and all figures the same");
	tap_note("%u requests, %" PRIu64 " hits, %" PRIu64 " stitched, %" PRIu64
		 " refused",
		count, stats[0].hits, stats[0].stitches, stats[0].oom);
	for (int c = 0; c < 2; c++) {
		for (int i = 1; i < STREAMS; i++)
			glake_stream_free(ctx[c], 0, stream[c][i]);
		is_int(glake_close(ctx[c], NULL), 0, "closed");
	}
}

int main(void)
{
	tap_plan_later();
	make_up();
	compare("the same addresses for a random sequence", "pool.budget=0");
	compare("and where memory is short", "pool.budget=512MiB");
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		if (read_job(jobs[i]))
			compare(strrchr(jobs[i], '/') + 1, "pool.budget=0");
		else
			tap_skip(strrchr(jobs[i], '/') + 1, "no xz");
	}
	return tap_done();
}
