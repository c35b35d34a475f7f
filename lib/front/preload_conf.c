/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the environment asks of the preload, and whether it serves at all. Read before main, or
 * at the first look-up of a library that is loaded earlier; there are no threads then. Nothing
 * here allocates or looks a symbol up: an allocator may be asking, from inside of its own start.
 */
#include "front/preload.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static struct glk_preload_conf conf;

enum mode {
	UNREAD = 0,
	INERT,
	ACTIVE,
	STOPPED, /* at exit, or in a child */
};

static glk_atomic(int) mode;
static glk_atomic(bool) started;

pthread_mutex_t glk_preload_lock = PTHREAD_MUTEX_INITIALIZER;

/* A variable whose value is none of its choices, the first of which was taken. */
struct mistake {
	const char *name, *value, *taken;
};

/* The index of a variable's value in `choices`, which NULL ends; the first where it is unset
 * or none of them. */
static int choose(const char *name, const char *const *choices, struct mistake *mistake)
{
	const char *value = secure_getenv(name);

	if (!value || !*value)
		return 0;
	for (int i = 0; choices[i]; i++)
		if (!strcmp(value, choices[i]))
			return i;
	*mistake = (struct mistake){name, value, choices[0]};
	return 0;
}

static bool is_set(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value && strcmp(value, "0");
}

#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void read_environment(void)
{
	struct mistake mistakes[4] = {{0}}, *m = mistakes;

	if (glk_load_acquire(&mode) != UNREAD) /* pairs with: the release below */
		return;
	conf.log_level = choose("GLAKE_LOG_LEVEL",
		CHOICES("none", "error", "warning", "info", "debug"), m++);
	conf.free_waits = !choose("GLAKE_PRELOAD_FREE", CHOICES("sync", "stream"), m++);
	conf.serve_plain = !choose("GLAKE_PRELOAD_SERVE", CHOICES("all", "async"), m++);
	conf.events = choose("GLAKE_PRELOAD_EVENTS", CHOICES("no", "yes"), m++);
	/* pairs with: the acquire above and in glk_preload_active */
	glk_store_release(
		&mode, getauxval(AT_SECURE) || is_set("GLAKE_DISABLE") ? INERT : ACTIVE);
	while (m-- > mistakes)
		if (m->name)
			glk_preload_log(GLAKE_LOG_WARNING,
				"%s=%s: not known, taken as %s", m->name, m->value,
				m->taken);
}

const struct glk_preload_conf *glk_preload_conf(void)
{
	read_environment();
	return &conf;
}

bool glk_preload_conf_says(const char *section, const char *name)
{
	struct glake_conf_value value = {.sz = sizeof(value)};
	struct glake_conf_key key = {.sz = sizeof(key)};

	for (size_t i = 0; !glake_conf_key_get(i, &key); i++)
		if (!strcmp(key.section, section) && !strcmp(key.key, name))
			return !glake_conf_value_get(NULL, i, &value) &&
				value.origin != GLAKE_CONF_DEFAULT;
	return false;
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
