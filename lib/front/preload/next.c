/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The functions behind ours. The next one of a name in the order of the dynamic linker, so that
 * another library that stands in front of the driver is called as it would be without us; where
 * the driver was opened at run time, its own. Only addresses are kept, never code, so whoever
 * patches a function of the driver, as UCX does, is passed through.
 *
 * dlsym itself is asked for by its version, for by its name we would find our own.
 */
#include "front/preload/preload.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <string.h>

#define LIBCUDA "libcuda.so.1"

static glk_atomic(glk_preload_dlsym_fn *) real_dlsym;
static glk_atomic(void *) driver;
static struct glk_preload_next table; /* constant once published */
static glk_atomic(bool) filled;

/*
 * The version that this C library has is asked for first: a failed look-up would allocate, and
 * an allocator may be waiting for the answer. 2.34 moved dlsym from libdl into libc; before it
 * bore the first version of its architecture.
 */
static GLK_PRELOAD_EARLY glk_preload_dlsym_fn *find_dlsym(void)
{
	static const char *const versions[] = {
		"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.0"};
	size_t count = sizeof(versions) / sizeof(*versions), first;
	glk_preload_dlsym_fn *fn = NULL;
	void *found = NULL;

	first = strverscmp(gnu_get_libc_version(), "2.34") >= 0 ? 0 : 1;
	for (size_t i = first; i < count && !found; i++)
		found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	memcpy(&fn, &found, sizeof(fn));
	return fn;
}

GLK_PRELOAD_EARLY glk_preload_dlsym_fn *glk_preload_dlsym(void)
{
	/* pairs with: the release below; threads find the same */
	glk_preload_dlsym_fn *fn = glk_load_acquire(&real_dlsym);

	if (!fn) {
		fn = find_dlsym();
		glk_store_release(&real_dlsym, fn);
	}
	return fn;
}

void *glake_preload_dlsym(void *handle, const char *name)
{
	glk_preload_dlsym_fn *fn = glk_preload_dlsym();

	return fn ? fn(handle, name) : NULL;
}

void *glk_preload_loaded(const char *name, glk_atomic(void *) * kept)
{
	void *handle = glk_load_acquire(kept); /* pairs with: the release below */

	if (handle)
		return handle;
	handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (handle)
		glk_store_release(kept, handle);
	else
		dlerror(); /* it is not the program's */
	return handle;
}

void *glk_preload_driver(void)
{
	return glk_preload_loaded(LIBCUDA, &driver);
}

static void *find(void *handle, const char *name, bool behind_us)
{
	void *fn = behind_us ? glake_preload_dlsym(RTLD_NEXT, name) : NULL;

	if (!fn)
		fn = glake_preload_dlsym(handle, name);
	if (!fn)
		dlerror();
	return fn;
}

static void fill(void *handle)
{
	struct glk_preload_next next = {.complete = true};
	void *fn;

#define FIND(name, symbol, version, streams, group, parameters, arguments)               \
	fn = find(handle, #name, true);                                                  \
	memcpy(&next.name, &fn, sizeof(fn));
	GLK_PRELOAD_HOOKS(FIND)
#undef FIND
#define FIND(name, parameters)                                                           \
	fn = find(handle, #name, false);                                                 \
	memcpy(&next.name, &fn, sizeof(fn));                                             \
	next.complete = next.complete && fn;
	GLK_PRELOAD_CALLS(FIND)
#undef FIND
	table = next;
}

const struct glk_preload_next *glk_preload_next(void)
{
	static const struct glk_preload_next none;
	void *handle;

	if (glk_load_acquire(&filled)) /* pairs with: the release below */
		return &table;
	handle = glk_preload_driver();
	if (!handle) {
		/* called by symbol, so the program counts on a driver that it did not load */
		handle = dlopen(LIBCUDA, RTLD_NOW | RTLD_LOCAL);
		if (!handle) {
			dlerror();
			return &none;
		}
	}
	pthread_mutex_lock(&glk_preload_lock);
	if (!glk_load_relaxed(&filled)) {
		fill(handle);
		glk_store_release(&filled, true);
	}
	pthread_mutex_unlock(&glk_preload_lock);
	return &table;
}
