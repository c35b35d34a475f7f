/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glaked: the broker as a program of its own. The configuration is that of the library. */
#include "base/conf.h"
#include "base/log.h"
#include "share/broker.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <glake/version.h>

static const char help[] =
	"usage: glaked [--socket PATH] [--all-users]\n"
	"\n"
	"Lets several processes with glake share the memory of GPUs: see glaked(1). What it\n"
	"gives of each GPU, and to each of them, stands in the configuration (share.total,\n"
	"share.least, share.most).\n"
	"\n"
	"  -s, --socket PATH  instead of glake/broker.sock in the run-time directory of the user\n"
	"  -a, --all-users    serve all users who can reach the socket, and not this one alone\n"
	"  -h, --help         show this help\n"
	"  -V, --version      show the version\n";

static const struct option long_options[] = {
	{"socket", required_argument, NULL, 's'},
	{"all-users", no_argument, NULL, 'a'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{0},
};

int main(int argc, char **argv)
{
	struct glk_broker_options options = {0};
	static struct glk_conf conf;
	int c;

	while ((c = getopt_long(argc, argv, "s:ahV", long_options, NULL)) != -1) {
		switch (c) {
		case 's':
			options.socket = optarg;
			break;
		case 'a':
			options.all_users = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'V':
			puts("glaked " GLAKE_VERSION_STRING);
			return 0;
		default:
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "glaked: %s is no option; try --help\n", argv[optind]);
		return 2;
	}
	glk_log_level_set(GLAKE_LOG_WARNING);
	if (glk_conf_read(NULL, NULL, NULL, &conf))
		return 1;
	glk_log_level_set(conf.log_level);
	options.total = conf.share_total;
	options.least = conf.share_least;
	options.most = conf.share_most;
	return glk_broker_run(&options);
}
