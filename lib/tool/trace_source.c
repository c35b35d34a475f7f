/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bytes of a trace. Traces are kept packed, and a file's name says little about what is
 * inside, so its first bytes decide: xz, gzip, zstd, or plain text. Archives may consist of
 * several, one behind the other, as appending to a log makes them.
 *
 * An archive that ends before its own end mark, or whose checksum is wrong, is an error that
 * comes after all the bytes that could be unpacked: the caller decides whether what came
 * before is of use.
 */
#include "tool/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define INPUT_SIZE ((size_t)64 << 10)
#define MAGIC_MAX  6

/* More than any level of the three packers asks for. */
#define UNPACK_MEMORY ((uint64_t)256 << 20)

struct trace_source {
	const struct unpacker *unpacker;
	int fd;
	int broken;	   /* -errno, told once the bytes before it have been */
	bool eof;	   /* of the file */
	bool between;	   /* at a place where an archive may end */
	size_t at, filled; /* unread input is [at, filled) */
	unsigned char input[INPUT_SIZE];
	lzma_stream lzma;
	z_stream zlib;
	ZSTD_DStream *zstd;
};

/*
 * Unpacks from the input into `out`; says how many bytes came. It may say 0 while there is
 * more to come. -EBADMSG: the archive is broken; -ENOMEM.
 */
struct unpacker {
	const char *name;
	unsigned char magic[MAGIC_MAX];
	size_t magic_size;
	int (*open)(struct trace_source *source);
	int (*unpack)(struct trace_source *source, char *out, size_t capacity,
		size_t *ret_size);
	void (*close)(struct trace_source *source);
};

static int refill(struct trace_source *source)
{
	ssize_t got;

	if (source->at < source->filled || source->eof)
		return 0;
	do
		got = read(source->fd, source->input, INPUT_SIZE);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	source->at = 0;
	source->filled = (size_t)got;
	source->eof = !got;
	return 0;
}

static int plain_unpack(
	struct trace_source *source, char *out, size_t capacity, size_t *ret_size)
{
	size_t size = source->filled - source->at;

	if (size > capacity)
		size = capacity;
	memcpy(out, source->input + source->at, size);
	source->at += size;
	source->between = true;
	*ret_size = size;
	return 0;
}

static int xz_open(struct trace_source *source)
{
	source->lzma = (lzma_stream)LZMA_STREAM_INIT;
	return lzma_stream_decoder(&source->lzma, UNPACK_MEMORY, LZMA_CONCATENATED)
		? -ENOMEM
		: 0;
}

static int xz_unpack(
	struct trace_source *source, char *out, size_t capacity, size_t *ret_size)
{
	lzma_ret ret;

	source->lzma.next_in = source->input + source->at;
	source->lzma.avail_in = source->filled - source->at;
	source->lzma.next_out = (unsigned char *)out;
	source->lzma.avail_out = capacity;
	/* With concatenation only the end of the file tells where the last stream ends. */
	ret = lzma_code(&source->lzma, source->eof ? LZMA_FINISH : LZMA_RUN);
	source->at = source->filled - source->lzma.avail_in;
	source->between = ret == LZMA_STREAM_END;
	*ret_size = capacity - source->lzma.avail_out;
	if (ret == LZMA_OK || ret == LZMA_STREAM_END || ret == LZMA_BUF_ERROR)
		return 0;
	return ret == LZMA_MEM_ERROR || ret == LZMA_MEMLIMIT_ERROR ? -ENOMEM : -EBADMSG;
}

static void xz_close(struct trace_source *source)
{
	lzma_end(&source->lzma);
}

static int gzip_open(struct trace_source *source)
{
	/* 15: the largest window; 16: a gzip header. */
	return inflateInit2(&source->zlib, 15 + 16) == Z_OK ? 0 : -ENOMEM;
}

static int gzip_unpack(
	struct trace_source *source, char *out, size_t capacity, size_t *ret_size)
{
	int ret;

	if (source->between && source->at < source->filled) {
		inflateReset(&source->zlib);
		source->between = false;
	}
	source->zlib.next_in = source->input + source->at;
	source->zlib.avail_in = (unsigned)(source->filled - source->at);
	source->zlib.next_out = (unsigned char *)out;
	source->zlib.avail_out = (unsigned)capacity;
	ret = source->between ? Z_OK : inflate(&source->zlib, Z_NO_FLUSH);
	source->at = source->filled - source->zlib.avail_in;
	*ret_size = capacity - source->zlib.avail_out;
	if (ret == Z_STREAM_END)
		source->between = true;
	if (ret == Z_OK || ret == Z_STREAM_END || ret == Z_BUF_ERROR)
		return 0;
	return ret == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
}

static void gzip_close(struct trace_source *source)
{
	inflateEnd(&source->zlib);
}

static int zstd_open(struct trace_source *source)
{
	source->zstd = ZSTD_createDStream();
	return source->zstd ? 0 : -ENOMEM;
}

static int zstd_unpack(
	struct trace_source *source, char *out, size_t capacity, size_t *ret_size)
{
	ZSTD_inBuffer in = {source->input, source->filled, source->at};
	ZSTD_outBuffer to = {out, capacity, 0};
	size_t ret;

	*ret_size = 0;
	if (source->between && in.pos == in.size)
		return 0;
	ret = ZSTD_decompressStream(source->zstd, &to, &in);
	source->at = in.pos;
	source->between = !ret;
	*ret_size = to.pos;
	return ZSTD_isError(ret) ? -EBADMSG : 0;
}

static void zstd_close(struct trace_source *source)
{
	ZSTD_freeDStream(source->zstd);
}

static const struct unpacker unpackers[] = {
	{"xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6, xz_open, xz_unpack, xz_close},
	{"gzip", {0x1f, 0x8b}, 2, gzip_open, gzip_unpack, gzip_close},
	{"zstd", {0x28, 0xb5, 0x2f, 0xfd}, 4, zstd_open, zstd_unpack, zstd_close},
	/* Text; last, it takes what no other knows. */
	{"plain", {0}, 0, NULL, plain_unpack, NULL},
};

static const struct unpacker *recognise(const struct trace_source *source)
{
	const struct unpacker *unpacker = unpackers;

	while (source->filled < unpacker->magic_size ||
		memcmp(source->input, unpacker->magic, unpacker->magic_size))
		unpacker++;
	return unpacker;
}

/* The first bytes, also from a pipe that gives one at a time. */
static int fill_magic(struct trace_source *source)
{
	while (source->filled < MAGIC_MAX) {
		ssize_t got = read(source->fd, source->input + source->filled,
			INPUT_SIZE - source->filled);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		source->filled += (size_t)got;
	}
	return 0;
}

int trace_source_open(
	const char *path, char *message, size_t size, struct trace_source **ret)
{
	struct trace_source *source = calloc(1, sizeof(*source));
	int err = -ENOMEM;

	if (!source)
		goto fail;
	source->fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (source->fd < 0) {
		err = -errno;
		goto fail_free;
	}
	err = fill_magic(source);
	if (err)
		goto fail_close;
	source->unpacker = recognise(source);
	err = source->unpacker->open ? source->unpacker->open(source) : 0;
	if (err)
		goto fail_close;
	*ret = source;
	return 0;

fail_close:
	if (source->fd != STDIN_FILENO)
		close(source->fd);
fail_free:
	free(source);
fail:
	snprintf(message, size, "%s", strerror(-err));
	return err;
}

static void explain(const struct trace_source *source, char *message, size_t size)
{
	const char *name = source->unpacker->name;

	if (source->broken == -EBADMSG)
		snprintf(message, size, "the %s archive is broken", name);
	else if (source->broken == -ENODATA)
		snprintf(message, size, "the %s archive is cut off", name);
	else
		snprintf(message, size, "%s", strerror(-source->broken));
}

int trace_source_read(struct trace_source *source, char *buffer, size_t capacity,
	char *message, size_t size, size_t *ret_size)
{
	size_t got = 0;

	while (!source->broken && !got) {
		source->broken = refill(source);
		if (!source->broken)
			source->broken =
				source->unpacker->unpack(source, buffer, capacity, &got);
		if (source->eof && !got)
			break;
	}
	if (!got && !source->broken && !source->between)
		source->broken = -ENODATA;
	if (!got && source->broken) {
		explain(source, message, size);
		return source->broken;
	}
	*ret_size = got;
	return 0;
}

int trace_source_file(const struct trace_source *source)
{
	struct stat stat;

	if (source->fd == STDIN_FILENO || source->unpacker->magic_size ||
		fstat(source->fd, &stat) || !S_ISREG(stat.st_mode))
		return -1;
	return source->fd;
}

void trace_source_close(struct trace_source *source)
{
	if (!source)
		return;
	if (source->unpacker->close)
		source->unpacker->close(source);
	if (source->fd != STDIN_FILENO)
		close(source->fd);
	free(source);
}
