/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pieces are touched and locked in each way, and by several threads at once. */
#include "tier/piece.h"

#include "base/error.h"
#include "driver/driver.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB  ((size_t)1 << 20)
#define SIZE (33 * MIB + 65536) /* a multiple of no slice */

static struct {
	size_t there, size; /* when it was locked */
	int err;
	pthread_barrier_t *meet; /* of those who lock */
	int unlocked;
} seen;

static size_t there(char *base, size_t size)
{
	static unsigned char pages[SIZE / 4096];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;

	if (mincore(base, size, pages))
		return 0;
	for (size_t i = 0; i < size / page; i++)
		count += pages[i] & 1;
	return count * page;
}

static int lock_host(struct glk_drv *drv, int device, void *ptr, size_t size)
{
	if (seen.meet) {
		pthread_barrier_wait(seen.meet);
		return 0;
	}
	seen.there = there(ptr, size);
	seen.size = size;
	return seen.err;
}

static int unlock_host(struct glk_drv *drv, int device, void *ptr)
{
	if (!seen.meet)
		seen.unlocked++;
	return 0;
}

static const struct glk_drv_ops ops = {
	.host_lock = lock_host, .host_unlock = unlock_host};
static struct glk_drv drv = {.ops = &ops};

/* Older systems touch when they lock. */
static bool touches(void)
{
	void *page = mmap(
		NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool yes = !madvise(page, 4096, 23 /* MADV_POPULATE_WRITE */);

	munmap(page, 4096);
	return yes;
}

static char *make(bool touches)
{
	char *base = NULL;

	is_int(glk_piece_make(&drv, 0, -1, false, touches, SIZE, &base), 0, "made");
	is_int((int64_t)seen.size, SIZE, "  and locked by one call");
	return base;
}

static void ways(void)
{
	char *base = make(true);

	if (touches())
		is_int((int64_t)seen.there, SIZE, "  when all of it was touched");
	else
		tap_skip("touched before", "this kernel touches no memory when asked to");
	is_int((uintptr_t)base % (2 * MIB), 0, "  at a huge page");
	base[SIZE - 1] = 1;
	ok(glk_piece_end(&drv, 0, base, SIZE) && seen.unlocked == 1, "and is no more");
	base = make(false);
	is_int((int64_t)seen.there, 0, "  as it comes");
	glk_piece_end(&drv, 0, base, SIZE);
}

/* Bytes of addresses of this process. */
static int64_t addresses(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long pages = -1;

	if (!file || fscanf(file, "%ld", &pages) != 1)
		tap_bail("no statm");
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

/* The second one begins where the first leaves no huge page, so there is something before it too. */
static void no_more_addresses(void)
{
	int64_t before = addresses();
	char *one = make(false), *two = make(false);

	is_int(addresses() - before, 2 * (int64_t)SIZE,
		"they have their addresses alone");
	glk_piece_end(&drv, 0, one, SIZE);
	glk_piece_end(&drv, 0, two, SIZE);
	is_int(addresses() - before, 0, "and give them back");
}

static void refusals(void)
{
	char *base = NULL;

	seen.err = -EIO;
	is_int(glk_piece_make(&drv, 0, -1, false, true, SIZE, &base), -EIO,
		"what the driver says");
	is_int(glk_piece_make(&drv, 0, -1, true, true, SIZE, &base), -EOPNOTSUPP,
		"bound to a node that is not known");
	ok(!base, "nothing is there");
	seen.err = 0;
}

static void *make_one(void *arg)
{
	char *base = NULL;

	if (glk_piece_make(&drv, 0, -1, false, true, 2 * MIB, &base))
		return arg;
	glk_piece_end(&drv, 0, base, 2 * MIB);
	return NULL;
}

#define THREADS 3

/* Each waits in the driver until all are there. */
static void at_once(void)
{
	pthread_t thread[THREADS];
	pthread_barrier_t meet;
	int failed = 0;
	void *ret;

	pthread_barrier_init(&meet, NULL, THREADS);
	seen.meet = &meet;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, make_one, &meet);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &ret);
		failed += ret != NULL;
	}
	is_int(failed, 0, "the driver is called by all who make pieces at once");
	pthread_barrier_destroy(&meet);
}

int main(void)
{
	tap_real_memory();
	tap_plan_later();
	ways();
	no_more_addresses();
	refusals();
	at_once();
	return tap_done();
}
