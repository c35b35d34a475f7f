/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What kinds of calls and rungs are called: see glake/stats.h. */
#include <glake/stats.h>

#include <stddef.h>

const char *glake_call_name(int call)
{
	static const char *const names[GLAKE_CALL_COUNT] = {"reserve", "unreserve",
		"create", "map", "set_access", "unmap", "release", "export", "import",
		"event_create", "event_record", "event_query", "stream_wait", "sync",
		"copy", "other", "managed_alloc", "managed_free", "managed_advise",
		"managed_prefetch"};

	return call >= 0 && call < GLAKE_CALL_COUNT ? names[call] : NULL;
}

const char *glake_rung_name(int rung)
{
	static const char *const names[GLAKE_RUNG_COUNT] = {
		"limbo", "recut", "cross_stream", "spill_peer", "spill_host"};

	return rung >= 0 && rung < GLAKE_RUNG_COUNT ? names[rung] : NULL;
}
