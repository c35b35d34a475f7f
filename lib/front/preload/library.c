/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libglake.so.0 itself, which is loaded when the program has loaded the driver and not before:
 * most programs that are started under the preload, the shells and compilers of a job, never do,
 * and bear neither the library nor what it stands on.
 *
 * It lies beside the preload; where it does not, the dynamic linker is asked for its name, which
 * also looks into the run path of the preload. One that the program has loaded already is taken
 * before either, so that there is one in the process.
 *
 * The dynamic linker has a lock of its own, under which a constructor of the program may call the
 * driver. So it is asked with no lock held, perhaps by two threads, and they find the same.
 *
 * The keys of glake.conf are read by the library when they are first needed, which is when the
 * program has loaded the driver and the preload the library. Where one of them is wrong the library
 * refuses to serve, and so none of them counts.
 */
#include "front/preload/preload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <glake/version.h>

#define LIBGLAKE "libglake.so.0"

struct glk_preload_library glk_library; /* constant once it is loaded */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static glk_atomic(bool) loaded, failed;

static void *open_beside(int flags)
{
	const char *slash;
	char path[512];
	Dl_info self;
	int length;

	if (!dladdr(&glk_library, &self) || !self.dli_fname)
		return NULL;
	slash = strrchr(self.dli_fname, '/');
	if (!slash)
		return NULL;
	length = snprintf(path, sizeof(path), "%.*s/" LIBGLAKE,
		(int)(slash - self.dli_fname), self.dli_fname);
	if (length < 0 || (size_t)length >= sizeof(path))
		return NULL;
	return dlopen(path, flags);
}

static void *open_library(void)
{
	const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
	void *handle = dlopen(LIBGLAKE, flags | RTLD_NOLOAD);

	if (!handle)
		handle = open_beside(flags);
	if (!handle)
		handle = dlopen(LIBGLAKE, flags);
	return handle;
}

/* Says why once; the memory of all GPUs stays the driver's then. */
static bool fail(const char *why)
{
	if (glk_load_relaxed(&failed))
		return false;
	glk_store_relaxed(&failed, true);
	glk_preload_log(GLAKE_LOG_WARNING, "memory is left to the driver: %s", why);
	return false;
}

/* Functions of another version may be others, whatever their names. */
static bool is_same_version(const struct glk_preload_library *library)
{
	char why[160];

	if (!strcmp(library->version_string(), GLAKE_VERSION_STRING))
		return true;
	snprintf(why, sizeof(why),
		LIBGLAKE " is of version %.40s, and the preload of " GLAKE_VERSION_STRING,
		library->version_string());
	return fail(why);
}

static bool find_all(void *handle, struct glk_preload_library *library)
{
	char why[160];
	void *fn;

#define FIND(name)                                                                       \
	fn = glake_preload_dlsym(handle, "glake_" #name);                                \
	if (!fn) {                                                                       \
		dlerror();                                                               \
		snprintf(why, sizeof(why), LIBGLAKE " has no glake_%s", #name);          \
		return fail(why);                                                        \
	}                                                                                \
	memcpy(&library->name, &fn, sizeof(fn));
	GLK_PRELOAD_LIBRARY(FIND)
#undef FIND
	return is_same_version(library);
}

bool glk_preload_library_load(void)
{
	struct glk_preload_library library;
	void *handle;

	if (glk_load_acquire(&loaded)) /* pairs with: the release below */
		return true;
	if (glk_load_relaxed(&failed))
		return false;
	handle = open_library();
	if (!handle)
		return fail(dlerror());
	if (!find_all(handle, &library))
		return false;
	pthread_mutex_lock(&lock);
	if (!glk_load_relaxed(&loaded))
		glk_library = library;
	glk_store_release(&loaded, true); /* pairs with: the acquire above */
	pthread_mutex_unlock(&lock);
	return true;
}

static struct glk_preload_conf conf; /* constant once it is read */
static glk_atomic(bool) conf_read;
static pthread_mutex_t conf_lock = PTHREAD_MUTEX_INITIALIZER;

/* The value of a key of the library; false if it cannot be told. */
static bool get(const char *section, const char *name, struct glake_conf_value *ret)
{
	struct glake_conf_key key = {.sz = sizeof(key)};

	*ret = (struct glake_conf_value){.sz = sizeof(*ret)};
	for (size_t i = 0; !glk_library.conf_key_get(i, &key); i++)
		if (!strcmp(key.section, section) && !strcmp(key.key, name))
			return !glk_library.conf_value_get(NULL, i, ret);
	return false;
}

static bool is(const char *section, const char *name, const char *text)
{
	struct glake_conf_value value;

	return get(section, name, &value) && !strcmp(value.text, text);
}

static void read_keys(void)
{
	struct glake_conf_value level;

	conf.free_waits = !is("preload", "free", "stream");
	conf.serve_plain = !is("preload", "serve", "async");
	conf.events = is("preload", "events", "yes");
	conf.quota = !is("share", "quota", "0") || !is("share", "quota_file", "");
	if (get("log", "level", &level))
		glk_preload_log_level_set(level.text);
}

const struct glk_preload_conf *glk_preload_conf(void)
{
	bool inside = glk_preload_inside;
	bool library;

	if (glk_load_acquire(&conf_read)) /* pairs with: the release below */
		return &conf;
	glk_preload_inside = true;
	library = glk_preload_library_load();
	pthread_mutex_lock(&conf_lock);
	if (!glk_load_relaxed(&conf_read)) {
		if (library)
			read_keys();
		glk_store_release(&conf_read, true);
	}
	pthread_mutex_unlock(&conf_lock);
	glk_preload_inside = inside;
	return &conf;
}

void glk_preload_library_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	conf_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
