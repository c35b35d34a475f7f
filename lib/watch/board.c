/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writing the board of figures. The sequence is stored before any word that changes, and each of
 * these with release order, so that a reader who sees a new word sees that it is odd; and it is
 * stored again behind them. No fence stands alone, so race detectors understand it.
 */
#include "watch/board.h"

#include "base/atomic.h"
#include "base/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define HEADER 256
#define LEAST  ((size_t)64 << 10)
#define LINE                                                                             \
	192 /* most bytes of a line of the schema; those of figures.c have half of it */
#define WORDS (sizeof(struct glake_histogram) / sizeof(uint64_t))

_Static_assert(sizeof(struct glake_board) <= HEADER, "the header has its room");
_Static_assert(sizeof(struct glake_histogram) ==
		(3 + GLAKE_HISTOGRAM_BUCKETS) * sizeof(uint64_t),
	"a histogram is words");

/* Figures on their way into a board, or, without one, how much room they take. */
struct draft {
	char *schema;
	uint64_t *values;
	size_t schema_room, values_room; /* bytes, words */
	size_t schema_size, count;
	const struct glk_figures_context *context; /* the last that was told of */
	bool full;
};

static void add_line(struct draft *d, const char *line, size_t length)
{
	if (d->schema && d->schema_room - d->schema_size < length)
		d->full = true;
	else if (d->schema)
		memcpy(d->schema + d->schema_size, line, length);
	d->schema_size += length;
}

static void add_contexts(struct draft *d, const struct glk_figures *figures)
{
	char line[LINE];

	for (size_t i = 0; i < figures->count; i++)
		add_line(d, line,
			(size_t)snprintf(line, sizeof(line), "context %u %s\n",
				figures->contexts[i].number,
				figures->contexts[i].driver));
}

static int add_figure(const struct glk_figures_context *context,
	const struct glake_figure *figure, void *arg)
{
	size_t words = figure->times ? WORDS : 1;
	struct draft *d = arg;
	char line[LINE];
	int length = snprintf(line, sizeof(line), "figure %u %d %d %d %zu %s%s%s%s%s\n",
		context->number, figure->device, figure->unit, figure->kind, words,
		figure->name, figure->label ? " " : "",
		figure->label ? figure->label : "", figure->label ? " " : "",
		figure->label ? figure->of : "");

	if (length < 0 || (size_t)length >= sizeof(line))
		return 0;
	add_line(d, line, (size_t)length);
	if (d->values && d->values_room - d->count < words)
		d->full = true;
	else if (d->values && figure->times)
		memcpy(d->values + d->count, figure->times, sizeof(*figure->times));
	else if (d->values)
		d->values[d->count] = figure->value;
	d->count += words;
	return d->full;
}

static void walk(struct draft *d, const struct glk_figures *figures)
{
	add_contexts(d, figures);
	glk_figures_walk(figures, add_figure, d);
	/* whole words are copied */
	while (d->schema && !d->full && d->schema_size % sizeof(uint64_t))
		add_line(d, "\n", 1);
}

static size_t round_up(size_t size)
{
	return (size + 63) & ~(size_t)63;
}

static int make_memory(size_t size, int *ret_fd, void **ret_at)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	int fd = memfd_create("glake-board", MFD_CLOEXEC | MFD_ALLOW_SEALING), err = 0;
	void *at = MAP_FAILED;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) ||
		(at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
			MAP_FAILED)
		err = -errno;
	/* a child would write into that of its parent */
	else if (madvise(at, size, MADV_DONTFORK))
		err = -errno;
	else if (fcntl(fd, F_ADD_SEALS, seals))
		err = errno == EINVAL ? -EOPNOTSUPP : -errno;
	if (!err) {
		*ret_fd = fd;
		*ret_at = at;
		return 0;
	}
	if (at != MAP_FAILED)
		munmap(at, size);
	close(fd);
	return err;
}

int glk_board_new(const struct glk_figures *figures, struct glk_board *ret_board)
{
	struct glk_board board = {.fd = -1};
	struct draft need = {0};
	size_t schema, values;
	void *at;
	int err;

	walk(&need, figures);
	schema = round_up(need.schema_size + need.schema_size / 2 + LEAST / 4);
	values = round_up((need.count + need.count / 2) * sizeof(uint64_t) + LEAST / 2);
	board.size = HEADER + schema + values;
	if (board.size > GLK_BOARD_MAX)
		return -EFBIG;
	board.draft = glk_region_new(board.size);
	if (!board.draft)
		return -ENOMEM;
	err = make_memory(board.size, &board.fd, &at);
	if (err) {
		glk_region_free(board.draft, board.size);
		return err;
	}
	board.at = at;
	/* nobody else has it yet */
	*board.at = (struct glake_board){.version = GLAKE_BOARD_VERSION,
		.header_size = sizeof(*board.at),
		.size = board.size,
		.pid = (uint64_t)getpid(),
		.schema_at = HEADER,
		.schema_room = schema,
		.values_at = HEADER + schema,
		.values_room = values};
	memcpy(board.at->magic, GLAKE_BOARD_MAGIC, GLAKE_BOARD_MAGIC_SIZE);
	*ret_board = board;
	return 0;
}

static void *at_of(const struct glk_board *board, uint64_t offset)
{
	return (char *)board->at + offset;
}

/* Whole words, where some of them are what they were. */
static void put_words(uint64_t *to, const uint64_t *from, size_t count)
{
	for (size_t i = 0; i < count; i++)
		glk_poke_release(&to[i], from[i]); /* pairs with: the readers' acquire */
}

static void put(uint64_t *to, uint64_t value)
{
	glk_poke_release(to, value); /* pairs with: the readers' acquire */
}

static void begin(struct glk_board *board)
{
	glk_poke_relaxed(
		&board->at->sequence, glk_peek_relaxed(&board->at->sequence) + 1);
}

static void end(struct glk_board *board)
{
	put(&board->at->sequence, glk_peek_relaxed(&board->at->sequence) + 1);
}

int glk_board_write(struct glk_board *board, const struct glk_figures *figures,
	int64_t gathered_ns, uint64_t interval_ns)
{
	struct glake_board *at = board->at;
	struct draft d = {.schema = board->draft,
		.values = (uint64_t *)(void *)((char *)board->draft + at->schema_room),
		.schema_room = at->schema_room,
		.values_room = at->values_room / sizeof(uint64_t)};
	uint64_t *schema = at_of(board, at->schema_at);
	bool is_new;

	walk(&d, figures);
	if (d.full)
		return -ENOSPC;
	/* only this thread writes there, so it may look as it likes */
	is_new = d.schema_size != board->used ||
		memcmp(schema, d.schema, d.schema_size) != 0;
	begin(board);
	if (is_new) {
		put_words(schema, board->draft, d.schema_size / sizeof(uint64_t));
		put(&at->schema_size, d.schema_size);
		put(&at->shape, at->shape + 1);
		put(&at->values, d.count);
	}
	put_words(at_of(board, at->values_at), d.values, d.count);
	put(&at->writes, at->writes + 1);
	put(&at->written_ns, (uint64_t)gathered_ns);
	put(&at->interval_ns, interval_ns);
	put(&at->state, GLAKE_BOARD_GOES_ON);
	end(board);
	board->used = d.schema_size;
	return 0;
}

void glk_board_rest(struct glk_board *board, enum glake_board_state state)
{
	if (!board->at)
		return;
	begin(board);
	put(&board->at->interval_ns, 0);
	put(&board->at->state, (uint64_t)state);
	end(board);
}

void glk_board_free(struct glk_board *board)
{
	if (!board->at)
		return;
	munmap(board->at, board->size);
	glk_region_free(board->draft, board->size);
	*board = (struct glk_board){.fd = -1};
}

void glk_board_forget(struct glk_board *board)
{
	/* the thread that had it may just have been making it, so nothing of it is followed */
	*board = (struct glk_board){.fd = -1};
}
