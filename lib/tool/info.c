/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl info: what there is on this machine, as glake sees it. It is the first thing to
 * run when something does not work, so it reports whatever can be found out: without a GPU it
 * shows the software device, and when the library does not open at all it still shows nodes
 * and kernel modules, which often tell why.
 */
#include "tool/info.h"

#include "tool/report.h"
#include "tool/tool.h"

#include <glake/conf.h>
#include <glake/context.h>
#include <glake/error.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "info"

static const struct option long_options[] = {
	{"all", no_argument, NULL, 'a'},
	{"driver", required_argument, NULL, 'd'},
	{"conf", required_argument, NULL, 'c'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl info [OPTION]...\n"
	"\n"
	"Shows the driver, the GPUs and what they can do, the NUMA nodes, NVIDIA's kernel\n"
	"modules, what glake was built or runs without, and the configuration values that\n"
	"are not at their default.\n"
	"\n"
	"  -a, --all                    all configuration values\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -j, --json                   the report as JSON\n"
	"  -h, --help                   this text\n";

const char *info_capability(unsigned int index, unsigned int *ret_bit)
{
	static const struct {
		unsigned int bit;
		const char *word;
	} words[] = {
		{GLAKE_CAP_VMM, "vmm"},
		{GLAKE_CAP_FD, "fd"},
		{GLAKE_CAP_FABRIC, "fabric"},
		{GLAKE_CAP_RDMA, "rdma"},
		{GLAKE_CAP_DMABUF, "dmabuf"},
		{GLAKE_CAP_HOST_NUMA, "host_numa"},
		{GLAKE_CAP_MANAGED, "managed"},
		{GLAKE_CAP_PAGEABLE, "pageable"},
		{GLAKE_CAP_MPS, "mps"},
	};

	if (index >= sizeof(words) / sizeof(*words))
		return NULL;
	*ret_bit = words[index].bit;
	return words[index].word;
}

const char *info_origin(int origin)
{
	switch (origin) {
	case GLAKE_CONF_DEFAULT:
		return "default";
	case GLAKE_CONF_FILE:
		return "file";
	case GLAKE_CONF_ENV:
		return "environment";
	case GLAKE_CONF_OPTION:
		return "option";
	}
	return "?";
}

void info_print_conf_file(const char *before)
{
	const char *path = glake_conf_path();

	printf("%s%s%s\n", before, path,
		access(path, F_OK) ? ", which is not there" : "");
}

bool info_next_value(const struct info *info, size_t *index,
	struct glake_conf_key *ret_key, struct glake_conf_value *ret_value)
{
	while (info->ctx) {
		*ret_key = (struct glake_conf_key){.sz = sizeof(*ret_key)};
		*ret_value = (struct glake_conf_value){.sz = sizeof(*ret_value)};
		if (glake_conf_key_get(*index, ret_key) ||
			glake_conf_value_get(info->ctx, *index, ret_value))
			return false;
		++*index;
		if (info->all || ret_value->origin != GLAKE_CONF_DEFAULT)
			return true;
	}
	return false;
}

/* The library's own sentence; for want of it, the error's. */
static void keep_failure(int err, struct info *info)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (!glake_last_error(&record) && record.err == err && record.text[0])
		snprintf(info->failure, sizeof(info->failure), "%s", record.text);
	else
		snprintf(info->failure, sizeof(info->failure), "%s", strerror(-err));
}

static int report(const struct glk_tool_context *wanted, bool all)
{
	struct info info = {.all = all};
	struct report out;
	int status = GLK_TOOL_OK;
	int err;

	err = glk_tool_open(wanted, &info.ctx);
	if (err) {
		info.ctx = NULL;
		keep_failure(err, &info);
		status = GLK_TOOL_FAILED;
	}
	if (report_begin(&out, wanted->json)) {
		status = GLK_TOOL_FAILED;
	} else {
		glk_json_object(&out.json);
		info_report(&out.json, &info);
		glk_json_end(&out.json);
		status = report_end(&out) ? GLK_TOOL_FAILED : status;
	}
	glake_close(info.ctx, NULL);
	return status;
}

int glk_tool_info(int argc, char **argv)
{
	/* The report says itself what it runs on. */
	struct glk_tool_context wanted = {.quiet = true};
	bool all = false;
	int c, status = 0;

	while (!status && (c = glk_tool_option(argc, argv, long_options)) != -1) {
		switch (c) {
		case 'a':
			all = true;
			break;
		case 'h':
			fputs(help, stdout);
			return GLK_TOOL_OK;
		default:
			status = glk_tool_take_option(&wanted, COMMAND, c);
		}
	}
	if (status)
		return status;
	if (optind < argc)
		return glk_tool_usage(
			COMMAND, "no argument is expected, not '%s'", argv[optind]);
	return report(&wanted, all);
}
