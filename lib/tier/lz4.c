/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Chunks through liblz4: see lz4.h. */
#include "tier/lz4.h"

#include "base/error.h"
#include "base/late.h"
#include "base/lock.h"
#include "base/thread.h"
#include "tier/tier.h"

#include <errno.h>
#include <string.h>

static uint32_t chunks_of(size_t bytes)
{
	return (uint32_t)((bytes + GLK_LZ4_CHUNK - 1) / GLK_LZ4_CHUNK);
}

static size_t part_of(size_t bytes, uint32_t chunk)
{
	size_t left = bytes - chunk * GLK_LZ4_CHUNK;

	return left < GLK_LZ4_CHUNK ? left : GLK_LZ4_CHUNK;
}

#ifdef GLK_LZ4
#include <lz4.h>

#define LIBLZ4 "liblz4.so.1"

#define FUNCTIONS(F) F(LZ4_compress_default) F(LZ4_decompress_safe)

static struct functions {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} lz4;

static struct glk_lock loading = GLK_LOCK_INIT(GLK_RANK_TOUCH);

int glk_pack_able(void)
{
#define NAME(name) #name,
	static const char *const names[] = {FUNCTIONS(NAME)};
#undef NAME
	struct functions found;
	struct glake_error why;
	int err;

	err = glk_late_load(LIBLZ4, names, sizeof(names) / sizeof(*names), &found);
	if (err) {
		why = glk_thread_current->error;
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"tier.compress: %s", why.text);
	}
	glk_lock(&loading);
	if (!lz4.LZ4_decompress_safe)
		lz4 = found;
	glk_unlock(&loading);
	return 0;
}

/* 0: it has no room there. */
static size_t shrink(const char *from, size_t bytes, char *to, size_t room)
{
	int done = room ? lz4.LZ4_compress_default(from, to, (int)bytes, (int)room) : 0;

	return done > 0 ? (size_t)done : 0;
}

static bool grow(const char *from, size_t packed, char *to, size_t bytes)
{
	return lz4.LZ4_decompress_safe(from, to, (int)packed, (int)bytes) == (int)bytes;
}
#else
int glk_pack_able(void)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"tier.compress: this library was built without lz4.h");
}

static size_t shrink(const char *from, size_t bytes, char *to, size_t room)
{
	(void)from;
	(void)bytes;
	(void)to;
	(void)room;
	return 0;
}

static bool grow(const char *from, size_t packed, char *to, size_t bytes)
{
	(void)from;
	(void)packed;
	(void)to;
	(void)bytes;
	return false;
}
#endif

size_t glk_lz4_pack(const char *from, size_t bytes, char *to, size_t room,
	const glk_atomic(bool) * stop)
{
	uint32_t chunks = chunks_of(bytes), size;
	size_t used = chunks * sizeof(size);

	for (uint32_t i = 0; i < chunks; i++) {
		const char *at = from + i * GLK_LZ4_CHUNK;
		size_t part = part_of(bytes, i), left = used < room ? room - used : 0;

		if (glk_load_relaxed(stop))
			return 0;
		size = (uint32_t)shrink(
			at, part, to + used, left < part ? left : part - 1);
		if (!size && left >= part) {
			memcpy(to + used, at, part);
			size = (uint32_t)part;
		}
		if (!size)
			return 0;
		memcpy(to + i * sizeof(size), &size, sizeof(size));
		used += size;
	}
	return used;
}

bool glk_lz4_unpack(const char *from, size_t packed, char *to, size_t bytes)
{
	uint32_t chunks = chunks_of(bytes), size;
	size_t used = chunks * sizeof(size);

	if (used > packed)
		return false;
	for (uint32_t i = 0; i < chunks; i++) {
		char *at = to + i * GLK_LZ4_CHUNK;
		size_t part = part_of(bytes, i);

		memcpy(&size, from + i * sizeof(size), sizeof(size));
		if (size > part || size > packed - used)
			return false;
		if (size == part)
			memcpy(at, from + used, part);
		else if (!grow(from + used, size, at, part))
			return false;
		used += size;
	}
	return true;
}
