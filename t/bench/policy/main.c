/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Runs traces through the model and prints a line for each: memory, the driver's time of each
 * pass, and what was done for it.
 */
#include "policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB 1073741824.0

static const char usage[] =
	"usage: policy [--option value]... TRACE...\n"
	"A trace is a file in RMM's log format packed by xz, or one of\n"
	"halves, phases, around, saw, unique.\n"
	"  --slots 1,4          slots of a page of each size\n"
	"  --share 1,1          a size is made only below this share of the GPU\n"
	"  --gpu 140            GiB\n"
	"  --target 1.005       held over the peak of live before pages are broken up\n"
	"  --slack 16           MiB that may be held above the peak anyway\n"
	"  --limit 0            budget, x the peak of the whole trace; 0 for none\n"
	"  --small 256          KiB: blocks up to it lie in slots of their own\n"
	"  --bin 256            KiB: blocks up to it have bins\n"
	"  --bin-above 0        KiB: only blocks above it have bins\n"
	"  --flush -1           blocks that bins give back when a miss would map; -1 all\n"
	"  --round 0            8 sizes a power of two: 1 small, 2 large, 3 both, 0 none\n"
	"  --order coarse       exact, coarse or address: which idle page goes first\n"
	"  --fewest 0           fewest mappings first\n"
	"  --cost 0             of a place: 0 slots, 1 driver calls\n"
	"  --quarter 1          what a slot newly in use costs\n"
	"  --whole 1            an idle large page is newly in use as a whole\n"
	"  --atonce 3           a place without a call is taken: 1 the first, 2 the one with\n"
	"                       fewest slots newly in use, 3 that while --trim\n"
	"                       holds, 0 only if it costs least\n"
	"  --least 0            what a slot costs more that the target has no page for\n"
	"  --trim 1.2           no more large pages are used in part when their rests are this\n"
	"                       x (target - 1) of what is held,\n"
	"  --scarce 0.2         and the slots that can be had are less than this share of it\n"
	"  --foresee 1          1: and places are priced by that\n"
	"  --tries 16           free extents looked at\n"
	"  --sub 1              past the target small idle pages stand in for a large one\n"
	"  --undo 0             not when small idle pages are more than this share, percent\n"
	"  --batch 0            pages broken up at once, at least\n"
	"  --grow 1             1: new pages before idle ones while below the target\n"
	"  --passes 4\n"
	"  --verbose 0          1: what each pass called\n";

static struct conf conf = {.classes = 2,
	.slots = {1, 4},
	.share = {9, 9, 9, 9},
	.gpu = 140,
	.target = 1.005,
	.slack = 16,
	.small = 256,
	.bin_max = 256,
	.flush = FLUSH_ALL,
	.order = ORDER_COARSE,
	.grow = 1,
	.quarter = 1,
	.whole = 1,
	.atonce = 3,
	.foresee = 1,
	.trim = 1.2,
	.scarce = 0.2,
	.tries = 16,
	.sub = 1,
	.passes = 4};

static unsigned numbers(const char *text, double *values)
{
	unsigned n = 0;

	for (char *end; n < CLASSES && *text; text = *end ? end + 1 : end)
		values[n++] = strtod(text, &end);
	return n;
}

static bool option(const char *name, const char *value)
{
	double v[CLASSES], x = strtod(value, NULL);
	const struct {
		const char *name;
		int *value;
	} whole[] = {{"flush", &conf.flush}, {"round", &conf.round},
		{"fewest", &conf.fewest}, {"cost", &conf.cost}, {"atonce", &conf.atonce},
		{"whole", &conf.whole}, {"sub", &conf.sub}, {"batch", &conf.batch},
		{"undo", &conf.undo}, {"grow", &conf.grow}, {"foresee", &conf.foresee},
		{"tries", (int *)&conf.tries}, {"passes", (int *)&conf.passes}};
	const struct {
		const char *name;
		double *value;
	} real[] = {{"target", &conf.target}, {"slack", &conf.slack},
		{"limit", &conf.limit}, {"gpu", &conf.gpu}, {"quarter", &conf.quarter},
		{"least", &conf.least}, {"trim", &conf.trim}, {"scarce", &conf.scarce}};
	const struct {
		const char *name;
		uint64_t *value;
	} size[] = {{"small", &conf.small}, {"bin", &conf.bin_max},
		{"bin-above", &conf.bin_min}};

	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
		if (!strcmp(name, whole[i].name))
			return *whole[i].value = (int)x, true;
	for (size_t i = 0; i < sizeof(real) / sizeof(*real); i++)
		if (!strcmp(name, real[i].name))
			return *real[i].value = x, true;
	for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++)
		if (!strcmp(name, size[i].name))
			return *size[i].value = (uint64_t)x, true;
	if (!strcmp(name, "slots")) {
		conf.classes = numbers(value, v);
		for (unsigned c = 0; c < conf.classes; c++)
			conf.slots[c] = (uint32_t)v[c];
	} else if (!strcmp(name, "share")) {
		numbers(value, conf.share);
	} else if (!strcmp(name, "order")) {
		conf.order = *value == 'e' ? ORDER_EXACT
			: *value == 'c'	   ? ORDER_COARSE
					   : ORDER_ADDRESS;
	} else if (!strcmp(name, "verbose")) {
		conf.verbose = x != 0;
	} else {
		return false;
	}
	return true;
}

static double driver_ms(const struct calls *now, const struct calls *then)
{
	return ((double)(now->create - then->create) * 8.1 +
		       (double)(now->map - then->map) * (0.6 + 22.6) +
		       (double)(now->unmap - then->unmap) * 15.6 +
		       (double)(now->release - then->release) * 9.8) /
		1000;
}

static void pass(struct sim *sim, const struct trace *t, uint32_t *extent, uint64_t *size)
{
	for (size_t i = 0; i < t->ops; i++) {
		const struct op *op = &t->op[i];

		if (op->size) {
			extent[op->id] = block_alloc(sim, size[op->id] = op->size);
		} else {
			sim->live -= size[op->id];
			block_free(sim, extent[op->id]);
		}
	}
}

static void print(const struct sim *sim, const struct trace *t, const struct calls *at)
{
	double held = (double)sim->peak_held * 2097152;
	double worst = 0, sum = 0;

	printf("%-10s %7.4f", t->name, held / (double)t->peak);
	printf(" %6.2f |", driver_ms(&at[1], &at[0]) / (held / GIB));
	for (unsigned i = 1; i <= conf.passes; i++) {
		double ms = driver_ms(&at[i], &at[i - 1]);

		printf(" %6.0f", ms);
		if (i > 1 && ms > worst)
			worst = ms;
		if (i > 1)
			sum += ms;
	}
	if (t->job_s > 0)
		printf(" | %5.2f%% %5.2f%%", sum / (conf.passes - 1) / t->job_s / 10,
			worst / t->job_s / 10);
	else
		printf(" |      -      -");
	printf(" | %6lu %6lu | %7lu %6lu | %5u %5u %5.1f | %lu %lu\n", at[1].called,
		at[2].called - at[1].called, at[2].hits - at[1].hits,
		at[2].missed - at[1].missed, sim->space.peak_free[0],
		sim->space.peak_free[1],
		(double)sim->calls.looked / (double)sim->calls.fits, sim->calls.broken,
		sim->calls.oom);
	for (unsigned i = 1; conf.verbose && i <= conf.passes; i++)
		printf("  pass %u: create %lu map %lu unmap %lu release %lu hits %lu misses %lu"
		       " calling %lu fits %lu looked %lu\n",
			i, at[i].create - at[i - 1].create, at[i].map - at[i - 1].map,
			at[i].unmap - at[i - 1].unmap, at[i].release - at[i - 1].release,
			at[i].hits - at[i - 1].hits, at[i].missed - at[i - 1].missed,
			at[i].called - at[i - 1].called, at[i].fits - at[i - 1].fits,
			at[i].looked - at[i - 1].looked);
	if (conf.verbose)
		printf("  at most held, MiB: %lu; live %.1f, given %.1f, of it in bins %.1f;"
		       " used %lu, small %lu, stranded %lu, idle %lu, free %lu\n",
			sim->watch.held * 2, (double)sim->watch.live / 0x100000,
			(double)sim->watch.given / 0x100000,
			(double)sim->watch.binned / 0x100000, sim->watch.used * 2,
			sim->watch.small * 2, sim->watch.stranded * 2,
			sim->watch.idle * 2, sim->watch.free * 2);
	fflush(stdout);
}

static void run(const struct trace *t)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	uint32_t *extent = calloc(t->blocks, sizeof(*extent));
	uint64_t *size = calloc(t->blocks, sizeof(*size));
	struct calls at[PASSES + 1] = {0};

	sim->conf = &conf;
	sim->space.root[0] = sim->space.root[1] = NONE;
	sim->space.last = sim->space.spare = NONE;
	sim->space.seed = 1;
	sim->bins = (struct list){NONE, NONE};
	sim->budget = conf.limit * (double)t->peak;
	page_init(sim);
	for (unsigned i = 0; i < conf.passes; i++) {
		pass(sim, t, extent, size);
		at[i + 1] = sim->calls;
	}
	print(sim, t, at);
	page_fini(sim);
	free(sim->space.extent);
	free(extent);
	free(size);
	free(sim);
}

int main(int argc, char **argv)
{
	int i = 1;

	for (; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2)
		if (!option(argv[i] + 2, argv[i + 1]))
			break;
	if (i >= argc || !strncmp(argv[i], "--", 2) || conf.passes < 2 ||
		conf.passes > PASSES) {
		fputs(usage, stderr);
		return 2;
	}
	conf.slack *= 1 << 20;
	conf.gpu *= GIB;
	conf.small <<= 10;
	conf.bin_max <<= 10;
	conf.bin_min <<= 10;
	printf("%-10s %7s %6s | driver ms of each pass %*s | later: mean, most | called 1,2    |"
	       " hits, misses   | extents, looked   | broken, short\n",
		"trace", "held", "ms/GiB", (int)(7 * conf.passes) - 24, "");
	for (; i < argc; i++) {
		struct trace t = {0};

		if (trace_synthetic(&t, argv[i]) && trace_load(&t, argv[i])) {
			fprintf(stderr, "policy: cannot read %s\n", argv[i]);
			return 1;
		}
		run(&t);
		free(t.op);
	}
	return 0;
}
