/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the configuration asks of the preload, and whether it serves at all.
 *
 * The latter is read from the environment before main, or at the first look-up of a library that
 * is loaded earlier; there are no threads then. That neither allocates nor looks a symbol up: an
 * allocator may be asking, from inside of its own start. The keys of glake.conf are read by the
 * library when they are first needed, which is when the program has loaded the driver and the
 * preload the library. Where one of them is wrong the library refuses to serve, and so none of
 * them counts.
 */
#include "front/preload.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static struct glk_preload_conf conf; /* constant once it is read */
static glk_atomic(bool) conf_read;
static glk_atomic(int) log_level;
static pthread_mutex_t conf_lock = PTHREAD_MUTEX_INITIALIZER;

enum mode {
	UNREAD = 0,
	INERT,
	ACTIVE,
	STOPPED, /* at exit, or in a child */
};

static glk_atomic(int) mode;
static glk_atomic(bool) started;

pthread_mutex_t glk_preload_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const levels[] = {"none", "error", "warning", "info", "debug", NULL};

/* The index of a name; for none of them the default. */
static int level_of(const char *name)
{
	for (int i = 0; name && levels[i]; i++)
		if (!strcmp(name, levels[i]))
			return i;
	return GLAKE_LOG_WARNING;
}

static bool is_set(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value && strcmp(value, "0");
}

static void read_environment(void)
{
	bool inert;

	if (glk_load_acquire(&mode) != UNREAD) /* pairs with: the release below */
		return;
	glk_store_relaxed(&log_level, level_of(secure_getenv("GLAKE_LOG_LEVEL")));
	inert = getauxval(AT_SECURE) || is_set("GLAKE_DISABLE");
	/* pairs with: the acquire above and in glk_preload_active */
	glk_store_release(&mode, inert ? INERT : ACTIVE);
}

int glk_preload_log_level(void)
{
	read_environment();
	return glk_load_relaxed(&log_level);
}

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
	if (get("log", "level", &level))
		glk_store_relaxed(&log_level, level_of(level.text));
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

bool glk_preload_active(void)
{
	int now =
		glk_load_acquire(&mode); /* pairs with: the release in read_environment */

	if (now == UNREAD) {
		read_environment();
		now = glk_load_relaxed(&mode);
	}
	return now == ACTIVE;
}

void glk_preload_stop(void)
{
	glk_store_relaxed(&mode, STOPPED);
}

bool glk_preload_stopped(void)
{
	return glk_load_relaxed(&mode) == STOPPED;
}

static void at_exit(void)
{
	glk_preload_stop();
	glk_preload_ipc_stop();
}

void glk_preload_started(void)
{
	if (glk_load_relaxed(&started))
		return;
	glk_store_relaxed(&started, true);
	/* Installed behind the handlers of the driver, so it runs before them. */
	atexit(at_exit);
}

/*
 * In a child of a process that has used CUDA the GPUs are the parent's, and CUDA itself says so
 * to whoever calls it. One that has not may use them as if it were the first. A thread that
 * held the lock is none of the child's.
 */
static void in_child(void)
{
	glk_preload_ipc_fds_unlock();
	glk_preload_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	conf_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	glk_preload_library_child();
	glk_preload_ipc_child();
	if (glk_load_relaxed(&started))
		glk_preload_stop();
}

static __attribute__((constructor)) void begin(void)
{
	read_environment();
	if (glk_preload_active())
		pthread_atfork(
			glk_preload_ipc_fds_lock, glk_preload_ipc_fds_unlock, in_child);
}

static __attribute__((destructor)) void end(void)
{
	if (glk_load_relaxed(&mode) != INERT)
		glk_preload_report();
}
