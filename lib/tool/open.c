/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How a command comes to its context. The same two options mean the same everywhere:
 * --driver chooses what the library runs on, --conf sets a key of glake.conf(5). A person
 * without a GPU is told once that the figures are those of the software device.
 */
#include "tool/tool.h"

#include <glake/context.h>
#include <glake/info.h>

#include <string.h>

int glk_tool_set_driver(
	struct glk_tool_context *wanted, const char *command, const char *text)
{
	if (!strcmp(text, "auto"))
		wanted->backend = GLAKE_BACKEND_AUTO;
	else if (!strcmp(text, "soft"))
		wanted->backend = GLAKE_BACKEND_SOFT;
	else if (!strcmp(text, "cuda"))
		wanted->backend = GLAKE_BACKEND_CUDA;
	else
		return glk_tool_usage(
			command, "--driver is auto, soft or cuda, not '%s'", text);
	return 0;
}

int glk_tool_add_setting(
	struct glk_tool_context *wanted, const char *command, const char *text)
{
	if (!strchr(text, '='))
		return glk_tool_usage(
			command, "--conf takes SECTION.KEY=VALUE, not '%s'", text);
	if (wanted->count == GLK_TOOL_SETTINGS_MAX)
		return glk_tool_usage(
			command, "more than %d settings", GLK_TOOL_SETTINGS_MAX);
	wanted->settings[wanted->count++] = text;
	return 0;
}

static void say_fallback(struct glake *ctx)
{
	struct glake_driver driver = {.sz = sizeof(driver)};
	static bool said;

	if (said || glake_driver_get(ctx, &driver) || !driver.fallback[0])
		return;
	said = true;
	glk_tool_say("no GPU is used, this is the software device: %s", driver.fallback);
}

int glk_tool_open(const struct glk_tool_context *wanted, struct glake **ret_ctx)
{
	struct glake_options options = {
		.sz = sizeof(options),
		.backend = wanted->backend,
		.settings = wanted->settings,
	};
	int err = glake_open(&options, ret_ctx);

	if (err)
		glk_tool_say_error("the library did not open", err);
	else if (!wanted->quiet)
		say_fallback(*ret_ctx);
	return err;
}

const char *glk_tool_backend_name(struct glake *ctx)
{
	return glake_backend(ctx) == GLAKE_BACKEND_CUDA ? "cuda" : "soft";
}
