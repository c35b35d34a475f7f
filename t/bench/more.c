/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench-more: what glakectl bench leaves to those who change the library. Sizes that never repeat,
 * pinned memory of the host, KV caches, the longest calls, threads side by side, compression, what
 * lent links cost those who lend, and requests for what another stream freed.
 */
#include "more.h"

#include <getopt.h>

#define COMMAND "bench-more"

static const struct bench_part *const parts[] = {&bench_sizes, &bench_host, &bench_kv,
	&bench_worst, &bench_scale, &bench_packed, &bench_beside, &bench_handover};

static const struct option long_options[] = {
	{"driver", required_argument, NULL, 'd'},
	{"conf", required_argument, NULL, 'c'},
	{"rounds", required_argument, NULL, 'r'},
	{"requests", required_argument, NULL, 'n'},
	{"most", required_argument, NULL, 'm'},
	{"threads", required_argument, NULL, 't'},
	{"size", required_argument, NULL, 's'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: bench-more [OPTION]... [sizes] [host] [kv] [worst] [scale]\n"
	"                  [packed] [beside] [handover]\n"
	"\n"
	"  sizes  millions of sizes that never repeat: what the library keeps stays bounded\n"
	"  host   pinned memory of the host: touched and locked at once, beside the driver's\n"
	"  kv     sequences of a KV cache that grow, end, are forked and adopted, beside the\n"
	"         driver\n"
	"  worst  the longest free, request and time under the lock, against the number of\n"
	"         blocks, streams, GPUs and contexts\n"
	"  scale  pairs of allocate and free by several threads at once, on a stream each and all\n"
	"         on one, beside one thread alone; and what the machine itself gains by threads\n"
	"  packed contents that are compressed while they are away, half of them noise\n"
	"  handover\n"
	"         a request for what another stream freed, with its work pending or done\n"
	"  beside copies over lent links while each GPU that lends copies within its memory, as a\n"
	"         kernel that is bound by memory would: by how many percent both are slower\n"
	"\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -r, --rounds N               how often each is measured (20; host, kv, packed,\n"
	"                               beside: 5; worst: 3)\n"
	"  -n, --requests N             requests of sizes (7000000)\n"
	"  -m, --most N                 worst without counts above N (1000000)\n"
	"  -t, --threads N              of scale (2)\n"
	"  -s, --size BYTES             of host (8GiB; on the software device 256MiB)\n"
	"  -j, --json                   the report as JSON\n"
	"  -q, --quiet                  no progress, no remarks\n"
	"  -h, --help                   this text\n";

static int set_size(struct bench_options *options, const char *text)
{
	uint64_t size;

	if (glake_size_parse(text, &size) || !size)
		return glk_tool_usage(
			COMMAND, "--size takes bytes, as 8GiB, not '%s'", text);
	options->size = size;
	return 0;
}

static int take(int c, struct bench_options *options)
{
	switch (c) {
	case 't':
		return glk_tool_read_count(COMMAND, "--threads", optarg,
			BENCH_THREADS_MAX, &options->threads);
	case 'n':
		return glk_tool_read_count(COMMAND, "--requests", optarg, BENCH_SIZES_MAX,
			&options->requests);
	case 'm':
		return glk_tool_read_count(
			COMMAND, "--most", optarg, BENCH_WORST_MOST, &options->most);
	case 's':
		return set_size(options, optarg);
	default:
		return glk_tool_take_option(&options->context, COMMAND, c);
	}
}

int main(int argc, char **argv)
{
	static const struct bench_set set = {.command = COMMAND,
		.help = help,
		.options = long_options,
		.take = take,
		.parts = parts,
		.count = sizeof(parts) / sizeof(parts[0])};

	return glk_tool_finish(bench_run(&set, argc, argv));
}
