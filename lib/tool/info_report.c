/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl info for a person: one block a subject, columns aligned, and no figure where none
 * is known.
 */
#include "tool/feature.h"
#include "tool/info.h"

#include "base/parse.h"

#include <glake/conf.h>
#include <glake/context.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SIZE_TEXT 24

/* Three or four digits that tell something; exact sizes are for JSON. */
static const char *size_text(uint64_t bytes, char buffer[SIZE_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(*units)) {
		value /= 1024;
		unit++;
	}
	snprintf(buffer, SIZE_TEXT, "%.*f %s", unit ? 1 : 0, value, units[unit]);
	return buffer;
}

static void print_driver(const struct info *info)
{
	struct glake_driver driver = {.sz = sizeof(driver)};

	puts("\nDriver");
	if (!info->ctx || glake_driver_get(info->ctx, &driver))
		printf("  none: %s\n", info->failure);
	else if (driver.version)
		printf("  %s, driver API %d.%d\n", driver.name, driver.version / 1000,
			driver.version % 1000 / 10);
	else
		printf("  %s, the software device\n", driver.name);
	if (driver.fallback[0])
		printf("  no GPU is used: %s\n", driver.fallback);
}

static void print_capabilities(uint32_t caps)
{
	const char *word;
	unsigned int bit;

	for (unsigned int i = 0; (word = info_capability(i, &bit)); i++)
		if (caps & bit)
			printf(" %s", word);
	puts(caps ? "" : " nothing");
}

static void print_gpu(int index, const struct glake_device *gpu)
{
	char page[GLK_FORMAT_MAX], best[GLK_FORMAT_MAX], size[SIZE_TEXT];

	printf("  %2d  %s\n", index, gpu->name);
	printf("      %-14s %s", "memory", size_text(gpu->memory, size));
	if (gpu->free_valid)
		printf(", %s free", size_text(gpu->free, size));
	puts("");
	if (gpu->uuid[0])
		printf("      %-14s %s\n", "uuid", gpu->uuid);
	if (gpu->pci[0])
		printf("      %-14s %s\n", "pci", gpu->pci);
	if (gpu->numa_node >= 0)
		printf("      %-14s %d\n", "nearest node", gpu->numa_node);
	else
		printf("      %-14s unknown\n", "nearest node");
	if (gpu->major)
		printf("      %-14s %d.%d\n", "compute", gpu->major, gpu->minor);
	glk_format_size(gpu->granularity, page, sizeof(page));
	glk_format_size(gpu->granularity_recommended, best, sizeof(best));
	printf("      %-14s %s, recommended %s\n", "granularity", page, best);
	printf("      %-14s", "can do");
	print_capabilities(gpu->caps);
}

static void print_gpus(const struct info *info)
{
	struct glake_device gpu;
	int count = info->ctx ? glake_device_count(info->ctx) : 0;

	if (count > 0)
		puts("\nGPUs");
	for (int i = 0; i < count; i++) {
		gpu = (struct glake_device){.sz = sizeof(gpu)};
		if (!glake_device_get(info->ctx, i, &gpu))
			print_gpu(i, &gpu);
		else
			printf("  %2d  cannot be asked\n", i);
	}
}

static void print_nodes(void)
{
	struct glake_node node = {.sz = sizeof(node)};
	char total[SIZE_TEXT], free[SIZE_TEXT];

	printf("\nNUMA nodes\n  %4s  %10s  %10s  %s\n", "node", "memory", "free",
		"CPUs, and where there are several, distances to all");
	for (size_t i = 0; !glake_node_get(i, &node); i++) {
		bool known = node.memory_valid;

		printf("  %4d  %10s  %10s  %s", node.id,
			known ? size_text(node.memory, total) : "?",
			known ? size_text(node.free, free) : "?",
			node.cpus[0] ? node.cpus : "-");
		for (uint32_t to = 0; to < node.distances && node.distances > 1; to++)
			printf("%s%u", to ? " " : "   ", node.distance[to]);
		puts("");
	}
}

static void print_modules(void)
{
	struct glake_module module = {.sz = sizeof(module)};

	puts("\nKernel modules");
	for (size_t i = 0; !glake_module_get(i, &module); i++) {
		printf("  %-10s  %s", module.name, module.text);
		if (module.version[0])
			printf("; version %s", module.version);
		if (module.flavour[0])
			printf(", %s", module.flavour);
		puts("");
	}
}

static void print_tools(void)
{
	struct glake_uvm_tools tools = {.sz = sizeof(tools)};

	/* of a module that cannot be used its own line says so */
	if (!glake_uvm_tools_get(&tools) && tools.state != GLAKE_UVM_NO_MODULE)
		printf("  %-10s  %s\n", "its tools", tools.text);
}

static void print_conf(const struct info *info)
{
	struct glake_conf_value value;
	struct glake_conf_key key;
	char name[64];
	size_t index = 0;
	bool any = false;

	if (!info->ctx) {
		info_print_conf_file("\nConfiguration file  ");
		return;
	}
	puts(info->all ? "\nConfiguration"
		       : "\nConfiguration that is not at its default");
	while (info_next_value(info, &index, &key, &value)) {
		any = true;
		snprintf(name, sizeof(name), "%s.%s", key.section, key.key);
		printf("  %-24s  %-12s  %s", name, value.text[0] ? value.text : "\"\"",
			info_origin(value.origin));
		if (value.source[0])
			printf(" %s", value.source);
		if (value.line)
			printf(", line %d", value.line);
		puts("");
	}
	if (!any)
		puts("  none");
	info_print_conf_file("  file: ");
}

void info_print_report(const struct info *info)
{
	printf("glake %s\n", glake_version_string());
	print_driver(info);
	print_gpus(info);
	print_nodes();
	print_modules();
	print_tools();
	puts("\nFeatures");
	glk_feature_print();
	print_conf(info);
}
