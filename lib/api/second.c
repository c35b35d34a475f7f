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

/* Whether an object holds the address. */
static bool holds(const struct dl_phdr_info *object, uintptr_t address)
{
	for (int i = 0; i < object->dlpi_phnum; i++) {
		uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;

		if (object->dlpi_phdr[i].p_type == PT_LOAD && address >= start &&
			address - start < object->dlpi_phdr[i].p_memsz)
			return true;
	}
	return false;
}

static int look(struct dl_phdr_info *object, size_t size, void *context)
{
	const char *name = strrchr(object->dlpi_name, '/');
	char *path = context;

	(void)size;
	name = name ? name + 1 : object->dlpi_name;
	if (strncmp(name, NAME, strlen(NAME)) != 0 || holds(object, (uintptr_t)&told))
		return 0;
	snprintf(path, PATH_MAX, "%s", object->dlpi_name);
	return 1;
}

void glk_second_warn(void)
{
	const char *(*version)(void) = NULL;
	char path[PATH_MAX];
	Dl_info own = {0};
	void *handle;

	if (glk_load_relaxed(&told) || !dl_iterate_phdr(look, path))
		return;
	glk_store_relaxed(&told, true);
	handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (handle)
		*(void **)&version = dlsym(handle, "glake_version_string");
	dladdr(&told, &own);
	glk_warn(
		"this process has two copies of this library, %s (%s) and %s (%s): neither knows "
		"the other's memory",
		glake_version_string(), own.dli_fname ? own.dli_fname : "?",
		version ? version() : "?", path);
	if (handle)
		dlclose(handle);
}
