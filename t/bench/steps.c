/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Runs a program one instruction at a time and prints how many there were, in its own code, in the
 * dynamic linker and in all libraries; what the kernel does is not counted. Exit status: that of
 * the program; 77 where the kernel does not let one process step another.
 *
 *	bench-steps PRELOAD|- PROGRAM [ARGUMENT]...
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_ALLOWED 77

static void child(char **arguments)
{
	if (strcmp(arguments[1], "-"))
		setenv("LD_PRELOAD", arguments[1], 1);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(NOT_ALLOWED);
	execv(arguments[2], arguments + 2);
	_exit(126);
}

int main(int count, char **arguments)
{
	unsigned long steps = 0;
	int status;
	pid_t pid;

	if (count < 3)
		return 2;
	pid = fork();
	if (!pid)
		child(arguments);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return NOT_ALLOWED;
	for (; WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP; steps++) {
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL))
			break;
		if (waitpid(pid, &status, 0) != pid)
			break;
	}
	if (!WIFEXITED(status)) {
		kill(pid, SIGKILL);
		return NOT_ALLOWED;
	}
	printf("%lu\n", steps);
	return WEXITSTATUS(status);
}
