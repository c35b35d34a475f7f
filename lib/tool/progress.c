/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Progress. A person waits a second without wondering; after that a line says what is being
 * done and how far it is, ten times a second at most, and takes itself away when it is done,
 * so nothing of it is left between the messages that matter. Not on a terminal: nothing.
 */
#include "tool/progress.h"

#include "tool/latency.h"

#include <stdio.h>
#include <unistd.h>

#define FIRST_NS INT64_C(1000000000)
#define NEXT_NS	 INT64_C(100000000)

static struct {
	char what[320];
	int64_t next_ns;
	bool on, shown;
} progress;

void progress_start(bool quiet, const char *what)
{
	progress_end();
	snprintf(progress.what, sizeof(progress.what), "%s", what);
	progress.on = !quiet && isatty(STDERR_FILENO);
	progress.next_ns = latency_now() + FIRST_NS;
}

void progress_next(const char *what)
{
	snprintf(progress.what, sizeof(progress.what), "%s", what);
}

void progress_step(uint64_t done, uint64_t total)
{
	int64_t now;

	if (!progress.on)
		return;
	now = latency_now();
	if (now < progress.next_ns)
		return;
	progress.next_ns = now + NEXT_NS;
	progress.shown = true;
	if (total)
		fprintf(stderr, "\r\033[K%s: %3u %%", progress.what,
			(unsigned)((double)done / (double)total * 100));
	else
		fprintf(stderr, "\r\033[K%s: %llu", progress.what,
			(unsigned long long)done);
	fflush(stderr);
}

void progress_hide(void)
{
	if (progress.shown)
		fputs("\r\033[K", stderr);
	progress.shown = false;
}

void progress_end(void)
{
	progress_hide();
	progress.on = false;
}
