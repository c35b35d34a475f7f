/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Unpacking: the three packers and none, archives in a row, cut off, broken. */
#include "t/tap.h"
#include "tool/trace.h"

#include <errno.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define TEXT_SIZE ((size_t)300000)
#define PACK_SIZE (TEXT_SIZE * 2)

static char text[TEXT_SIZE];
static unsigned char packed[PACK_SIZE];
static char path[] = "/tmp/glake-source-XXXXXX";
static char message[TRACE_MESSAGE_MAX];

static size_t pack_plain(unsigned char *out)
{
	memcpy(out, text, TEXT_SIZE);
	return TEXT_SIZE;
}

static size_t pack_xz(unsigned char *out)
{
	size_t size = 0;

	if (lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text,
		    TEXT_SIZE, out, &size, PACK_SIZE / 2))
		tap_bail("xz");
	return size;
}

static size_t pack_gzip(unsigned char *out)
{
	z_stream z = {.next_in = (unsigned char *)text,
		.avail_in = TEXT_SIZE,
		.next_out = out,
		.avail_out = PACK_SIZE / 2};

	if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) ||
		deflate(&z, Z_FINISH) != Z_STREAM_END)
		tap_bail("gzip");
	deflateEnd(&z);
	return z.total_out;
}

static size_t pack_zstd(unsigned char *out)
{
	ZSTD_CCtx *zstd = ZSTD_createCCtx();
	size_t size;

	/* As the program of this name does. */
	ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
	size = ZSTD_compress2(zstd, out, PACK_SIZE / 2, text, TEXT_SIZE);
	if (ZSTD_isError(size))
		tap_bail("zstd");
	ZSTD_freeCCtx(zstd);
	return size;
}

static const struct packer {
	const char *name;
	size_t (*pack)(unsigned char *out);
	bool archive;
} packers[] = {{"plain", pack_plain, false}, {"xz", pack_xz, true},
	{"gzip", pack_gzip, true}, {"zstd", pack_zstd, true}};

static void store(size_t size)
{
	FILE *file = fopen(path, "we");

	if (!file || fwrite(packed, 1, size, file) != size || fclose(file))
		tap_bail("no file for the test");
}

/* Reads all; counts the bytes that are right, from the first on. */
static int unpack(size_t *ret_right)
{
	struct trace_source *source;
	char buffer[4096];
	size_t got = 1, right = 0;
	int err = trace_source_open(path, message, sizeof(message), &source);

	if (err)
		return err;
	while (!err && got) {
		got = 0;
		err = trace_source_read(
			source, buffer, sizeof(buffer), message, sizeof(message), &got);
		for (size_t i = 0; i < got; i++)
			right += buffer[i] == text[right % TEXT_SIZE];
	}
	trace_source_close(source);
	*ret_right = right;
	return err;
}

static void test_packer(const struct packer *packer)
{
	size_t size = packer->pack(packed);
	size_t right = 0;

	tap_note("%s, %zu bytes", packer->name, size);
	store(size);
	is_int(unpack(&right), 0, "reads to the end");
	is_int(right, TEXT_SIZE, "every byte");
	memcpy(packed + size, packed, size);
	store(2 * size);
	is_int(unpack(&right), 0, "two in a row");
	is_int(right, 2 * TEXT_SIZE, "every byte of both");
	if (!packer->archive)
		return;
	store(size - 1);
	is_int(unpack(&right), -ENODATA, "the last byte is missing");
	has_str(message, "is cut off", "says so");
	ok(right > TEXT_SIZE / 2, "what came before was given");
	store(size / 2);
	is_int(unpack(&right), -ENODATA, "half is missing");
	ok(right > TEXT_SIZE / 4 && right < TEXT_SIZE, "what came before was given");
	store(2 * size - 9);
	is_int(unpack(&right), -ENODATA, "the second of two is cut off");
	packed[size / 2] ^= 0x55;
	packed[size / 2 + 1] ^= 0x55;
	store(size);
	is_int(unpack(&right), -EBADMSG, "bytes in the middle are wrong");
	has_str(message, "is broken", "says so");
	packer->pack(packed);
	memset(packed + size, 'x', 64);
	store(size + 64);
	is_int(unpack(&right), -EBADMSG, "something else follows");
}

int main(void)
{
	uint32_t x = 1;
	size_t right = 1;
	int fd = mkstemp(path);

	if (fd < 0)
		tap_bail("no file for the test");
	close(fd);
	for (size_t i = 0; i < TEXT_SIZE; i++) {
		x = (uint32_t)((uint64_t)x * 16807 % 2147483647);
		text[i] = (char)('a' + x % 7);
	}
	tap_plan(4 * 4 + 3 * 9 + 5);
	for (size_t i = 0; i < sizeof(packers) / sizeof(packers[0]); i++)
		test_packer(&packers[i]);
	store(0);
	is_int(unpack(&right), 0, "an empty file is plain");
	is_int(right, 0, "and has nothing in it");
	unlink(path);
	is_int(unpack(&right), -ENOENT, "a file that is not there");
	has_str(message, "No such file", "says so");
	strcpy(path, "/tmp");
	is_int(unpack(&right), -EISDIR, "a folder");
	return tap_done();
}
