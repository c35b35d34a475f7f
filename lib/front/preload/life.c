/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The beginning and the end of the preload, and what a forked child forgets. It stands above all that
 * it begins and ends.
 */
#include "front/preload/preload.h"

#include <stdio.h>
#include <string.h>

/* All that was reached in one way, a few lines of names. */
static void report_route(enum glk_preload_route route, const char *how)
{
	char names[400] = "";
	size_t used = 0;

	for (int i = 0; i < GLK_PRELOAD_COUNT; i++) {
		const char *name = glk_preload_name(i);

		if (!(glk_preload_routes(i) & route))
			continue;
		if (used + strlen(name) + 2 > sizeof(names)) {
			glk_preload_log(GLAKE_LOG_DEBUG, "hooked %s:%s", how, names);
			used = 0;
		}
		used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", name);
	}
	if (used)
		glk_preload_log(GLAKE_LOG_DEBUG, "hooked %s:%s", how, names);
}

/* Says what was hooked, and what went through the library; nothing in a program that looked for no driver. */
static void report(void)
{
	struct glk_preload_seat *seat;
	bool reached = false, served = false;

	if (glk_preload_log_level() < GLAKE_LOG_INFO)
		return;
	report_route(GLK_PRELOAD_BY_CALL, "by symbol");
	report_route(GLK_PRELOAD_BY_DLSYM, "by dlsym");
	report_route(GLK_PRELOAD_BY_PROC, "by cuGetProcAddress");
	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX; i++) {
		seat = glk_preload_seat_at(i);
		if (!seat)
			continue;
		served = true;
		glk_preload_report_seat(seat);
	}
	glk_preload_report_passed();
	for (int i = 0; i < GLK_PRELOAD_COUNT; i++)
		reached |= glk_preload_routes(i) != 0;
	if (reached && !served)
		glk_preload_log(GLAKE_LOG_INFO,
			"the driver was looked for, and no GPU's memory asked for");
}

/*
 * In a child of a process that has used CUDA the GPUs are the parent's, and CUDA itself says so
 * to whoever calls it. One that has not may use them as if it were the first. A thread that
 * held the lock is none of the child's.
 */
static void in_child(void)
{
	glk_preload_ipc_fds_unlock();
	glk_preload_library_child();
	glk_preload_ipc_child();
	glk_preload_quota_child();
	glk_preload_child();
}

static __attribute__((constructor)) void begin(void)
{
	if (glk_preload_active())
		pthread_atfork(
			glk_preload_ipc_fds_lock, glk_preload_ipc_fds_unlock, in_child);
}

static __attribute__((destructor)) void end(void)
{
	if (!glk_preload_inert())
		report();
}
