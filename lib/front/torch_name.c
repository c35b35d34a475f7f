/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a tool that is attached by NVTX calls a tensor: the lines of Python that ask for it, the innermost first. While there is
 * such a tool, speed is no matter: each line is asked for anew.
 */
#include "front/torch.h"
#include "front/torch_python.h"

#include <stdio.h>
#include <string.h>

/* Lines of a name. */
#define LINES 4

static _Thread_local bool is_naming;

/* A file, with the last of its folders. */
static const char *short_of(const char *path)
{
	const char *at = strrchr(path, '/');

	while (at && at > path && at[-1] != '/')
		at--;
	return at ? at : path;
}

static void describe(char *text, size_t room)
{
	struct glk_python_frame frames[LINES];
	struct glk_python_place place;
	size_t at = 0, count;
	int state;

	*text = 0;
	if (glk_python_find() || !glk_python_enter(&state))
		return;
	count = glk_python_walk(frames, LINES);
	for (size_t i = 0; i < count; i++) {
		if (at + 1 < room) {
			glk_python_describe(&frames[i], &place);
			at += (size_t)snprintf(text + at, room - at, "%s%s:%d (%s)",
				i ? " < " : "", short_of(place.file), place.line,
				place.name);
		}
		glk_python_drop(frames[i].code);
	}
	glk_python_leave(state);
}

void glk_torch_name(struct glake *ctx, const void *ptr)
{
	char text[256];

	/* Python may run anything meanwhile, which asks for memory */
	if (is_naming)
		return;
	is_naming = true;
	describe(text, sizeof(text));
	if (*text)
		glake_block_name(ctx, ptr, text);
	is_naming = false;
}
