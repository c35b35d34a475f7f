/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks for another process: their descriptors go there over a socket, both see one memory,
 * and what is out serves nobody else. And all that is no use of these functions.
 */
#include "context.h"
#include "letter.h"

#include <fcntl.h>
#include <sys/resource.h>

#define SIZE  (30 * MIB)
#define BYTES ((volatile unsigned char *)ptr)

static const char *const settings[] = {"pool.budget=256MiB", NULL};

static void post(int to, const struct letter *letter)
{
	if (letter_post(to, letter))
		tap_bail("no letter sent");
}

static struct letter fetch(int from)
{
	struct letter letter;

	if (letter_fetch(from, &letter))
		_exit(99);
	return letter;
}

static void fill(void *ptr, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i += 512)
		BYTES[i] = (unsigned char)(seed + i / 512 * 7);
}

static bool is_filled(const void *ptr, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i += 512) {
		if (BYTES[i] != (unsigned char)(seed + i / 512 * 7))
			return false;
	}
	return true;
}

/* The other process: each block it gets is checked, written and given back. */
static int importer(int socket)
{
	struct glake *ctx = flow_open(settings);
	struct letter letter, answer = {.word = 1};
	void *ptr;

	for (unsigned i = 0;; i++) {
		letter = fetch(socket);
		if (!letter.count)
			break;
		if (glake_import(ctx, 0, letter.piece, letter.count, letter.size, &ptr))
			return 10;
		letter_close(&letter);
		if (!is_filled(ptr, letter.size, i))
			return 11;
		fill(ptr, letter.size, i + 100);
		/* a request of its own is not in the way */
		if (!flow_alloc(ctx, 5 * MIB, NULL))
			return 12;
		post(socket, &answer);
		letter = fetch(socket);
		if (!is_filled(ptr, MIB, i + 100))
			return 13;
		if (glake_import_end(ctx, ptr, NULL))
			return 14;
		post(socket, &answer);
	}
	if (glake_close(ctx, NULL))
		return 15;
	return 0;
}

/* Five pages that lay apart. */
static void *stitched(struct glake *ctx)
{
	void *small[10];

	for (int i = 0; i < 10; i++)
		small[i] = flow_alloc(ctx, 8 * MIB, NULL);
	for (int i = 0; i < 10; i += 2)
		glake_free(ctx, small[i], NULL);
	return flow_alloc(ctx, SIZE, NULL);
}

static struct letter letter_of(struct glake *ctx, void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct letter letter = {.count = 0};

	if (glake_query(ctx, ptr, &block) ||
		glake_export(ctx, ptr, letter.piece, LETTER_MOST, &letter.count))
		tap_bail(flow_error().text);
	letter.size = block.size;
	return letter;
}

/* One block there and back; freed while it is out. */
static void send_block(
	struct glake *ctx, int socket, void *ptr, unsigned number, const char *what)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct letter letter, empty = {.count = 0};
	bool apart = true;
	char *other[8];

	glake_query(ctx, ptr, &block);
	fill(ptr, block.size, number);
	letter = letter_of(ctx, ptr);
	post(socket, &letter);
	letter_close(&letter);
	fetch(socket);
	ok(is_filled(ptr, block.size, number + 100), "%s", what);
	is_int(glake_free(ctx, ptr, NULL), 0, "  freed while the other one has it");
	for (int i = 0; i < 8; i++) {
		other[i] = flow_alloc(ctx, 13 * MIB >> i % 3, NULL);
		if (other[i])
			memset(other[i], 255, 13 * MIB >> i % 3);
		apart &= !other[i] || other[i] + (13 * MIB >> i % 3) <= (char *)ptr ||
			other[i] >= (char *)ptr + block.size;
	}
	ok(apart && is_filled(ptr, block.size, number + 100), "  it serves nobody else");
	post(socket, &empty);
	fetch(socket);
	is_int(glake_export_end(ctx, ptr), 0, "  the other one is done with it");
	is_int(glake_export_end(ctx, ptr), -EINVAL, "  which is said once");
	for (int i = 0; i < 8; i++)
		glake_free(ctx, other[i], NULL);
	ok(flow_alloc(ctx, block.size, NULL), "  there is room again");
}

static void test_processes(void)
{
	struct letter empty = {.count = 0};
	struct glake *ctx;
	int sockets[2];
	void *ptr = NULL;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		tap_bail("no sockets");
	child = flow_fork(60);
	if (!child)
		_exit(importer(sockets[1]));
	close(sockets[1]);
	ctx = flow_open(settings);
	send_block(ctx, sockets[0], stitched(ctx), 0, "a stitched block there and back");
	glake_alloc(ctx, 0, 20 * MIB, NULL, GLAKE_ALLOC_CONTIGUOUS, &ptr);
	send_block(ctx, sockets[0], ptr, 1, "a contiguous one");
	send_block(ctx, sockets[0], flow_alloc(ctx, 3 * MIB, NULL), 2, "one of 3 MiB");
	send_block(ctx, sockets[0], flow_alloc(ctx, MIB, NULL), 3, "a small one");
	post(sockets[0], &empty);
	is_int(flow_wait(child), 0, "the other process is fine");
	close(sockets[0]);
	flow_close(ctx, 9);
}

static void test_here(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = flow_open(settings), *second = flow_open(settings);
	void *ptr = flow_alloc(ctx, SIZE, NULL), *here = NULL, *there = NULL;
	int files = flow_count_files();
	struct letter letter;

	is_int(glake_query(ctx, ptr, &block), 0, "queried");
	is_int(block.can, GLAKE_CAN_EXPORT, "it can be exported");
	is_int(block.exports, 0, "and is not");
	is_int((int64_t)block.peers, 0, "no other GPU may use it");
	letter = letter_of(ctx, ptr);
	glake_query(ctx, ptr, &block);
	is_int(block.exports, 1, "now it is");
	is_int(flow_count_files() - files, (int)block.pages, "with a descriptor a page");
	for (size_t i = 0; i < letter.count; i++) {
		if (!(fcntl(letter.piece[i].fd, F_GETFD) & FD_CLOEXEC))
			tap_bail("a descriptor that an exec would inherit");
	}
	is_int(fcntl(letter.piece[0].fd, F_SETFD, 0), 0, "one is to be inherited");
	is_int(glake_import(ctx, 0, letter.piece, letter.count, letter.size, &here), 0,
		"imported into the same context");
	is_int(glake_import(second, 0, letter.piece, letter.count, letter.size, &there),
		0, "and into another one");
	letter_close(&letter);
	fill(ptr, SIZE, 9);
	ok(is_filled(here, SIZE, 9) && is_filled(there, SIZE, 9), "all is one memory");
	is_error(glake_free(ctx, here, NULL), -EINVAL, "NOT_MINE");
	is_error(glake_query(ctx, here, &block), -EINVAL, "NOT_MINE");
	is_error(glake_import_end(second, here, NULL), -EINVAL, "NOT_MINE");
	is_int(glake_import_end(ctx, here, NULL), 0, "ended");
	is_error(glake_import_end(ctx, here, NULL), -EINVAL, "NOT_MINE");
	is_int(glake_free(ctx, ptr, NULL), 0, "freed");
	flow_close(ctx, 0);
	ok(is_filled(there, SIZE, 9),
		"who has it has it, also when the exporter is closed");
	flow_close(second, 1);
	is_int(flow_count_files(), files - 2, "no descriptor is left");
}

static void test_bad_input(void)
{
	struct glake *ctx = flow_open((const char *const[]){"soft.gpus=2", NULL}), *gone;
	void *ptr = flow_alloc(ctx, SIZE, NULL), *freed = flow_alloc(ctx, MIB / 8, NULL);
	struct letter letter, bad;
	size_t count = 77, offset = 77;
	void *here = NULL;
	int fd = -7, files;

	letter = letter_of(ctx, ptr);
	files = flow_count_files();
	glake_free(ctx, freed, NULL);
	is_error(glake_export(ctx, freed, bad.piece, LETTER_MOST, &count), -EINVAL,
		"DOUBLE_FREE");
	is_error(glake_export(ctx, (char *)ptr + 1, bad.piece, LETTER_MOST, &count),
		-EINVAL, "INVAL");
	is_error(glake_export(ctx, &letter, bad.piece, LETTER_MOST, &count), -EINVAL,
		"NOT_MINE");
	is_error(glake_export(ctx, NULL, bad.piece, LETTER_MOST, &count), -EINVAL,
		"NOT_MINE");
	is_error(glake_export(ctx, ptr, NULL, LETTER_MOST, &count), -EINVAL, "INVAL");
	is_error(glake_export(ctx, ptr, bad.piece, LETTER_MOST, NULL), -EINVAL, "INVAL");
	is_error(glake_export(ctx, ptr, bad.piece, letter.count - 1, &count), -EINVAL,
		"INVAL");
	is_error(glake_export(ctx, ptr, bad.piece, 0, &count), -EINVAL, "INVAL");
	is_error(glake_export_end(ctx, freed), -EINVAL, "INVAL");
	is_error(glake_export_end(ctx, NULL), -EINVAL, "NOT_MINE");

	is_error(glake_import(ctx, 2, letter.piece, letter.count, SIZE, &here), -EINVAL,
		"INVAL");
	is_error(glake_import(ctx, -1, letter.piece, letter.count, SIZE, &here), -EINVAL,
		"INVAL");
	is_error(glake_import(ctx, 1, letter.piece, letter.count, SIZE, &here), -EINVAL,
		"INVAL"); /* memory of GPU 0 */
	is_error(glake_import(ctx, 0, NULL, letter.count, SIZE, &here), -EINVAL, "INVAL");
	is_error(glake_import(ctx, 0, letter.piece, 0, SIZE, &here), -EINVAL, "INVAL");
	is_error(glake_import(ctx, 0, letter.piece, GLAKE_PIECES_MAX + 1, SIZE, &here),
		-EINVAL, "INVAL");
	is_error(glake_import(ctx, 0, letter.piece, letter.count, SIZE + 1, &here),
		-EINVAL, "INVAL");
	is_error(glake_import(ctx, 0, letter.piece, letter.count, SIZE, NULL), -EINVAL,
		"INVAL");
	bad = letter;
	bad.piece[1].fd = -1;
	is_error(glake_import(ctx, 0, bad.piece, bad.count, SIZE, &here), -EINVAL,
		"INVAL");
	bad.piece[1].fd = 1000;
	is_error(glake_import(ctx, 0, bad.piece, bad.count, SIZE, &here), -EINVAL,
		"INVAL");
	bad.piece[1].fd = STDERR_FILENO;
	is_error(glake_import(ctx, 0, bad.piece, bad.count, SIZE, &here), -EINVAL,
		"INVAL");
	bad = letter;
	bad.piece[1].reserved = 1;
	is_int(glake_import(ctx, 0, bad.piece, bad.count, SIZE, &here), -E2BIG,
		"a piece of a newer library");
	is_error(glake_import_end(ctx, ptr, NULL), -EINVAL, "NOT_MINE");
	is_error(glake_import_end(ctx, NULL, NULL), -EINVAL, "NOT_MINE");

	is_error(glake_dmabuf(ctx, ptr, SIZE, &fd, &offset), -EOPNOTSUPP, "UNSUPPORTED");
	is_error(glake_dmabuf(ctx, ptr, SIZE + 1, &fd, &offset), -EINVAL, "INVAL");
	is_error(
		glake_dmabuf(ctx, (char *)ptr + 1, SIZE, &fd, &offset), -EINVAL, "INVAL");
	is_error(glake_dmabuf(ctx, ptr, SIZE_MAX, &fd, &offset), -EINVAL, "INVAL");
	is_error(glake_dmabuf(ctx, ptr, 0, &fd, &offset), -EINVAL, "INVAL");
	is_error(glake_dmabuf(ctx, freed, 4096, &fd, &offset), -EINVAL, "DOUBLE_FREE");
	is_error(glake_dmabuf(ctx, ptr, SIZE, NULL, &offset), -EINVAL, "INVAL");
	is_error(glake_dmabuf(ctx, ptr, SIZE, &fd, NULL), -EINVAL, "INVAL");

	is_error(glake_peer_access(ctx, 0, 0, 1), -EINVAL, "INVAL");
	is_error(glake_peer_access(ctx, 0, 2, 1), -EINVAL, "INVAL");
	is_error(glake_peer_access(ctx, -1, 0, 1), -EINVAL, "INVAL");
	is_int(glake_peer_access(ctx, 0, 1, 1), 0, "GPU 1 may use memory of GPU 0");
	is_int(glake_peer_access(ctx, 0, 1, 0), 0, "and no longer");

	ok(count == 77 && offset == 77 && fd == -7 && !here, "no output was written");
	is_int(flow_count_files(), files, "no descriptor was left open");
	is_int(glake_export_end(ctx, ptr), 0, "out once, for all that was refused");
	is_error(glake_export_end(ctx, ptr), -EINVAL, "INVAL");
	letter_close(&letter);
	gone = ctx;
	flow_close(ctx, 1);
	is_error(glake_export(gone, ptr, bad.piece, LETTER_MOST, &count), -ESTALE,
		"STALE");
	is_error(glake_export_end(gone, ptr), -ESTALE, "STALE");
	is_error(glake_import(gone, 0, letter.piece, 1, SIZE, &here), -ESTALE, "STALE");
	is_error(glake_import_end(gone, ptr, NULL), -ESTALE, "STALE");
	is_error(glake_dmabuf(gone, ptr, SIZE, &fd, &offset), -ESTALE, "STALE");
	is_error(glake_peer_access(gone, 0, 1, 1), -ESTALE, "STALE");
}

static void test_not_made_for_it(void)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = flow_open((const char *const[]){"pool.export=no", NULL});
	void *ptr = flow_alloc(ctx, SIZE, NULL);
	struct letter letter = {.count = 77};

	glake_query(ctx, ptr, &block);
	is_int(block.can, 0, "pages that are not made to be exported");
	is_error(glake_export(ctx, ptr, letter.piece, LETTER_MOST, &letter.count),
		-EOPNOTSUPP, "UNSUPPORTED");
	is_int((int64_t)letter.count, 77, "  no output");
	is_int(glake_free(ctx, ptr, NULL), 0, "  and the block is not out");
	flow_close(ctx, 0);
}

/* As many descriptors as there may be. */
/* A large page need not be a power of two. */
static void test_odd_page(void)
{
	struct glake *ctx =
		flow_open((const char *const[]){"pool.large_page=6MiB", NULL});
	struct glake_piece pieces[20];
	void *ptr = flow_alloc(ctx, SIZE, NULL), *here = NULL;
	size_t count = 0;

	fill(ptr, SIZE, 3);
	is_int(glake_export(ctx, ptr, pieces, 20, &count), 0,
		"pages of three slots are out");
	is_int(glake_import(ctx, 0, pieces, count, SIZE, &here), 0, "and in");
	ok(here && is_filled(here, SIZE, 3), "with what was written");
	is_int(glake_import_end(ctx, here, NULL), 0, "taken down");
	for (size_t i = 0; i < count; i++)
		close(pieces[i].fd);
	is_int(glake_export_end(ctx, ptr), 0, "and back");
	is_int(glake_free(ctx, ptr, NULL), 0, "freed");
	flow_close(ctx, 0);
}

static void test_limit(void)
{
	struct glake *ctx = flow_open(settings);
	void *ptr = flow_alloc(ctx, SIZE, NULL), *here = NULL;
	int files = flow_count_files();
	struct rlimit limit, low;
	struct letter letter;
	size_t count = 77;
	bool fine = true;

	letter = letter_of(ctx, ptr);
	getrlimit(RLIMIT_NOFILE, &limit);
	for (rlim_t room = 0; room < letter.count; room++) {
		low = (struct rlimit){
			(rlim_t)letter.piece[letter.count - 1].fd + 1 + room,
			limit.rlim_max};
		setrlimit(RLIMIT_NOFILE, &low);
		fine &= glake_export(ctx, ptr, letter.piece, LETTER_MOST, &count) ==
				-EMFILE &&
			flow_error().error_class == GLAKE_ERROR_LIMIT;
		fine &= glake_import(ctx, 0, letter.piece, letter.count, SIZE, &here) ==
				-EMFILE &&
			flow_error().error_class == GLAKE_ERROR_LIMIT;
	}
	setrlimit(RLIMIT_NOFILE, &limit);
	ok(fine, "a limit on descriptors is told as such, at each of them");
	letter_close(&letter);
	is_int(flow_count_files(), files, "and none is left open");
	is_int(glake_export_end(ctx, ptr), 0, "out once");
	flow_close(ctx, 1);
}

/* In a forked child nothing of the parent's is touched. */
static void test_fork(void)
{
	struct glake *ctx = flow_open(settings);
	void *ptr = flow_alloc(ctx, SIZE, NULL), *here = NULL;
	struct letter letter = letter_of(ctx, ptr);
	size_t count = 0, offset = 0;
	int fd = -1;
	pid_t child;

	glake_import(ctx, 0, letter.piece, letter.count, SIZE, &here);
	child = flow_fork(20);
	if (!child) {
		if (glake_export(ctx, ptr, letter.piece, LETTER_MOST, &count) !=
				-ENODEV ||
			flow_error().error_class != GLAKE_ERROR_FORKED)
			_exit(1);
		if (glake_import(ctx, 0, letter.piece, letter.count, SIZE, &here) !=
			-ENODEV)
			_exit(2);
		if (glake_dmabuf(ctx, ptr, SIZE, &fd, &offset) != -ENODEV)
			_exit(3);
		if (glake_peer_access(ctx, 0, 1, 1) != -ENODEV)
			_exit(4);
		if (glake_export_end(ctx, ptr) || glake_import_end(ctx, here, NULL))
			_exit(5);
		_exit(0);
	}
	is_int(flow_wait(child), 0, "in a forked child all is refused, ends do nothing");
	fill(ptr, SIZE, 3);
	ok(is_filled(here, SIZE, 3), "the parent's import is there");
	is_int(glake_import_end(ctx, here, NULL), 0, "and is ended");
	is_int(glake_export_end(ctx, ptr), 0, "as the export is");
	letter_close(&letter);
	flow_close(ctx, 1);
}

int main(void)
{
	tap_plan_later();
	test_processes(); /* first: the child opens a context of its own */
	test_here();
	test_bad_input();
	test_not_made_for_it();
	test_odd_page();
	test_limit();
	test_fork();
	return tap_done();
}
