/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The machine of pickles: a stack of values, marks on it, and a memo of those that are named again.
 * It knows every opcode of protocols 2 to 5 that data is made of, and those that make objects as far
 * as to step over them. All numbers of a file are checked against what has been read, so its memory
 * is a small multiple of its size, and no more than UNPICKLE_MEMORY_MAX.
 */
#include "tool/unpickle.h"

#include "tool/progress.h"
#include "tool/unpickle_machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD	      64 /* bytes of a text that are looked at */
#define PROGRESS_STEP ((uint64_t)1 << 20)

int machine_fail(struct machine *m, int err, const char *format, ...)
{
	int length = snprintf(m->message, m->message_size,
		"the pickle, byte %llu: ", (unsigned long long)(m->read + m->next));
	va_list args;

	va_start(args, format);
	if (length > 0 && (size_t)length < m->message_size)
		vsnprintf(m->message + length, m->message_size - (size_t)length, format,
			args);
	va_end(args);
	return err;
}

int machine_check(struct machine *m, int err)
{
	if (err == -EFBIG)
		return machine_fail(m, err, "there is more in it than %zu MiB hold",
			UNPICKLE_MEMORY_MAX >> 20);
	return err ? machine_fail(m, err, "%s", strerror(-err)) : 0;
}

/* More input. 0, also at its end. */
static int refill(struct machine *m)
{
	m->read += m->filled;
	m->next = m->filled = 0;
	if (m->read / PROGRESS_STEP != (m->read + MACHINE_INPUT) / PROGRESS_STEP)
		progress_step(m->read, 0);
	return trace_source_read(m->source, m->input, MACHINE_INPUT, m->message,
		m->message_size, &m->filled);
}

int machine_take(struct machine *m, void *to, size_t size, uint64_t length)
{
	int err;

	for (size_t got = 0; length;) {
		size_t here = m->filled - m->next;

		if (!here) {
			err = refill(m);
			if (err)
				return err;
			if (!m->filled)
				return machine_fail(m, -EINVAL, "it ends in the middle");
			continue;
		}
		here = here < length ? here : (size_t)length;
		if (got < size)
			memcpy((char *)to + got, m->input + m->next,
				here < size - got ? here : size - got);
		got += here;
		m->next += here;
		length -= here;
	}
	return 0;
}

/* A number of so many bytes, the lowest first. */
static int take_number(struct machine *m, unsigned bytes, uint64_t *ret_number)
{
	unsigned char raw[8] = {0};
	int err = machine_take(m, raw, sizeof(raw), bytes);

	*ret_number = 0;
	for (unsigned i = 0; i < bytes; i++)
		*ret_number |= (uint64_t)raw[i] << 8 * i;
	return err;
}

int machine_push(struct machine *m, struct unpickle_value value)
{
	return machine_check(m, pile_add(m->u, &m->stack, &value, NULL));
}

static int push_number(struct machine *m, uint64_t number)
{
	return machine_push(
		m, (struct unpickle_value){.type = UNPICKLE_INT, .number = number});
}

/* A whole number as Python has it, of any length; what is longer than 64 bits is of no use. */
static int take_long(struct machine *m, uint64_t length)
{
	unsigned char raw[16] = {0};
	uint64_t number = 0;
	int err = machine_take(m, raw, sizeof(raw), length);
	bool negative = length && length <= sizeof(raw) && raw[length - 1] & 0x80;

	for (unsigned i = 0; i < 8; i++)
		number |= (uint64_t)(i < length ? raw[i] : negative ? 0xff : 0) << 8 * i;
	if (err)
		return err;
	if (length > 9 || (length == 9 && raw[8]))
		return machine_push(m, (struct unpickle_value){0});
	return push_number(m, number);
}

static int take_text(struct machine *m, uint64_t length)
{
	struct unpickle_value value = {.type = UNPICKLE_TEXT};
	char text[WORD];
	int err = machine_take(m, text, sizeof(text), length);

	for (uint32_t i = 0; !err && m->words[i] && !value.at; i++)
		if (strlen(m->words[i]) == length && !memcmp(m->words[i], text, length))
			value.at = i + 1;
	return err ? err : machine_push(m, value);
}

static int put_memo(struct machine *m, uint64_t at)
{
	if (!machine_has(m, 1))
		return machine_fail(m, -EINVAL, "nothing to remember");
	/* they come by turns, and a few of them again */
	if (at > m->memo.count)
		return machine_fail(m, -EINVAL, "memo %llu, where %zu is the next",
			(unsigned long long)at, m->memo.count);
	if (at == m->memo.count)
		return machine_check(m, pile_add(m->u, &m->memo, machine_top(m), NULL));
	*(struct unpickle_value *)pile_at(&m->memo, at + 1) = *machine_top(m);
	return 0;
}

static int get_memo(struct machine *m, uint64_t at)
{
	if (at >= m->memo.count)
		return machine_fail(m, -EINVAL, "memo %llu of %zu",
			(unsigned long long)at, m->memo.count);
	return machine_push(m, *(struct unpickle_value *)pile_at(&m->memo, at + 1));
}

/* With a length, or a number, of so many bytes in front. */
static int sized(
	struct machine *m, unsigned bytes, int (*fn)(struct machine *m, uint64_t number))
{
	uint64_t number;
	int err = take_number(m, bytes, &number);

	return err ? err : fn(m, number);
}

static int skip_bytes(struct machine *m, uint64_t length)
{
	int err = machine_take(m, NULL, 0, length);

	return err ? err : machine_push(m, (struct unpickle_value){0});
}

static int push_int(struct machine *m, uint64_t number)
{
	return push_number(m, (uint64_t)(int64_t)(int32_t)number);
}

static int check_protocol(struct machine *m, uint64_t number)
{
	return number >= 2 && number <= 5
		? 0
		: machine_fail(m, -EINVAL, "protocol %llu; 2 to 5 are read",
			  (unsigned long long)number);
}

static int ignore(struct machine *m, uint64_t number)
{
	(void)m;
	(void)number;
	return 0;
}

/* The opcodes, by what Lib/pickletools.py calls them. */
static int step(struct machine *m, unsigned char code, bool *ret_end)
{
	switch (code) {
	case 0x80: /* PROTO */
		return sized(m, 1, check_protocol);
	case 0x95: /* FRAME: of which the rest is checked as it comes */
		return sized(m, 8, ignore);
	case '.': /* STOP */
		*ret_end = true;
		return 0;
	case 'N':  /* NONE */
	case 0x88: /* NEWTRUE */
	case 0x89: /* NEWFALSE */
		return machine_push(m, (struct unpickle_value){0});
	case 'K': /* BININT1 */
		return sized(m, 1, push_number);
	case 'M': /* BININT2 */
		return sized(m, 2, push_number);
	case 'J': /* BININT */
		return sized(m, 4, push_int);
	case 0x8a: /* LONG1 */
		return sized(m, 1, take_long);
	case 0x8b: /* LONG4 */
		return sized(m, 4, take_long);
	case 0x8c: /* SHORT_BINUNICODE */
	case 'U':  /* SHORT_BINSTRING */
		return sized(m, 1, take_text);
	case 'X': /* BINUNICODE */
	case 'T': /* BINSTRING */
		return sized(m, 4, take_text);
	case 0x8d: /* BINUNICODE8 */
		return sized(m, 8, take_text);
	case 'C': /* SHORT_BINBYTES */
		return sized(m, 1, skip_bytes);
	case 'B': /* BINBYTES */
		return sized(m, 4, skip_bytes);
	case 0x8e: /* BINBYTES8 */
	case 0x96: /* BYTEARRAY8 */
		return sized(m, 8, skip_bytes);
	case 'G': /* BINFLOAT */
		return skip_bytes(m, 8);
	case 'q': /* BINPUT */
		return sized(m, 1, put_memo);
	case 'r': /* LONG_BINPUT */
		return sized(m, 4, put_memo);
	case 0x94: /* MEMOIZE */
		return put_memo(m, m->memo.count);
	case 'h': /* BINGET */
		return sized(m, 1, get_memo);
	case 'j': /* LONG_BINGET */
		return sized(m, 4, get_memo);
	default:
		return machine_move(m, code);
	}
}

static int read_all(struct machine *m)
{
	unsigned char code = 0;
	bool end = false;
	int err = 0;

	while (!err && !end) {
		err = machine_take(m, &code, 1, 1);
		if (!err)
			err = step(m, code, &end);
	}
	if (!err && (m->marks || m->stack.count != 1))
		err = machine_fail(m, -EINVAL, "it ends with %zu values", m->stack.count);
	if (!err)
		m->u->root = *machine_top(m);
	return err;
}

bool unpickle_is(const char *bytes, size_t size)
{
	return size >= 2 && (unsigned char)bytes[0] == 0x80 &&
		(unsigned char)bytes[1] < 16;
}

int unpickle_read(struct trace_source *source, const char *begin, size_t begin_size,
	const char *const *words, char *message, size_t size, struct unpickle **ret)
{
	struct machine *m = calloc(1, sizeof(*m));
	struct unpickle *u = calloc(1, sizeof(*u));
	int err = -ENOMEM;

	if (m && u) {
		m->u = u;
		m->stack.size = m->memo.size = sizeof(struct unpickle_value);
		m->words = words;
		m->source = source;
		m->message = message;
		m->message_size = size;
		m->filled = begin_size < MACHINE_INPUT ? begin_size : MACHINE_INPUT;
		memcpy(m->input, begin, m->filled);
		err = read_all(m);
		free(m->stack.at);
		free(m->memo.at);
	} else {
		snprintf(message, size, "%s", strerror(ENOMEM));
	}
	free(m);
	if (err)
		unpickle_free(u);
	else
		*ret = u;
	return err;
}
