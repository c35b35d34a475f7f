/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes pickles: see pickle.h, and Lib/pickletools.py of Python for each byte. */
#include "tool/pickle.h"

#include <errno.h>
#include <string.h>

/* Items of a list between two of its batches. */
#define BATCH 1000

static void put(struct pickle *pickle, int opcode, const void *bytes, size_t size)
{
	putc(opcode, pickle->file);
	fwrite(bytes, 1, size, pickle->file);
}

/* Numbers are little-endian on every machine. */
static void put_number(struct pickle *pickle, int opcode, uint64_t number, size_t size)
{
	unsigned char bytes[8];

	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(number >> 8 * i);
	put(pickle, opcode, bytes, size);
}

void pickle_begin(struct pickle *pickle, FILE *file)
{
	*pickle = (struct pickle){.file = file};
	put(pickle, 0x80, "\2", 1); /* PROTO */
	/* the one value is as in a list, without one */
	pickle->depth = 1;
	pickle->open[0].is_list = true;
}

/* A value comes: text that may be a key, or another. */
static void count(struct pickle *pickle, bool is_text)
{
	unsigned top = pickle->depth - 1;
	uint64_t before = pickle->open[top].count++;

	if (!top)
		pickle->wrong |= before > 0;
	else if (!pickle->open[top].is_list)
		pickle->wrong |= !is_text && before % 2 == 0;
	else if (before && before % BATCH == 0)
		fputs("e(", pickle->file); /* APPENDS, MARK */
}

static void open_one(struct pickle *pickle, bool is_list)
{
	count(pickle, false);
	if (pickle->depth == PICKLE_DEPTH_MAX) {
		pickle->wrong = true;
		return;
	}
	fputs(is_list ? "](" : "}(", pickle->file); /* EMPTY_LIST, EMPTY_DICT; MARK */
	pickle->open[pickle->depth].is_list = is_list;
	pickle->open[pickle->depth++].count = 0;
}

void pickle_dict(struct pickle *pickle)
{
	open_one(pickle, false);
}

void pickle_list(struct pickle *pickle)
{
	open_one(pickle, true);
}

void pickle_close(struct pickle *pickle)
{
	unsigned top = pickle->depth - 1;

	if (!top) {
		pickle->wrong = true;
		return;
	}
	pickle->wrong |= !pickle->open[top].is_list && pickle->open[top].count % 2;
	putc(pickle->open[top].is_list ? 'e' : 'u', pickle->file); /* APPENDS, SETITEMS */
	pickle->depth--;
}

void pickle_keep(struct pickle *pickle, uint32_t name)
{
	put_number(pickle, 'r', name, 4); /* LONG_BINPUT */
}

void pickle_again(struct pickle *pickle, uint32_t name)
{
	count(pickle, false);
	put_number(pickle, 'j', name, 4); /* LONG_BINGET */
}

void pickle_text(struct pickle *pickle, const char *text)
{
	size_t length = strlen(text);

	count(pickle, true);
	pickle->wrong |= length > UINT32_MAX;
	put_number(pickle, 'X', length, 4); /* BINUNICODE */
	fwrite(text, 1, length, pickle->file);
}

void pickle_int(struct pickle *pickle, int64_t number)
{
	count(pickle, false);
	if (number >= 0 && number < 256)
		put_number(pickle, 'K', (uint64_t)number, 1); /* BININT1 */
	else if (number >= INT32_MIN && number <= INT32_MAX)
		put_number(pickle, 'J', (uint64_t)number, 4); /* BININT */
	else {
		put(pickle, 0x8a, "\10", 1); /* LONG1 */
		for (int i = 0; i < 8; i++)
			putc((int)((uint64_t)number >> 8 * i & 255), pickle->file);
	}
}

int pickle_end(struct pickle *pickle)
{
	putc('.', pickle->file); /* STOP */
	if (pickle->wrong || pickle->depth != 1 || pickle->open[0].count != 1)
		return -EINVAL;
	return fflush(pickle->file) || ferror(pickle->file) ? -EIO : 0;
}
