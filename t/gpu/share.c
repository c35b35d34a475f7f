/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of a real GPU in other hands: another process, which checks and writes them, is killed
 * with one of them, and sends nonsense; dma-bufs; another GPU, where there is one.
 *
 * The other process is forked before CUDA is touched here.
 */
#include "gpu.h"
#include "letter.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <glake/glake.h>

#define MIB  ((size_t)1 << 20)
#define SIZE (44 * MIB + 4096 * 3)

static struct glk_drv *drv;
static struct CUstream_st *stream;

static struct glake *context_open(const char *const *settings)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *ctx = NULL;

	must(glake_open(&options, &ctx), "glake_open");
	return ctx;
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static uint64_t at(const void *ptr)
{
	return (uint64_t)(uintptr_t)ptr;
}

static int write_block(const void *ptr, size_t size, uint64_t seed)
{
	return pattern_write(drv, 0, at(ptr), size & ~(size_t)7, seed, stream);
}

static int64_t wrong_words(const void *ptr, size_t size, uint64_t seed)
{
	return pattern_check(drv, 0, at(ptr), size & ~(size_t)7, seed, stream);
}

/* What the exporter says: a block with pattern 2n; one to be killed with; the end. */
enum { CHECK, HOLD, LEAVE };

/* The other process; its exit status says where it was unhappy. */
static int importer(int socket)
{
	struct letter letter, answer = {.word = 1};
	struct glake *ctx = NULL;
	uint64_t seed = 0;
	void *ptr = NULL;
	double start;

	alarm(120);
	while (!letter_fetch(socket, &letter) && letter.word != LEAVE) {
		if (!ctx) {
			glk_rcu_init(false);
			must(glk_cuda_open(NULL, &drv), "no GPU in the other process");
			must(drv->ops->stream_new(drv, 0, &stream), "no stream");
			ctx = context_open(NULL);
		}
		start = now_us();
		if (glake_import(ctx, 0, letter.piece, letter.count, letter.size, &ptr)) {
			gpu_why();
			return 10;
		}
		tap_note("import of %zu pages: %.0f us", letter.count, now_us() - start);
		letter_close(&letter);
		if (wrong_words(ptr, letter.size, seed))
			return 11;
		if (write_block(ptr, letter.size, seed + 1))
			return 12;
		letter_post(socket, &answer);
		if (letter.word == HOLD)
			pause();
		if (letter_fetch(socket, &letter) || wrong_words(ptr, 44 * MIB, seed + 1))
			return 13;
		if (glake_import_end(ctx, ptr, stream)) {
			gpu_why();
			return 14;
		}
		letter_post(socket, &answer);
		seed += 2;
	}
	if (!ctx)
		return 0;
	if (drv->ops->stream_free(drv, 0, stream) || glake_close(ctx, NULL) ||
		drv->ops->close(drv))
		return 15;
	return 0;
}

struct other {
	int socket;
	pid_t pid;
};

static struct other other_start(void)
{
	struct other other = {.pid = -1};
	int sockets[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		tap_bail("no sockets");
	fflush(stdout);
	other.pid = fork();
	if (!other.pid) {
		close(sockets[0]);
		_exit(importer(sockets[1]));
	}
	close(sockets[1]);
	other.socket = sockets[0];
	return other;
}

static int other_end(const struct other *other)
{
	int status = 0;

	close(other->socket);
	waitpid(other->pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* ---- Another process. ---- */

static void *stitched(struct glake *ctx)
{
	void *small[16], *ptr = NULL;

	for (int i = 0; i < 16; i++)
		must(glake_alloc(ctx, 0, 8 * MIB, stream, 0, &small[i]), "no block");
	for (int i = 0; i < 16; i += 2)
		must(glake_free(ctx, small[i], stream), "no free");
	must(glake_alloc(ctx, 0, SIZE, stream, 0, &ptr), "no stitched block");
	for (int i = 1; i < 16; i += 2)
		must(glake_free(ctx, small[i], stream), "no free");
	return ptr;
}

static struct letter letter_of(struct glake *ctx, void *ptr, int word)
{
	struct letter letter = {.size = SIZE, .word = word};
	double start = now_us(), first;

	must(glake_export(ctx, ptr, letter.piece, LETTER_MOST, &letter.count),
		"no export");
	first = now_us() - start;
	letter_close(&letter);
	start = now_us();
	must(glake_export(ctx, ptr, letter.piece, LETTER_MOST, &letter.count),
		"no export");
	tap_note("export of %zu pages: %.0f us, again %.0f us", letter.count, first,
		now_us() - start);
	must(glake_export_end(ctx, ptr), "no end of an export");
	return letter;
}

static void there_and_back(
	struct glake *ctx, const struct other *other, void *ptr, uint64_t seed)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct letter letter, answer = {.count = 0};
	void *more[4];

	must(glake_query(ctx, ptr, &block), "no query");
	tap_note("%zu pages of %zu MiB, can %#x", block.pages, block.page_size >> 20,
		block.can);
	must(write_block(ptr, SIZE, seed), "no write");
	letter = letter_of(ctx, ptr, CHECK);
	is_int(letter_post(other->socket, &letter), 0, "descriptors sent");
	letter_close(&letter);
	is_int(letter_fetch(other->socket, &answer), 0,
		"the other process found what was written here, and wrote");
	is_int(wrong_words(ptr, SIZE, seed + 1), 0, "which is read here");
	is_done(glake_free(ctx, ptr, stream), "freed while it is out");
	for (int i = 0; i < 4; i++) {
		must(glake_alloc(ctx, 0, SIZE / 2, stream, 0, &more[i]), "no memory");
		must(write_block(more[i], SIZE / 2, 99), "no write");
		ok(at(more[i]) + SIZE / 2 <= at(ptr) || at(more[i]) >= at(ptr) + SIZE,
			"other blocks lie elsewhere");
	}
	letter_post(other->socket, &answer);
	is_int(letter_fetch(other->socket, &answer), 0,
		"the other process has its words still, and is done");
	is_done(glake_export_end(ctx, ptr), "which is said");
	for (int i = 0; i < 4; i++)
		is_done(glake_free(ctx, more[i], stream), "other blocks go");
}

static void processes(const struct other *other)
{
	struct glake *ctx = context_open(NULL);
	struct letter leave = {.word = LEAVE};
	void *ptr = NULL;
	size_t leaked = 9;

	there_and_back(ctx, other, stitched(ctx), 0);
	must(glake_alloc(ctx, 0, SIZE, stream, GLAKE_ALLOC_CONTIGUOUS, &ptr), "no block");
	there_and_back(ctx, other, ptr, 2);
	letter_post(other->socket, &leave);
	is_int(other_end(other), 0, "the other process has no complaint");
	is_done(glake_close(ctx, &leaked), "close");
	is_int(leaked, 0, "nothing is left");
}

/* A process that dies with a block holds nothing. */
static void killed(const struct other *other)
{
	struct glake *ctx = context_open(NULL);
	struct letter letter, answer;
	void *ptr = NULL;

	must(glake_alloc(ctx, 0, SIZE, stream, 0, &ptr), "no block");
	must(write_block(ptr, SIZE, 0), "no write");
	letter = letter_of(ctx, ptr, HOLD);
	letter_post(other->socket, &letter);
	letter_close(&letter);
	is_int(letter_fetch(other->socket, &answer), 0, "another process has a block");
	kill(other->pid, SIGKILL);
	is_int(other_end(other), 1000 + SIGKILL, "and is killed with it");
	is_int(wrong_words(ptr, SIZE, 1), 0, "the block has its last words");
	is_done(glake_export_end(ctx, ptr), "it is back");
	is_done(glake_free(ctx, ptr, stream), "and freed");
	is_done(glake_close(ctx, NULL), "close");
}

/* In one process, and what is no import at all. */
static void here(void)
{
	struct glake *ctx = context_open(NULL);
	struct letter letter, bad;
	void *ptr = stitched(ctx), *same = NULL;
	int fds[4], err;

	letter = letter_of(ctx, ptr, 0);
	is_done(glake_import(ctx, 0, letter.piece, letter.count, SIZE, &same),
		"imported into the same process");
	must(write_block(ptr, SIZE, 50), "no write");
	is_int(wrong_words(same, SIZE, 50), 0, "it is the same memory");
	is_done(glake_import_end(ctx, same, stream), "and ends");
	is_int(wrong_words(ptr, SIZE, 50), 0, "the block has its words");

	fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	fds[1] = memfd_create("nothing", MFD_CLOEXEC);
	fds[2] = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	fds[3] = 999;
	same = NULL;
	for (int i = 0; i < 4; i++) {
		bad = letter;
		bad.piece[2].fd = fds[i];
		err = glake_import(ctx, 0, bad.piece, bad.count, SIZE, &same);
		ok(err == -EINVAL && !same, "a descriptor of something else: %d", err);
		gpu_why();
		if (i < 3)
			close(fds[i]);
	}
	bad = letter;
	bad.piece[0].page_size *= 2;
	bad.piece[0].length = bad.piece[0].page_size - bad.piece[0].offset;
	err = glake_import(
		ctx, 0, bad.piece, bad.count, SIZE + letter.piece[0].page_size, &same);
	ok(err == -EINVAL && !same, "a page of another size than it has: %d", err);
	gpu_why();
	bad = letter;
	bad.piece[1].page_size /= 2;
	bad.piece[1].length /= 2;
	err = glake_import(ctx, 0, bad.piece, bad.count,
		SIZE - letter.piece[1].page_size / 2, &same);
	ok(err && !same, "half a page: %d", err);
	gpu_why();
	letter_close(&letter);
	is_done(glake_export_end(ctx, ptr), "back");
	is_done(glake_free(ctx, ptr, stream), "freed");
	is_done(glake_close(ctx, NULL), "close");
}

/* ---- Devices. ---- */

static int dmabuf(
	struct glake *ctx, char *ptr, size_t size, size_t want, const char *what)
{
	char path[64], name[64] = "";
	size_t offset = 99;
	int fd = -1, err;

	err = glake_dmabuf(ctx, ptr, size, &fd, &offset);
	if (err) {
		tap_note("%s: %d", what, err);
		gpu_why();
		return err;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, name, sizeof(name) - 1) < 0)
		name[0] = '\0';
	ok(offset == want && (fcntl(fd, F_GETFD) & FD_CLOEXEC), "%s: %s, %lld bytes",
		what, name, (long long)lseek(fd, 0, SEEK_END));
	close(fd);
	is_done(glake_export_end(ctx, ptr), "  back");
	return 0;
}

static void devices(void)
{
	static const char *const plain[] = {"pool.export=no", NULL};
	struct glake_device info = {.sz = sizeof(info)};
	struct glake *ctx = context_open(NULL);
	char *ptr = NULL, *parts;
	int err;

	must(glake_device_get(ctx, 0, &info), "no description");
	must(glake_alloc(ctx, 0, SIZE, stream, GLAKE_ALLOC_CONTIGUOUS, (void **)&ptr),
		"no block");
	if (!(info.caps & GLAKE_CAP_DMABUF)) {
		tap_skip("dma-bufs", "this GPU or its driver has none");
	} else {
		is_int(dmabuf(ctx, ptr, SIZE, 0, "all of a contiguous block"), 0,
			"a dma-buf");
		is_int(dmabuf(ctx, ptr + 5 * MIB + 100, 3 * MIB, 100, "a part of it"), 0,
			"a dma-buf");
		is_int(dmabuf(ctx, ptr, 1, 0, "a byte of it"), 0, "a dma-buf");
		parts = stitched(ctx);
		err = dmabuf(ctx, parts, SIZE, 0, "a stitched block");
		ok(!err || err == -EINVAL, "a stitched one has one, or says so: %d", err);
		must(glake_free(ctx, parts, stream), "no free");
	}
	must(glake_free(ctx, ptr, stream), "no free");
	is_done(glake_close(ctx, NULL), "close");

	ctx = context_open(plain);
	must(glake_alloc(ctx, 0, SIZE, stream, GLAKE_ALLOC_CONTIGUOUS, (void **)&ptr),
		"no block");
	err = dmabuf(ctx, ptr, SIZE, 0, "a block of pages not made for RDMA");
	ok(true, "pages not made for RDMA: %d", err);
	must(glake_free(ctx, ptr, stream), "no free");
	is_done(glake_close(ctx, NULL), "close");
}

/* ---- Other GPUs. ---- */

static double mapping_us(const char *const *settings)
{
	struct glake *ctx = context_open(settings);
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	void *ptr = NULL;
	double us;

	must(glake_alloc(ctx, 0, 512 * MIB, stream, 0, &ptr), "no block");
	must(glake_driver_stats_get(ctx, &stats), "no figures");
	us = (double)stats.ns[GLAKE_CALL_SET_ACCESS] / 1e3 / 64;
	must(glake_free(ctx, ptr, stream), "no free");
	must(glake_close(ctx, NULL), "no close");
	return us;
}

static void peers(void)
{
	static const char *const all[] = {"pool.peers=all", NULL};
	struct CUstream_st *far = NULL;
	struct glake *ctx;
	void *ptr = NULL, *later = NULL;
	int count = 0, err;

	drv->ops->device_count(drv, &count);
	if (count < 2) {
		tap_skip("peers", "one GPU only");
		return;
	}
	ctx = context_open(NULL);
	must(glake_alloc(ctx, 0, SIZE, stream, 0, &ptr), "no block");
	err = glake_peer_access(ctx, 0, 1, 1);
	if (err == -EOPNOTSUPP) {
		tap_skip("peers", "these GPUs cannot reach each other");
		glake_close(ctx, NULL);
		return;
	}
	is_done(err, "GPU 1 may use memory of GPU 0");
	must(drv->ops->stream_new(drv, 1, &far), "no stream on GPU 1");
	is_done(drv->ops->fill(drv, at(ptr), 0x12345678, SIZE / 4, far),
		"filled by GPU 1");
	is_done(drv->ops->stream_sync(drv, 1, far), "which has no complaint");
	is_done(pattern_write(drv, 1, at(ptr), SIZE, 60, far), "written by GPU 1");
	is_int(pattern_check(drv, 0, at(ptr), SIZE, 60, stream), 0, "read by GPU 0");
	must(glake_alloc(ctx, 0, 2 * SIZE, stream, 0, &later), "no block");
	is_done(drv->ops->fill(drv, at(later), 7, SIZE / 2, far), "memory of later too");
	is_done(drv->ops->stream_sync(drv, 1, far), "no complaint");
	is_done(glake_peer_access(ctx, 0, 1, 0), "taken away");
	is_done(pattern_write(drv, 0, at(ptr), SIZE, 61, stream), "GPU 0 has its own");
	is_int(pattern_check(drv, 0, at(ptr), SIZE, 61, stream), 0, "as before");
	is_done(glake_peer_access(ctx, 0, 1, 1), "and given again");
	is_int(pattern_check(drv, 1, at(ptr), SIZE, 61, far), 0, "read by GPU 1");
	must(glake_free(ctx, later, stream), "no free");
	must(glake_free(ctx, ptr, stream), "no free");
	is_done(glake_close(ctx, NULL), "close");
	is_done(drv->ops->stream_free(drv, 1, far), "end the stream");
	tap_note("set access to a page of 8 MiB: %.1f us for one GPU, %.1f for all of %d",
		mapping_us(NULL), mapping_us(all), count);
}

int main(void)
{
	struct other first = other_start(), second = other_start();
	size_t before = 0, after = 0, total = 0;

	drv = gpu_open();
	tap_plan_later();
	must(drv->ops->stream_new(drv, 0, &stream), "no stream");
	here(); /* what the driver loads at first use stays */
	must(drv->ops->memory_info(drv, 0, &before, &total), "no memory info");
	processes(&first);
	killed(&second);
	here();
	devices();
	must(drv->ops->memory_info(drv, 0, &after, &total), "no memory info");
	tap_note("free memory: %zu MiB before, %zu after", before >> 20, after >> 20);
	ok(after + 16 * MIB >= before, "all memory is back");
	peers();
	is_done(drv->ops->stream_free(drv, 0, stream), "end a stream");
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
