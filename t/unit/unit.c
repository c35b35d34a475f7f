/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tests of a room in one program: which of them it is to be says its first word. Each runs in a
 * process of its own, as if it were alone here.
 */
#ifdef GLK_SCHED
#include "sched/scheduler.h"
#endif

#include <stdio.h>
#include <string.h>

#define X(name, fn, threads) int fn(int argc, char **argv);
UNIT_TESTS
#undef X

static const struct {
	const char *name;
	int (*fn)(int argc, char **argv);
	int threads;
} tests[] = {
#define X(name, fn, threads) {name, fn, threads},
	UNIT_TESTS
#undef X
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (argc < 2)
			printf("%s\n", tests[i].name);
		else if (!strcmp(argv[1], tests[i].name)) {
#ifdef GLK_SCHED
			glk_sched_one_thread = !tests[i].threads;
#endif
			return tests[i].fn(argc - 1, argv + 1);
		}
	}
	return 2;
}
