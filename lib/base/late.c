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
#define LIBRARY_MAX   64 /* of a name, with its end */

static glk_atomic(int) hidden;

void glk_late_hide(int hide)
{
	glk_store_relaxed(&hidden, hide);
}

static int missing(const char *libraries, const char *why)
{
	return glk_error_native(-ENOENT, GLAKE_ERROR_UNSUPPORTED, "dlopen", 0,
		"%s cannot be loaded: %s", libraries, why ? why : "it is not there");
}

int glk_late_load(const char *libraries, const char *const *names, size_t count,
	void *ret_functions)
{
	void *found[FUNCTIONS_MAX], *handle = NULL;
	char name[LIBRARY_MAX];

	assert(count <= FUNCTIONS_MAX);
	if (glk_load_relaxed(&hidden))
		return missing(libraries, NULL);
	for (const char *at = libraries; *at && !handle; at += strspn(at, " ")) {
		size_t length = strcspn(at, " ");

		assert(length < sizeof(name));
		memcpy(name, at, length);
		name[length] = '\0';
		handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		at += length;
	}
	if (!handle)
		return missing(libraries, dlerror());
	for (size_t i = 0; i < count; i++) {
		found[i] = dlsym(handle, names[i]);
		if (!found[i])
			return missing(libraries, dlerror());
	}
	memcpy(ret_functions, found, count * sizeof(*found));
	return 0;
}
