/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How a command comes to its context. A person without a GPU is told once that the figures
 * are those of the software device.
 */
#include "tool/tool.h"

#include <glake/conf.h>
#include <glake/context.h>
#include <glake/info.h>

#include <string.h>

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
		.no_soft_warning = 1, /* say_fallback does */
		.settings = wanted->settings,
	};
	int err = glake_open(&options, ret_ctx);

	if (err)
		glk_tool_say_error("the library did not open", err);
	else if (!wanted->quiet)
		say_fallback(*ret_ctx);
	return err;
}

int glk_tool_value(struct glake *ctx, const char *section, const char *key,
	struct glake_conf_value *ret_value)
{
	struct glake_conf_key known = {.sz = sizeof(known)};
	size_t at = 0;
	int err;

	while (!(err = glake_conf_key_get(at, &known)) &&
		(strcmp(known.section, section) || strcmp(known.key, key)))
		at++;
	ret_value->sz = sizeof(*ret_value);
	return err ? err : glake_conf_value_get(ctx, at, ret_value);
}

const char *glk_tool_backend_name(struct glake *ctx)
{
	return glake_backend(ctx) == GLAKE_BACKEND_CUDA ? "cuda" : "soft";
}
