/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MUST_H
#define MUST_H

/* What a program for a person does with an error: it says what the library says, and ends. */
#include <glake/error.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(int err)
{
	struct glake_error error = {.sz = sizeof(error)};

	if (err >= 0)
		return;
	glake_last_error(&error);
	fprintf(stderr, "%s (%s)\n", error.text,
		glake_error_class_name(error.error_class));
	exit(1);
}

#endif
