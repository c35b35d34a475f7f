/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_RUNS_H
#define GLK_BASE_RUNS_H

/*
 * Runs of addresses as one process tells them to another, packed into a text: who writes it and who
 * reads it go by this, and people by glakectl(1). A run is numbers in base 16 in the order of these
 * names, a blank between two and GLK_RUNS_END behind the last; those that are 0 at its end are left
 * out, so that a reader of an older writer, and an older reader where the new ones are 0, agree.
 */
#define GLK_RUNS_BLANK ' '
#define GLK_RUNS_END   ';'

enum glk_runs_field {
	GLK_RUNS_GAP =
		0, /* bytes from the end of the run before, or from where it was asked for */
	GLK_RUNS_SIZE,
	GLK_RUNS_STATE,
	GLK_RUNS_STREAM,
	GLK_RUNS_ASKED,
	GLK_RUNS_GPU,	/* bytes */
	GLK_RUNS_LARGE, /* of these and of those of the host, in large pages */
	GLK_RUNS_FLAGS,
	GLK_RUNS_ARENA,
	GLK_RUNS_HOST,	 /* bytes */
	GLK_RUNS_PLACED, /* likewise, in place */
	GLK_RUNS_POOL_HIGH,
	GLK_RUNS_POOL_LOW,
	GLK_RUNS_FIELDS,
};

#endif
