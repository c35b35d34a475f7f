/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The writer of pickles, byte by byte; that Python reads what it writes is for flow/map. */
#include "tool/pickle.h"

#include "tap.h"

#include <errno.h>
#include <stdlib.h>

static char *bytes;
static size_t size;
static FILE *file;

static void begin(struct pickle *p)
{
	free(bytes);
	file = open_memstream(&bytes, &size);
	if (!file)
		tap_bail("no memory");
	pickle_begin(p, file);
}

static int end(struct pickle *p)
{
	int err = pickle_end(p);

	fclose(file);
	return err;
}

static bool is(const char *wanted, size_t length)
{
	return size == length && !memcmp(bytes, wanted, length);
}

#define wrote(text, what) ok(is(text, sizeof(text) - 1), what)

static void numbers(void)
{
	struct pickle p;

	begin(&p);
	pickle_list(&p);
	pickle_int(&p, 0);
	pickle_int(&p, 255);
	pickle_int(&p, 256);
	pickle_int(&p, -1);
	pickle_int(&p, INT32_MAX);
	pickle_int(&p, (int64_t)INT32_MAX + 1);
	pickle_int(&p, INT64_MIN);
	pickle_close(&p);
	is_int(end(&p), 0, "numbers");
	wrote("\x80\2](K\0K\xffJ\0\1\0\0J\xff\xff\xff\xffJ\xff\xff\xff\x7f"
	      "\x8a\10\0\0\0\x80\0\0\0\0\x8a\10\0\0\0\0\0\0\0\x80"
	      "e.",
		"each in its form");
}

static void kept(void)
{
	struct pickle p;

	begin(&p);
	pickle_list(&p);
	pickle_list(&p);
	pickle_int(&p, 7);
	pickle_close(&p);
	pickle_keep(&p, 258);
	pickle_again(&p, 258);
	pickle_close(&p);
	is_int(end(&p), 0, "a list twice");
	wrote("\x80\2](](K\7er\2\1\0\0j\2\1\0\0e.", "is written once");
	begin(&p);
	pickle_dict(&p);
	pickle_again(&p, 0);
	pickle_int(&p, 1);
	pickle_close(&p);
	is_int(end(&p), -EINVAL, "a list is no key");
}

static void texts(void)
{
	struct pickle p;

	begin(&p);
	pickle_dict(&p);
	pickle_add_text(&p, "a", "\xc3\xa4");
	pickle_add_int(&p, "", 7);
	pickle_close(&p);
	is_int(end(&p), 0, "a dict");
	wrote("\x80\2}(X\1\0\0\0aX\2\0\0\0\xc3\xa4X\0\0\0\0K\7u.",
		"of texts and a number");
}

/* 2001 items: batches of a thousand. */
static void batches(void)
{
	unsigned batches_seen = 0;
	struct pickle p;

	begin(&p);
	pickle_list(&p);
	for (int i = 0; i < 2001; i++)
		pickle_int(&p, 1);
	pickle_close(&p);
	is_int(end(&p), 0, "a long list");
	for (size_t i = 0; i < size; i++)
		batches_seen += bytes[i] == 'e';
	is_int(batches_seen, 3, "goes in batches");
	is_int((int64_t)size, 2 + 2 + 2 * 2001 + 2 * 2 + 2, "and has all its items");
}

static void wrong_orders(void)
{
	struct pickle p;

	begin(&p);
	is_int(end(&p), -EINVAL, "nothing");
	begin(&p);
	pickle_int(&p, 1);
	pickle_int(&p, 2);
	is_int(end(&p), -EINVAL, "two values");
	begin(&p);
	pickle_dict(&p);
	is_int(end(&p), -EINVAL, "a dict without an end");
	begin(&p);
	pickle_dict(&p);
	pickle_int(&p, 1);
	pickle_int(&p, 1);
	pickle_close(&p);
	is_int(end(&p), -EINVAL, "a key that is no text");
	begin(&p);
	pickle_dict(&p);
	pickle_text(&p, "key");
	pickle_close(&p);
	is_int(end(&p), -EINVAL, "a key without a value");
	begin(&p);
	pickle_close(&p);
	is_int(end(&p), -EINVAL, "an end too many");
	begin(&p);
	for (int i = 0; i < PICKLE_DEPTH_MAX; i++)
		pickle_list(&p);
	for (int i = 1; i < PICKLE_DEPTH_MAX; i++)
		pickle_close(&p);
	is_int(end(&p), -EINVAL, "too deep");
}

static void full_disk(void)
{
	struct pickle p;

	file = fopen("/dev/full", "w");
	if (!file)
		tap_bail("no /dev/full");
	pickle_begin(&p, file);
	pickle_int(&p, 1);
	is_int(end(&p), -EIO, "a full disk");
}

int main(void)
{
	tap_plan_later();
	numbers();
	kept();
	texts();
	batches();
	wrong_orders();
	full_disk();
	free(bytes);
	return tap_done();
}
