/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl info: what there is on this machine, as glake sees it. It is the first thing to
 * run when something does not work, so it reports whatever can be found out: without a GPU it
 * shows the software device, and when the library does not open at all it still shows nodes
 * and kernel modules, which often tell why.
 */
#include "tool/tool.h"

#include "base/json.h"
#include "tool/feature.h"
#include "tool/report.h"

#include <glake/conf.h>
#include <glake/context.h>
#include <glake/info.h>
#include <glake/uvm.h>

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "info"

struct info {
	struct glake *ctx; /* NULL when the library did not open */
	char failure[300]; /* why it did not */
	bool all;	   /* configuration values at their default too */
};

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

static const struct {
	unsigned int bit;
	const char *word;
} capabilities[] = {
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

/* The next value to show, from *index on, which moves behind it; false at the end. */
static bool next_value(const struct info *info, size_t *index,
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

static void add_driver(const struct info *info, struct glk_json *json)
{
	struct glake_driver driver = {.sz = sizeof(driver)};

	glk_json_key(json, "driver");
	if (!info->ctx || glake_driver_get(info->ctx, &driver)) {
		glk_json_null(json);
		glk_json_add_text(json, "failure", info->failure);
		return;
	}
	glk_json_object(json);
	glk_json_add_text(json, "name", driver.name);
	glk_json_add_int(json, "version", driver.version);
	glk_json_add_text(json, "fallback", driver.fallback);
	glk_json_end(json);
}

static void add_or_null(
	struct glk_json *json, const char *key, bool known, uint64_t value)
{
	glk_json_key(json, key);
	if (known)
		glk_json_uint(json, value);
	else
		glk_json_null(json);
}

static void add_gpu(int index, const struct glake_device *gpu, struct glk_json *json)
{
	char compute[24] = "";

	if (gpu->major)
		snprintf(compute, sizeof(compute), "%d.%d", gpu->major, gpu->minor);
	glk_json_object(json);
	glk_json_add_int(json, "index", index);
	glk_json_add_text(json, "name", gpu->name);
	glk_json_add_text(json, "uuid", gpu->uuid);
	glk_json_add_text(json, "pci", gpu->pci);
	glk_json_add_uint(json, "memory_bytes", gpu->memory);
	add_or_null(json, "free_bytes", gpu->free_valid, gpu->free);
	add_or_null(json, "numa_node", gpu->numa_node >= 0, (uint64_t)gpu->numa_node);
	glk_json_add_text(json, "compute", compute);
	glk_json_add_uint(json, "granularity_bytes", gpu->granularity);
	glk_json_add_uint(
		json, "granularity_recommended_bytes", gpu->granularity_recommended);
	glk_json_key(json, "capabilities");
	glk_json_array(json);
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(*capabilities); i++)
		if (gpu->caps & capabilities[i].bit)
			glk_json_text(json, capabilities[i].word);
	glk_json_end(json);
	glk_json_end(json);
}

static void add_gpus(const struct info *info, struct glk_json *json)
{
	int count = info->ctx ? glake_device_count(info->ctx) : 0;
	struct glake_device gpu;

	glk_json_key(json, "gpus");
	glk_json_array(json);
	for (int i = 0; i < count; i++) {
		gpu = (struct glake_device){.sz = sizeof(gpu)};
		if (!glake_device_get(info->ctx, i, &gpu))
			add_gpu(i, &gpu, json);
	}
	glk_json_end(json);
}

static void add_nodes(struct glk_json *json)
{
	struct glake_node node = {.sz = sizeof(node)};

	glk_json_key(json, "nodes");
	glk_json_array(json);
	for (size_t i = 0; !glake_node_get(i, &node); i++) {
		glk_json_object(json);
		glk_json_add_int(json, "id", node.id);
		glk_json_add_text(json, "cpus", node.cpus);
		add_or_null(json, "memory_bytes", node.memory_valid, node.memory);
		add_or_null(json, "free_bytes", node.memory_valid, node.free);
		glk_json_key(json, "distances");
		glk_json_array(json);
		for (uint32_t to = 0; to < node.distances; to++)
			glk_json_uint(json, node.distance[to]);
		glk_json_end(json);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void lower_state(const char *name, char *text, size_t size)
{
	snprintf(text, size, "%s", name);
	for (char *at = text; *at; at++)
		*at = (char)tolower((unsigned char)*at);
}

static void add_modules(struct glk_json *json)
{
	struct glake_module module = {.sz = sizeof(module)};
	char state[24];

	glk_json_key(json, "modules");
	glk_json_array(json);
	for (size_t i = 0; !glake_module_get(i, &module); i++) {
		lower_state(glake_module_state_name(module.state), state, sizeof(state));
		glk_json_object(json);
		glk_json_add_text(json, "name", module.name);
		glk_json_add_text(json, "state", state);
		glk_json_add_text(json, "text", module.text);
		glk_json_add_text(json, "version", module.version);
		glk_json_add_text(json, "disk_version", module.disk_version);
		glk_json_add_text(json, "flavour", module.flavour);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_tools(struct glk_json *json)
{
	struct glake_uvm_tools tools = {.sz = sizeof(tools)};
	char state[24];

	if (glake_uvm_tools_get(&tools))
		return;
	lower_state(glake_uvm_state_name(tools.state), state, sizeof(state));
	glk_json_key(json, "tools");
	glk_json_object(json);
	glk_json_add_text(json, "state", state);
	glk_json_add_text(json, "text", tools.text);
	glk_json_add_text(json, "generation", tools.generation);
	glk_json_end(json);
}

static void add_conf(const struct info *info, struct glk_json *json)
{
	struct glake_conf_value value;
	struct glake_conf_key key;
	char name[64];
	size_t index = 0;

	glk_json_key(json, "conf");
	glk_json_array(json);
	while (next_value(info, &index, &key, &value)) {
		snprintf(name, sizeof(name), "%s.%s", key.section, key.key);
		glk_json_object(json);
		glk_json_add_text(json, "key", name);
		glk_json_add_text(json, "value", value.text);
		glk_json_add_text(json, "default", key.default_value);
		glk_json_add_text(json, "origin", glk_tool_origin(value.origin));
		glk_json_add_text(json, "source", value.source);
		glk_json_add_int(json, "line", value.line);
		glk_json_end(json);
	}
	glk_json_end(json);
}

/* Names are stable; sizes are bytes; what is not known is null or the empty text, never 0. */
static void add(struct glk_json *json, const struct info *info)
{
	glk_json_add_text(json, "version", glake_version_string());
	add_driver(info, json);
	add_gpus(info, json);
	add_nodes(json);
	add_modules(json);
	add_tools(json);
	glk_feature_add(json);
	add_conf(info, json);
	glk_json_add_text(json, "conf_file", glake_conf_path());
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
		glk_tool_keep_error(err, info.failure, sizeof(info.failure));
		status = GLK_TOOL_FAILED;
	}
	if (report_begin(&out, wanted->json)) {
		status = GLK_TOOL_FAILED;
	} else {
		glk_json_object(&out.json);
		add(&out.json, &info);
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
