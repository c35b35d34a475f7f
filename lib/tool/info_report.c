/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What glakectl info reports. Names are stable; sizes are bytes; what is not known is null
 * or the empty text, never 0.
 */
#include "tool/feature.h"
#include "tool/info.h"

#include "base/json.h"

#include <glake/conf.h>
#include <glake/context.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

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
	const char *word;
	char compute[24] = "";
	unsigned int bit;

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
	for (unsigned int i = 0; (word = info_capability(i, &bit)); i++)
		if (gpu->caps & bit)
			glk_json_text(json, word);
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
	while (info_next_value(info, &index, &key, &value)) {
		snprintf(name, sizeof(name), "%s.%s", key.section, key.key);
		glk_json_object(json);
		glk_json_add_text(json, "key", name);
		glk_json_add_text(json, "value", value.text);
		glk_json_add_text(json, "default", key.default_value);
		glk_json_add_text(json, "origin", info_origin(value.origin));
		glk_json_add_text(json, "source", value.source);
		glk_json_add_int(json, "line", value.line);
		glk_json_end(json);
	}
	glk_json_end(json);
}

void info_report(struct glk_json *json, const struct info *info)
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
