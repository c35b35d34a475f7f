/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What policy.target=auto goes by: the part of the GPU, or of the budget, that anybody holds. */
#include "unit/cache/rig.h"

#define GIB  (1024 * MIB)
#define SIZE (16 * GIB) /* of the GPU */

static struct rig rig;
static struct glk_drv_ops ops;
static int (*info)(struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total);
static uint64_t others; /* bytes that other programs hold */
static int asked;
static bool refuses;

static int counted(struct glk_drv *drv, int device, size_t *ret_free, size_t *ret_total)
{
	int err = info(drv, device, ret_free, ret_total);

	asked++;
	*ret_free -= others;
	return refuses ? -EIO : err;
}

static void begin(const char *setting)
{
	rig_open(&rig,
		(const char *const[]){"soft.memory=16GiB", "map.span=64GiB",
			"policy.target=auto", setting, NULL});
	ops = *rig.drv->ops;
	info = ops.memory_info;
	ops.memory_info = counted;
	rig.drv->ops = &ops;
	others = 0;
	asked = 0;
	refuses = false;
}

/* The others go too: what is held is the library's. */
static void end(void)
{
	others = 0;
	rig_close(&rig, 0);
}

/* Held over the peak, in thousandths, that is let be. */
static int64_t target(void)
{
	uint64_t peak, most;

	glk_lock(&rig.cache.lock);
	glk_seats_sum(&rig.cache, &rig.cache.sum);
	peak = rig.cache.sum.live;
	most = glk_supply_target(&rig.cache, 0);
	glk_unlock(&rig.cache.lock);
	return (int64_t)((most * 1000 + peak / 2) / peak);
}

static void slopes(void)
{
	uint64_t addr[6];

	begin("policy.target=auto");
	addr[0] = rig_alloc(&rig, 4 * GIB, NULL);
	is_int(target(), 1100, "a quarter of the GPU is held: memory is plenty");
	is_int(asked, 2, "the driver was asked at the start, and at growth");
	addr[1] = rig_alloc(&rig, 4 * GIB, NULL);
	is_int(target(), 1100, "and so it is at the half");
	addr[2] = rig_alloc(&rig, 3200 * MIB, NULL);
	is_int(target(), 1054, "seven tenths: half way");
	addr[3] = rig_alloc(&rig, 3200 * MIB, NULL);
	is_int(target(), 1007, "nearly nine");
	addr[4] = rig_alloc(&rig, 160 * MIB, NULL);
	is_int(target(), 1005, "and above");
	is_int(asked, 6, "one question a growth");
	rig_free(&rig, addr[4], NULL);
	addr[4] = rig_alloc(&rig, 160 * MIB, NULL);
	is_int(asked, 6, "and none where none was made");
	for (int i = 0; i < 5; i++)
		rig_free(&rig, addr[i], NULL);
	end();
}

static void sees_others(void)
{
	uint64_t addr[3];

	begin("policy.target=auto");
	addr[0] = rig_alloc(&rig, 4 * GIB, NULL);
	others = 7120 * MIB;
	is_int(target(), 1100, "what others hold is not asked for at every turn");
	addr[1] = rig_alloc(&rig, 32 * MIB, NULL);
	is_int(target(), 1056, "but at growth, and counts");
	refuses = true;
	others = 0;
	addr[2] = rig_alloc(&rig, 32 * MIB, NULL);
	is_int(target(), 1055, "where the driver does not say it is as before");
	for (int i = 0; i < 3; i++)
		rig_free(&rig, addr[i], NULL);
	end();
}

static void falls_late(void)
{
	uint64_t addr[2];

	begin("policy.target=auto");
	others = 6144 * MIB;
	addr[0] = rig_alloc(&rig, 4 * GIB, NULL);
	is_int(target(), 1070, "five eighths are held");
	others -= 640 * MIB;
	addr[1] = rig_alloc(&rig, 32 * MIB, NULL);
	is_int(target(), 1070, "four hundredths less change nothing");
	rig_free(&rig, addr[1], NULL);
	others -= 320 * MIB;
	addr[1] = rig_alloc(&rig, 96 * MIB, NULL);
	is_int(target(), 1083, "more than five do");
	others += 320 * MIB;
	rig_free(&rig, addr[1], NULL);
	addr[1] = rig_alloc(&rig, 160 * MIB, NULL);
	is_int(target(), 1077, "the other way any amount does");
	rig_free(&rig, addr[0], NULL);
	rig_free(&rig, addr[1], NULL);
	end();
}

static void budget(void)
{
	uint64_t addr;

	begin("pool.budget=2GiB");
	addr = rig_alloc(&rig, 1434 * MIB, NULL);
	is_int(target(), 1052,
		"seven tenths of the budget, of a GPU that is nearly empty");
	rig_free(&rig, addr, NULL);
	end();
}

static void number(void)
{
	uint64_t addr;

	begin("policy.target=1.2");
	others = 9 * GIB;
	addr = rig_alloc(&rig, 6 * GIB, NULL);
	is_int(target(), 1200, "a number is one, however full the GPU is");
	is_int(asked, 0, "and nothing is asked for it");
	rig_free(&rig, addr, NULL);
	end();
}

/* Blocks of random sizes, so many bytes of them at the most; what they were served with, a random number each time. */
#define LIVE 64
static uint64_t block[LIVE], size_of[LIVE];

static void random_sizes(unsigned count, uint64_t bound)
{
	static uint64_t random = 1;
	uint64_t live = 0;

	for (unsigned i = 0; i < LIVE; i++)
		live += size_of[i];
	for (unsigned i = 0; i < count; i++) {
		unsigned at = i % LIVE;
		uint64_t size;

		random = random * 6364136223846793005 + 1442695040888963407;
		size = ((random >> 33) % 64 + 1) * MIB;
		for (unsigned n = at; block[at] || live + size > bound; n++) {
			if (!block[n % LIVE])
				continue;
			rig_free(&rig, block[n % LIVE], NULL);
			live -= size_of[n % LIVE];
			block[n % LIVE] = size_of[n % LIVE] = 0;
		}
		block[at] = rig_alloc(&rig, size, NULL);
		size_of[at] = size;
		live += size;
	}
}

static void free_all(void)
{
	for (unsigned i = 0; i < LIVE; i++) {
		if (block[i])
			rig_free(&rig, block[i], NULL);
		block[i] = size_of[i] = 0;
	}
}

/* Requests that have memory mapped which lay elsewhere, again and again, are worth an eighth of the GPU. */
static void loosens(void)
{
	uint64_t addr[2], maps;

	begin("policy.target=auto");
	addr[0] = rig_alloc(&rig, GIB, NULL);
	is_int(target(), 1100, "memory is plenty, and there was no trouble");
	rig_free(&rig, addr[0], NULL);
	random_sizes(2000, GIB);
	ok(rig.cache.loose, "blocks of random sizes are trouble");
	maps = rig_calls(&rig, GLAKE_CALL_MAP);
	random_sizes(2000, GIB);
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_MAP) - maps), 0,
		"and none when enough is held");
	ok(rig_figures(&rig).reserved > GIB + GIB / 10 &&
			rig_figures(&rig).reserved <= 3 * GIB,
		"which is more than the target, and not all that it may be");
	free_all();
	addr[0] = rig_alloc(&rig, 4 * GIB, NULL);
	is_int(target(), 1500, "an eighth of the GPU may be held beside what is live");
	addr[1] = rig_alloc(&rig, 3 * GIB, NULL);
	is_int(target(), 1143, "as far as a half of it in all");
	others = GIB;
	rig_free(&rig, addr[1], NULL);
	addr[1] = rig_alloc(&rig, 3 * GIB + 512 * MIB, NULL);
	ok(target() < 1100, "what others have counts");
	rig_free(&rig, addr[0], NULL);
	rig_free(&rig, addr[1], NULL);
	end();
	begin("policy.target=1.1");
	random_sizes(4000, GIB);
	is_int((int64_t)rig_figures(&rig).reserved / (int64_t)(GIB + GIB / 10 + MIB), 0,
		"a number is one, whatever the trouble");
	free_all();
	end();
}

int main(void)
{
	tap_plan_later();
	slopes();
	sees_others();
	falls_late();
	budget();
	number();
	loosens();
	return tap_done();
}
