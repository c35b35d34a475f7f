/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Asks the dynamic linker each time: these questions are rare, and nothing is to be kept. */
#include "base/late.h"

#include "base/atomic.h"
#include "base/error.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define FUNCTIONS_MAX 32

static glk_atomic(int) hidden;

void glk_late_hide(int hide)
{
	glk_store_relaxed(&hidden, hide);
}

static int missing(const char *library, const char *why)
{
	return glk_error_native(-ENOENT, GLAKE_ERROR_UNSUPPORTED, "dlopen", 0,
		"%s cannot be loaded: %s", library, why ? why : "it is not there");
}

int glk_late_load(
	const char *library, const char *const *names, size_t count, void *ret_functions)
{
	void *found[FUNCTIONS_MAX], *handle = NULL;

	assert(count <= FUNCTIONS_MAX);
	if (glk_load_relaxed(&hidden))
		return missing(library, NULL);
	handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle)
		return missing(library, dlerror());
	for (size_t i = 0; i < count; i++) {
		found[i] = dlsym(handle, names[i]);
		if (!found[i])
			return missing(library, dlerror());
	}
	memcpy(ret_functions, found, count * sizeof(*found));
	return 0;
}
