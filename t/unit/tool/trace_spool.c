/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Our own format packed: by any packer, through a pipe, cut off. */
#include "trace_file.h"

#include <fcntl.h>
#include <lzma.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#define SPARSE ((size_t)4 << 20) /* as long as the file of a killed program seems */

static unsigned char *plain, *packed;
static size_t packed_size;

static void pack_xz(size_t size)
{
	packed_size = 0;
	if (lzma_easy_buffer_encode(
		    1, LZMA_CHECK_CRC64, NULL, plain, size, packed, &packed_size, SPARSE))
		tap_bail("xz");
}

static void pack_gzip(size_t size)
{
	z_stream z = {.next_in = plain,
		.avail_in = (unsigned)size,
		.next_out = packed,
		.avail_out = (unsigned)SPARSE};

	if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) ||
		deflate(&z, Z_FINISH) != Z_STREAM_END)
		tap_bail("gzip");
	deflateEnd(&z);
	packed_size = z.total_out;
}

static void pack_zstd(size_t size)
{
	packed_size = ZSTD_compress(packed, SPARSE, plain, size, 1);
	if (ZSTD_isError(packed_size))
		tap_bail("zstd");
}

static int load(size_t size, bool lenient)
{
	FILE *file = fopen(made_path, "we");

	if (!file || fwrite(packed, 1, size, file) != size || fclose(file))
		tap_bail("no file for the test");
	message[0] = '\0';
	trace_fini(&trace);
	return trace_load(
		made_path, lenient, &TRACE_LIMITS, message, sizeof(message), &trace);
}

static void test_packer(const char *name, void (*pack)(size_t size))
{
	tap_note("%s", name);
	pack(made_size());
	is_int(load(packed_size, false), 0, "a packed trace");
	is_int((int64_t)trace.count, 13, "has all events");
	is_int((int64_t)trace.peak_live, 46, "and the same figures");
	pack(SPARSE);
	is_int(load(packed_size, false), 0, "one that is empty for the most part");
	is_int((int64_t)trace.count, 13, "has all events");
	is_int(load(packed_size - 3, false), -ENODATA, "the archive is cut off");
	has_str(message, "archive is cut off", "says so");
	is_int(load(packed_size - 3, true), 0, "lenient takes what came before");
	ok(trace.count == 13 && trace.broken, "and says so");
}

/* From a pipe that gives few bytes at a time. */
static void test_pipe(void)
{
	int ends[2], kept = dup(STDIN_FILENO), err;
	pid_t pid;

	if (pipe(ends))
		tap_bail("no pipe");
	pid = fork();
	if (!pid) {
		close(ends[0]);
		for (size_t at = 0; at < made_size(); at += 5) {
			size_t size = made_size() - at < 5 ? made_size() - at : 5;

			if (write(ends[1], plain + at, size) != (ssize_t)size)
				_exit(1);
		}
		_exit(0);
	}
	close(ends[1]);
	dup2(ends[0], STDIN_FILENO);
	trace_fini(&trace);
	err = trace_load("-", false, &TRACE_LIMITS, message, sizeof(message), &trace);
	is_int(err, 0, "from a pipe, five bytes at a time");
	is_int((int64_t)trace.count, 13, "all events");
	dup2(kept, STDIN_FILENO);
	close(kept);
	close(ends[0]);
}

static void test_no_room(void)
{
	setenv("TMPDIR", "/no/such/folder", 1);
	pack_gzip(made_size());
	is_int(load(packed_size, false), 0, "a wrong TMPDIR is not the end");
	setenv("TMPDIR", made_folder, 1);
	is_int(load(packed_size, false), 0, "a right one is taken");
}

int main(void)
{
	made_start();
	plain = calloc(1, SPARSE);
	packed = calloc(2, SPARSE);
	if (!plain || !packed)
		tap_bail("no memory");
	made_empty();
	for (size_t i = 0; i < 4; i++)
		made_alloc(i % 2, (int64_t)i, 0x1000 + i, 10 + i);
	for (size_t i = 0; i < 9; i++)
		made_add(2 + i / 5, 100 + (int64_t)i,
			i < 4 ? GLAKE_TRACE_FREE : GLAKE_TRACE_ALLOC,
			0x1000 + i % 4 + (i == 8 ? 100 : 0), i < 4 ? 0 : 1);
	memcpy(plain, &made, made_size());
	tap_plan(3 * 9 + 4);
	test_packer("xz", pack_xz);
	test_packer("gzip", pack_gzip);
	test_packer("zstd", pack_zstd);
	test_pipe();
	test_no_room();
	free(plain);
	free(packed);
	made_stop();
	return tap_done();
}
