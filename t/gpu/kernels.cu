/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernels of the tests. What kernels.sh makes of them is kept beside them as text for the
 * driver, so that building needs no compiler for it.
 *
 * A word of a block says whose it is and where it lies: 4 bits of 10, 6 of the stream that
 * wrote it, 30 of the number of the block, 24 of the place. counters: blocks whose memory was
 * another stream's before, wrong words, and one of those with what it should have been.
 *
 * Loads and stores are volatile, so that each word is looked at once.
 */
typedef unsigned long long word;

#define JOBS 16

struct job {
	word base, tag, words;
};

struct jobs {
	struct job at[JOBS];
};

/* Makes a kernel last: ns. */
static __device__ void linger(unsigned delay)
{
	word begin, now;

	if (!delay)
		return;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do {
		__nanosleep(200);
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - begin < delay);
}

/* In a graph the number of the block grows with each replay. */
static __device__ word tag_of(const struct job *job, const volatile word *round)
{
	return job->tag + (round ? *round << 24 : 0);
}

/* Fills blocks with the words that are theirs. */
extern "C" __global__ void put(const __grid_constant__ struct jobs jobs, word *counters,
	const volatile word *round, unsigned delay)
{
	const struct job *job = &jobs.at[blockIdx.y];
	volatile word *base = (volatile word *)job->base;
	word i = blockIdx.x * blockDim.x + threadIdx.x, tag, before;

	linger(delay);
	tag = tag_of(job, round);
	before = i ? 0 : base[0];
	if (before >> 60 == 10 && (before ^ tag) >> 54)
		atomicAdd(&counters[0], 1);
	for (; i < job->words; i += gridDim.x * blockDim.x)
		base[i] = tag + i;
}

/* Counts a word that is not, and notes the first. */
static __device__ void compare(word found, word wanted, word *wrong, word *counters)
{
	if (found == wanted)
		return;
	if (!(*wrong)++ && !atomicCAS(&counters[2], 0, found))
		counters[3] = wanted;
}

/* Words that a thread has asked for before it looks at the first: memory of another GPU is far away. */
#define AHEAD 8

/* Counts the words that are not. */
extern "C" __global__ void check(const __grid_constant__ struct jobs jobs, word *counters,
	const volatile word *round, unsigned delay)
{
	const struct job *job = &jobs.at[blockIdx.y];
	const volatile word *base = (const volatile word *)job->base;
	word i = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
	word wrong = 0, tag, found[AHEAD];

	linger(delay);
	tag = tag_of(job, round);
	for (; i + (AHEAD - 1) * step < job->words; i += AHEAD * step) {
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			found[k] = base[i + k * step];
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			compare(found[k], tag + i + k * step, &wrong, counters);
	}
	for (; i < job->words; i += step)
		compare(base[i], tag + i, &wrong, counters);
	if (wrong)
		atomicAdd(&counters[1], wrong);
}

/* Begins the next round of a graph. */
extern "C" __global__ void turn(volatile word *round)
{
	*round = *round + 1;
}
