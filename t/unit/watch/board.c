/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The board of figures: that no reader takes figures of two moments for one, that the room there is
 * is kept to, and that a child has none.
 */
#include "watch/board.h"

#include "base/atomic.h"

#include "seed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXTS 64

static struct glk_figures_gpu gpus[CONTEXTS];
static struct glk_figures_context contexts[CONTEXTS];
static struct glk_figures figures = {.contexts = contexts};
static glk_atomic(bool) over;

/* All words of all figures are one number. */
static void fill(uint64_t value)
{
	for (size_t i = 0; i < figures.count; i++) {
		struct glk_figures_context *context = &contexts[i];

		for (int c = 0; c < GLAKE_CALL_COUNT; c++) {
			struct glake_histogram *times = &context->times[c];

			context->calls.calls[c] = value;
			context->calls.ns[c] = (int64_t)value;
			times->count = times->sum = times->longest = value;
			for (int at = 0; at < GLAKE_HISTOGRAM_BUCKETS; at++)
				times->at[at] = value;
		}
	}
}

static void make(size_t count)
{
	figures.count = count;
	for (size_t i = 0; i < count; i++)
		contexts[i] = (struct glk_figures_context){
			.number = (unsigned)i + 1, .driver = "soft", .gpus = &gpus[i]};
	fill(1);
}

/* The numbers of a read that was of one moment by the sequence; false: it was not. */
static bool read_once(const struct glake_board *at, uint64_t *ret_first, bool *ret_torn)
{
	const uint64_t *values = (const void *)((const char *)at + at->values_at);
	/* pairs with: the release of the writer, here and below */
	uint64_t before = glk_peek_acquire(&at->sequence), first = 0, count;
	bool torn = false;

	if (before & 1)
		return false;
	count = glk_peek_acquire(&at->values);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t word = glk_peek_acquire(&values[i]);

		if (!i)
			first = word;
		torn |= word != first;
	}
	if (glk_peek_relaxed(&at->sequence) != before)
		return false;
	*ret_first = first;
	*ret_torn = torn;
	return true;
}

struct seen {
	const struct glake_board *at;
	uint64_t reads, torn, back;
};

static void *watch(void *arg)
{
	struct seen *seen = arg;
	uint64_t first, last = 0;
	bool torn;

	while (!glk_load_relaxed(&over) || !seen->reads) {
		if (!read_once(seen->at, &first, &torn))
			continue;
		seen->reads++;
		seen->torn += torn;
		seen->back += first < last;
		last = first;
	}
	return NULL;
}

static void *map_board(const struct glk_board *board)
{
	void *at = mmap(NULL, board->size, PROT_READ, MAP_SHARED, board->fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void test_torn(void)
{
	struct glk_board board;
	struct seen seen[3] = {0};
	pthread_t threads[3];
	uint64_t writes = tap_on_valgrind() ? 100 : STORM_SIZE(3000);
	int wrong = 0;

	make(1);
	is_int(glk_board_new(&figures, &board), 0, "a board");
	fill(0);
	wrong += glk_board_write(&board, &figures, 1, 1) != 0;
	for (int i = 0; i < 3; i++) {
		seen[i].at = map_board(&board);
		if (pthread_create(&threads[i], NULL, watch, &seen[i]))
			tap_bail("no thread");
	}
	for (uint64_t i = 1; i <= writes; i++) {
		fill(i);
		wrong += glk_board_write(&board, &figures, 1, 1) != 0;
	}
	glk_store_relaxed(&over, true);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		ok(seen[i].reads && !seen[i].torn && !seen[i].back,
			"%llu reads while it was written, %llu of two moments, %llu gone back",
			(unsigned long long)seen[i].reads,
			(unsigned long long)seen[i].torn,
			(unsigned long long)seen[i].back);
		munmap((void *)(uintptr_t)seen[i].at, board.size);
	}
	is_int(wrong, 0, "each time all of it");
	is_int(board.at->writes, (int64_t)writes + 1, "it counts how often");
	is_int(board.at->shape, 1, "and has one shape");
	close(board.fd);
	glk_board_free(&board);
}

/* Whether a text has a line. */
static bool has_line(const struct glk_board *board, const char *line)
{
	const char *schema = (const char *)board->at + board->at->schema_at;

	return memmem(schema, board->at->schema_size, line, strlen(line));
}

static void test_room(void)
{
	const char *line = "context 64 soft\n";
	struct glk_board board, larger;
	uint64_t writes;

	make(1);
	is_int(glk_board_new(&figures, &board), 0, "a board for one context");
	is_int(glk_board_write(&board, &figures, 7, 9), 0, "is written");
	is_int((int64_t)board.at->written_ns, 7, "when");
	is_int((int64_t)board.at->interval_ns, 9, "and how often it will be");
	writes = board.at->writes;
	make(CONTEXTS);
	is_int(glk_board_write(&board, &figures, 8, 9), -ENOSPC, "64 do not fit");
	is_int((int64_t)board.at->writes, (int64_t)writes, "then nothing is written");
	ok(has_line(&board, "context 1 soft\n") && !has_line(&board, line), "of them");
	is_int(glk_board_new(&figures, &larger), 0, "a larger one");
	is_int(glk_board_write(&larger, &figures, 8, 9), 0, "has room");
	ok(has_line(&larger, line), "for all");
	figures.count = 2;
	is_int(glk_board_write(&larger, &figures, 8, 9), 0, "fewer fit too");
	ok(!has_line(&larger, line) && larger.at->shape == 2, "in another shape");
	glk_board_rest(&larger, GLAKE_BOARD_ENDED);
	is_int((int64_t)larger.at->state, GLAKE_BOARD_ENDED, "its end");
	is_int((int64_t)larger.at->interval_ns, 0, "after which it is not written");
	ok(larger.at->sequence % 2 == 0 && larger.at->writes == 2, "its figures stay");
	close(board.fd);
	close(larger.fd);
	glk_board_free(&board);
	glk_board_free(&larger);
	ok(!board.at && board.fd == -1, "nothing is left of one that has gone");
	glk_board_free(&board);
}

static void test_sealed(void)
{
	struct glk_board board;

	make(1);
	if (glk_board_new(&figures, &board))
		tap_bail("no board");
	ok(mmap(NULL, board.size, PROT_READ | PROT_WRITE, MAP_SHARED, board.fd, 0) ==
				MAP_FAILED &&
			errno == EPERM,
		"nobody maps it for writing");
	ok(ftruncate(board.fd, 0) && errno == EPERM, "nobody cuts it off");
	ok(pwrite(board.fd, "x", 1, 0) < 0 && errno == EPERM, "nobody writes into it");
	ok(fallocate(board.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) &&
			errno == EPERM,
		"nobody makes a hole in it");
	is_int(glk_board_write(&board, &figures, 1, 1), 0, "but who made it");
	close(board.fd);
	glk_board_free(&board);
}

static void test_fork(void)
{
	struct glk_board board;
	int status;
	pid_t pid;

	make(1);
	if (glk_board_new(&figures, &board))
		tap_bail("no board");
	pid = fork();
	if (!pid) {
		unsigned char there;
		bool mapped = !mincore(board.at, 1, &there);

		glk_board_forget(&board);
		_exit(mapped || board.at || board.fd != -1);
	}
	ok(pid > 0 && waitpid(pid, &status, 0) == pid && !status,
		"a child does not have it, and forgets it");
	is_int(glk_board_write(&board, &figures, 1, 1), 0, "its parent writes on");
	close(board.fd);
	glk_board_free(&board);
}

int main(void)
{
	tap_plan_later();
	test_torn();
	test_room();
	test_sealed();
	test_fork();
	return tap_done();
}
