/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who asked for a block and who freed it, as return addresses of the calling thread, with guard.stacks. Names are looked up when
 * something is said of the block, and not before. */
#include "guard/guarded.h"

#include "base/conf.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

/* Frames of the library that lie before the caller's. */
#define OWN 16

void glk_guard_stack(const struct glk_guard *g, uint64_t *ret_frames)
{
	int most = (int)g->cache->conf->guard_stacks, count, own = 0;
	void *frames[OWN + GLAKE_FRAMES];
	Dl_info info;

	memset(ret_frames, 0, GLAKE_FRAMES * sizeof(*ret_frames));
	if (!most)
		return;
	count = backtrace(frames, OWN + most);
	while (g->base && own < count && own < OWN && dladdr(frames[own], &info) &&
		info.dli_fbase == g->base)
		own++;
	for (int i = 0; i < most && own + i < count; i++)
		ret_frames[i] = (uintptr_t)frames[own + i];
}

const void *glk_guard_stack_base(void)
{
	Dl_info own, program;

	if (!dladdr((void *)(uintptr_t)glk_guard_stack_base, &own) ||
		(dladdr((void *)getauxval(AT_PHDR), &program) &&
			program.dli_fbase == own.dli_fbase))
		return NULL;
	return own.dli_fbase;
}

/* One frame, as `name+0x1c (program+0x1234)`. */
static int name_frame(uint64_t frame, char *text, size_t room)
{
	const char *file;
	Dl_info info;

	/* the call lies before the address that it returns to */
	if (!dladdr((void *)(uintptr_t)(frame - 1), &info) || !info.dli_fname)
		return snprintf(text, room, "0x%" PRIx64, frame);
	file = strrchr(info.dli_fname, '/');
	file = file ? file + 1 : info.dli_fname;
	if (!info.dli_sname)
		return snprintf(text, room, "%s+0x%" PRIx64, file,
			frame - (uintptr_t)info.dli_fbase);
	return snprintf(text, room, "%s+0x%" PRIx64 " (%s+0x%" PRIx64 ")", info.dli_sname,
		frame - (uintptr_t)info.dli_saddr, file,
		frame - (uintptr_t)info.dli_fbase);
}

bool glk_guard_stack_text(const uint64_t *frames, char *text, size_t room)
{
	size_t at = 0;

	text[0] = 0;
	for (int i = 0; i < GLAKE_FRAMES && frames[i] && at + 2 < room; i++) {
		int length;

		if (i)
			at += (size_t)snprintf(text + at, room - at, ", ");
		length = name_frame(frames[i], text + at, room - at);
		at += length > 0 ? (size_t)length : 0;
	}
	/* a program may have any name; the report is JSON, and the log is read on terminals */
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
	return text[0];
}
