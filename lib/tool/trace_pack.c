/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packs a trace as its name says, .xz, .gz or .zst, when it is complete: the header of our own
 * format is written last. Whatever reads a trace here reads it packed too.
 */
#include "tool/trace_tool.h"

#include <errno.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define PIECE ((size_t)64 << 10)

struct pack {
	FILE *from, *to;
	bool last; /* of the input is in `in` */
	size_t filled;
	unsigned char in[PIECE], out[PIECE];
};

struct trace_packer {
	const char *ending;
	int (*run)(struct pack *pack);
};

static int fill(struct pack *pack)
{
	pack->filled = fread(pack->in, 1, PIECE, pack->from);
	pack->last = pack->filled < PIECE;
	return ferror(pack->from) ? -errno : 0;
}

static int put(struct pack *pack, size_t size)
{
	return fwrite(pack->out, 1, size, pack->to) == size ? 0 : -errno;
}

static int xz(struct pack *pack)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	lzma_ret ret = LZMA_OK;
	int err = lzma_easy_encoder(&stream, 6, LZMA_CHECK_CRC64) ? -ENOMEM : 0;

	while (!err && ret != LZMA_STREAM_END) {
		if (!stream.avail_in && !pack->last) {
			err = fill(pack);
			stream.next_in = pack->in;
			stream.avail_in = pack->filled;
		}
		stream.next_out = pack->out;
		stream.avail_out = PIECE;
		ret = lzma_code(&stream, pack->last ? LZMA_FINISH : LZMA_RUN);
		if (ret != LZMA_OK && ret != LZMA_STREAM_END)
			err = ret == LZMA_MEM_ERROR ? -ENOMEM : -EIO;
		if (!err)
			err = put(pack, PIECE - stream.avail_out);
	}
	lzma_end(&stream);
	return err;
}

static int gzip(struct pack *pack)
{
	z_stream stream = {0};
	int ret = Z_OK, err;

	/* 15: the largest window; 16: a gzip header */
	err = deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
		      Z_DEFAULT_STRATEGY) == Z_OK
		? 0
		: -ENOMEM;
	while (!err && ret != Z_STREAM_END) {
		if (!stream.avail_in && !pack->last) {
			err = fill(pack);
			stream.next_in = pack->in;
			stream.avail_in = (unsigned)pack->filled;
		}
		stream.next_out = pack->out;
		stream.avail_out = PIECE;
		ret = deflate(&stream, pack->last ? Z_FINISH : Z_NO_FLUSH);
		if (ret == Z_STREAM_ERROR)
			err = -EIO;
		if (!err)
			err = put(pack, PIECE - stream.avail_out);
	}
	deflateEnd(&stream);
	return err;
}

static int zstd(struct pack *pack)
{
	ZSTD_CStream *stream = ZSTD_createCStream();
	ZSTD_inBuffer in = {pack->in, 0, 0};
	size_t left = 1;
	int err = stream ? 0 : -ENOMEM;

	while (!err && (left || !pack->last)) {
		ZSTD_outBuffer out = {pack->out, PIECE, 0};

		if (in.pos == in.size && !pack->last) {
			err = fill(pack);
			in.size = pack->filled;
			in.pos = 0;
		}
		left = ZSTD_compressStream2(
			stream, &out, &in, pack->last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			err = -EIO;
		if (!err)
			err = put(pack, out.pos);
	}
	ZSTD_freeCStream(stream);
	return err;
}

static const struct trace_packer packers[] = {{".xz", xz}, {".gz", gzip}, {".zst", zstd}};

static bool ends(const char *path, const char *ending)
{
	size_t length = strlen(path), most = strlen(ending);

	return length > most && !strcmp(path + length - most, ending);
}

int trace_packer_of(const char *path, const struct trace_packer **ret_packer)
{
	static const char *const others[] = {
		".bz2", ".lz4", ".lzma", ".lz", ".lzo", ".br", ".Z", ".zip", ".7z"};

	*ret_packer = NULL;
	for (size_t i = 0; i < sizeof(packers) / sizeof(*packers); i++)
		if (ends(path, packers[i].ending))
			*ret_packer = &packers[i];
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (ends(path, others[i]))
			return -EOPNOTSUPP;
	return 0;
}

int trace_pack(const struct trace_packer *packer, FILE *from, FILE *to)
{
	struct pack *pack = calloc(1, sizeof(*pack));
	int err;

	if (!pack)
		return -ENOMEM;
	pack->from = from;
	pack->to = to;
	rewind(from);
	err = packer->run(pack);
	free(pack);
	return err;
}
