/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a command says of its progress on a terminal: nothing at first, then how much is done and how long the rest takes. */
#include "t/tap.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int terminal;
static char said[4096];

/* What came there since. */
static const char *came(void)
{
	ssize_t length = read(terminal, said, sizeof(said) - 1);

	said[length < 0 ? 0 : length] = '\0';
	return said;
}

static void wait_s(int seconds)
{
	nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
}

static void steps(void)
{
	progress_start(false, "job");
	progress_step(10, 100);
	is_str(came(), "", "for a second nothing is shown");
	wait_s(3);
	progress_step(25, 100);
	is_str(came(), "\r\033[Kjob:  25 %, 9 s left",
		"then what is done, and for how long the rest goes on");
	progress_step(26, 100);
	is_str(came(), "", "not at each step");
	progress_next("the next");
	wait_s(2);
	progress_step(50, 100);
	is_str(came(), "\r\033[Kthe next:  50 %, 2 s left",
		"of the next one by its own time");
	wait_s(1);
	progress_step(7, 0);
	is_str(came(), "\r\033[Kthe next: 7", "a count, where nobody knows the whole");
	progress_end();
	is_str(came(), "\r\033[K", "nothing of it stays");
	progress_start(true, "quiet");
	wait_s(3);
	progress_step(25, 100);
	is_str(came(), "", "and who is quiet says none");
}

int main(void)
{
	int was = dup(STDERR_FILENO), other;

	terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal))
		tap_skip_all("there is no pseudo-terminal");
	other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
#ifndef GLK_SCHED
	tap_skip_all("how long the rest takes is told of the machine's time");
#endif
	tap_plan(7);
	dup2(other, STDERR_FILENO);
	steps();
	dup2(was, STDERR_FILENO);
	return tap_done();
}
