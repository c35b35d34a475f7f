/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one context of a process under PyTorch. It is opened by the first call that needs it, so
 * that a program may load the library and fork before it uses a GPU, as it may with CUDA. It is
 * never closed: tensors are freed until the very end of the process, in no order, and the driver
 * takes all back then.
 *
 * The software device gives addresses that no kernel can use, so under PyTorch it is taken only
 * when the configuration names it.
 */
#include "front/torch.h"

#include "base/atomic.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct glake *context;
static bool names; /* a tool wants them */
static char why[2 * GLAKE_ERROR_TEXT_MAX];
static glk_atomic(int) opened;

/* Whether the configuration names a driver. */
static bool is_chosen(struct glake *ctx)
{
	struct glake_conf_value value = {.sz = sizeof(value)};
	struct glake_conf_key key = {.sz = sizeof(key)};

	for (size_t i = 0; !glake_conf_key_get(i, &key); i++) {
		if (!strcmp(key.section, "driver") && !strcmp(key.key, "backend"))
			return !glake_conf_value_get(ctx, i, &value) &&
				strcmp(value.text, "auto") != 0;
	}
	return false;
}

/* Whether the library that the loader found is older than this plug-in: then its functions may
 * mean something else, and `why` says so. */
static bool is_old(void)
{
	Dl_info ours = {0}, library = {0};

	if (glake_version() >= GLAKE_VERSION)
		return false;
	/* an address of data: a function's cannot be a pointer to an object in C */
	dladdr(why, &ours);
	dladdr(glake_version_string(), &library);
	snprintf(why, sizeof(why),
		"the plug-in %s (%s) and the library below it, %s (%s), are of two versions: "
		"install both of one",
		GLAKE_VERSION_STRING, ours.dli_fname ? ours.dli_fname : "?",
		glake_version_string(), library.dli_fname ? library.dli_fname : "?");
	return true;
}

static void open_context(void)
{
	struct glake_options options = {.sz = sizeof(options), .no_soft_warning = 1};
	struct glake_driver driver = {.sz = sizeof(driver)};
	struct glake_error error = {.sz = sizeof(error)};
	struct glake *ctx = NULL;

	if (is_old())
		return;
	if (glake_open(&options, &ctx)) {
		glake_last_error(&error);
		snprintf(why, sizeof(why), "%s (%s)", error.text,
			glake_error_class_name(error.error_class));
		return;
	}
	if (glake_backend(ctx) == GLAKE_BACKEND_SOFT && !is_chosen(ctx)) {
		glake_driver_get(ctx, &driver);
		snprintf(
			why, sizeof(why), "CUDA does not work here: %s", driver.fallback);
		glake_close(ctx, NULL);
		return;
	}
	context = ctx;
	names = !glake_block_name(ctx, NULL, NULL);
	/* pairs with: the acquire in glake_torch_opened */
	glk_store_release(&opened, 1);
}

bool glk_torch_names_on(void)
{
	return names;
}

struct glake *glake_torch_context(void)
{
	pthread_once(&once, open_context);
	return context;
}

const char *glake_torch_why(void)
{
	return glake_torch_context() ? "" : why;
}

const char *glake_torch_version(void)
{
	return GLAKE_VERSION_STRING;
}

int glake_torch_opened(void)
{
	/* pairs with: the release in open_context */
	return glk_load_acquire(&opened);
}
