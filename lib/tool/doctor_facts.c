/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What glakectl doctor judges. Nothing here fails: what cannot be had is a fact too. On each GPU a
 * small block is allocated and given back, for a driver promises more than it keeps: only pages
 * that were made tell what pages can do.
 */
#include "tool/doctor.h"

#include "tool/tool.h"

#include <glake/conf.h>
#include <glake/context.h>
#include <glake/memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIAL 1024 /* bytes */

static void try_gpu(struct glake *ctx, int index, struct doctor_gpu *gpu)
{
	struct glake_block block = {.sz = sizeof(block)};
	void *ptr = NULL;

	gpu->device.sz = sizeof(gpu->device);
	gpu->err = glake_device_get(ctx, index, &gpu->device);
	if (!gpu->err)
		gpu->err = glake_alloc(ctx, index, TRIAL, NULL, 0, &ptr);
	if (!gpu->err)
		gpu->err = glake_query(ctx, ptr, &block);
	if (gpu->err)
		glk_tool_keep_error(gpu->err, gpu->failure, sizeof(gpu->failure));
	gpu->can = block.can;
	if (ptr)
		glake_free(ctx, ptr, NULL);
}

static void take_gpus(struct glake *ctx, struct doctor_facts *facts)
{
	int count = glake_device_count(ctx);

	if (count <= 0)
		return;
	facts->gpus = calloc((size_t)count, sizeof(*facts->gpus));
	if (!facts->gpus)
		return;
	facts->gpu_count = count;
	for (int i = 0; i < count; i++)
		try_gpu(ctx, i, &facts->gpus[i]);
}

static void on_finding(const struct glake_conf_finding *finding, void *arg)
{
	struct doctor_facts *facts = arg;
	bool worse = finding->error && !facts->conf_errors;

	if (finding->error)
		facts->conf_errors++;
	else
		facts->conf_warnings++;
	if (facts->conf_text[0] && !worse)
		return;
	snprintf(facts->conf_text, sizeof(facts->conf_text), "%s%s%s%s%s",
		*finding->file ? finding->file : "--conf", *finding->key ? ": " : "",
		finding->key, ": ", finding->text);
}

static void check_conf(const struct glk_tool_context *wanted, struct doctor_facts *facts)
{
	struct glake_options options = {
		.sz = sizeof(options), .settings = wanted->settings};
	int err = glake_conf_check(&options, on_finding, facts);
	const char *path = glake_conf_path();

	if (err && !facts->conf_errors) {
		facts->conf_errors++;
		glk_tool_keep_error(err, facts->conf_text, sizeof(facts->conf_text));
	} else if (!facts->conf_text[0]) {
		snprintf(facts->conf_text, sizeof(facts->conf_text), "%s%s", path,
			access(path, F_OK) ? " is not there, and need not be" : "");
	}
}

/* Whether the software device is what is meant, by an option or by the configuration. */
static bool wants_soft(const struct glk_tool_context *wanted, struct glake *ctx)
{
	struct glake_conf_value value;

	if (wanted->backend == GLAKE_BACKEND_SOFT)
		return true;
	return ctx && wanted->backend == GLAKE_BACKEND_AUTO &&
		!glk_tool_value(ctx, "driver", "backend", &value) &&
		!strcmp(value.text, "soft");
}

static void open_context(
	const struct glk_tool_context *wanted, struct doctor_facts *facts)
{
	struct glake_options options = {
		.sz = sizeof(options),
		.backend = wanted->backend,
		.no_soft_warning = 1, /* the report says so */
		.settings = wanted->settings,
	};
	struct glake_conf_value value;
	struct glake *ctx = NULL;
	int err = glake_open(&options, &ctx);

	if (err) {
		ctx = NULL;
		glk_tool_keep_error(err, facts->failure, sizeof(facts->failure));
	}
	facts->soft_wanted = wants_soft(wanted, ctx);
	if (err)
		return;
	facts->opened = true;
	facts->soft = glake_backend(ctx) == GLAKE_BACKEND_SOFT;
	facts->driver.sz = sizeof(facts->driver);
	glake_driver_get(ctx, &facts->driver);
	if (!glk_tool_value(ctx, "pool", "export", &value))
		snprintf(facts->export, sizeof(facts->export), "%s", value.text);
	/* the software device in place of a GPU is looked at only where it is meant */
	if (!facts->soft || facts->soft_wanted)
		take_gpus(ctx, facts);
	glake_close(ctx, NULL);
}

void doctor_facts_gather(
	const struct glk_tool_context *wanted, bool load, struct doctor_facts *ret_facts)
{
	struct doctor_facts *facts = ret_facts;
	struct glake_node node = {.sz = sizeof(node)};

	*facts = (struct doctor_facts){.parameter = glake_parameter_get, .load = load};
	if (load)
		doctor_load_both(facts);
	facts->visible = getenv("CUDA_VISIBLE_DEVICES");
	check_conf(wanted, facts);
	/* The driver may load a module and make nodes when it is first used. */
	open_context(wanted, facts);
	facts->host.sz = sizeof(facts->host);
	glake_host_get(&facts->host);
	for (size_t i = 0; i < sizeof(facts->modules) / sizeof(*facts->modules); i++) {
		facts->modules[i].sz = sizeof(facts->modules[i]);
		glake_module_get(i, &facts->modules[i]);
	}
	facts->tools.sz = sizeof(facts->tools);
	glake_uvm_tools_get(&facts->tools);
	while (!glake_node_get(facts->node_count, &node)) {
		if (facts->node_count < DOCTOR_NODES)
			facts->nodes[facts->node_count] = node;
		facts->node_count++;
	}
}

void doctor_facts_free(struct doctor_facts *facts)
{
	free(facts->gpus);
}
