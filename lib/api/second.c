/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A walk over the files that the loader has brought in. Copies are known by the name of their
 * file; one that is linked into something else has none and is not seen. The loader's lock is
 * held during the walk, so what calls the loader waits until after it.
 */
#include "api/second.h"

#include "base/atomic.h"
#include "base/log.h"

#include <glake/context.h>

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define NAME "libglake.so"

static glk_atomic(bool) told;

struct search {
	Dl_info own;
	char path[PATH_MAX]; /* of another one */
};

/* A library's addresses count from where its file begins, which the loader tells of each. */
static int look(struct dl_phdr_info *object, size_t size, void *context)
{
	const char *name = strrchr(object->dlpi_name, '/');
	struct search *search = context;

	(void)size;
	name = name ? name + 1 : object->dlpi_name;
	if (strncmp(name, NAME, strlen(NAME)) != 0 ||
		object->dlpi_addr == (uintptr_t)search->own.dli_fbase)
		return 0;
	snprintf(search->path, sizeof(search->path), "%s", object->dlpi_name);
	return 1;
}

void glk_second_warn(void)
{
	const char *(*version)(void) = NULL;
	struct search search = {0};
	void *handle;

	if (glk_load_relaxed(&told))
		return;
	dladdr(&told, &search.own);
	if (!dl_iterate_phdr(look, &search))
		return;
	glk_store_relaxed(&told, true);
	handle = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
	if (handle)
		*(void **)&version = dlsym(handle, "glake_version_string");
	glk_warn(
		"this process has two copies of this library, %s (%s) and %s (%s): neither knows "
		"the other's memory",
		glake_version_string(), search.own.dli_fname ? search.own.dli_fname : "?",
		version ? version() : "?", search.path);
	if (handle)
		dlclose(handle);
}
