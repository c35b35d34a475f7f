/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_JSON_H
#define GLK_BASE_JSON_H

/*
 * A writer of JSON (RFC 8259) that streams: commas, indentation and escaping are its work,
 * the order of calls is the caller's. It knows nothing of glake and needs only <stdio.h>.
 * For a text in memory instead of a file, hand it a FILE from open_memstream(3).
 *
 *	struct glk_json json;
 *
 *	glk_json_init(&json, stdout, 2);
 *	glk_json_object(&json);
 *	glk_json_add_text(&json, "name", "opt13b");
 *	glk_json_key(&json, "repeats");
 *	glk_json_array(&json);
 *	glk_json_int(&json, 3);
 *	glk_json_end(&json);
 *	glk_json_end(&json);
 *	err = glk_json_fini(&json);
 *
 * A wrong order (a value without a key in an object, a key in an array, a second value at
 * the top, an end too many) is caught by assert, and without asserts by glk_json_fini.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define GLK_JSON_DEPTH_MAX 32

struct glk_json {
	FILE *file;
	int indent;
	int depth;		       /* containers open now */
	char ends[GLK_JSON_DEPTH_MAX]; /* what closes each of them */
	bool some;		       /* the innermost one has a member already */
	bool keyed;		       /* a key waits for its value */
	bool done;		       /* the one value at the top was begun */
	bool wrong;		       /* used in a wrong order */
};

/* Writes to `file`, with `indent` blanks a level; 0 puts everything on one line. */
void glk_json_init(struct glk_json *json, FILE *file, int indent);

/*
 * Ends the line and flushes. 0; -EIO when something could not be written; -EINVAL after use
 * in a wrong order or with containers still open. The file stays open.
 */
int glk_json_fini(struct glk_json *json);

/* Opens an object or an array, to be closed by glk_json_end. */
void glk_json_object(struct glk_json *json);
void glk_json_array(struct glk_json *json);
void glk_json_end(struct glk_json *json);

/* Names the next value. Inside an object only, and needed there. */
void glk_json_key(struct glk_json *json, const char *key);

/* The length of the UTF-8 character at `s`, of which `left` bytes are there; 0: it is none. */
size_t glk_json_utf8_length(const unsigned char *s, size_t left);

/* Bytes that are not UTF-8 become U+FFFD, one each. A NULL text becomes null. */
void glk_json_text(struct glk_json *json, const char *text);
void glk_json_bytes(struct glk_json *json, const char *bytes, size_t size);

void glk_json_bool(struct glk_json *json, bool value);
void glk_json_int(struct glk_json *json, int64_t value);
void glk_json_uint(struct glk_json *json, uint64_t value);
/* The fewest digits that read back as the same double; null for NaN and infinities. */
void glk_json_double(struct glk_json *json, double value);
/* With `digits` significant digits at most, for figures that are not exact anyway. */
void glk_json_figure(struct glk_json *json, double value, int digits);
void glk_json_null(struct glk_json *json);

/* Key and value in one. */
static inline void glk_json_add_text(
	struct glk_json *json, const char *key, const char *value)
{
	glk_json_key(json, key);
	glk_json_text(json, value);
}

static inline void glk_json_add_bool(struct glk_json *json, const char *key, bool value)
{
	glk_json_key(json, key);
	glk_json_bool(json, value);
}

static inline void glk_json_add_int(struct glk_json *json, const char *key, int64_t value)
{
	glk_json_key(json, key);
	glk_json_int(json, value);
}

static inline void glk_json_add_uint(
	struct glk_json *json, const char *key, uint64_t value)
{
	glk_json_key(json, key);
	glk_json_uint(json, value);
}

static inline void glk_json_add_figure(
	struct glk_json *json, const char *key, double value, int digits)
{
	glk_json_key(json, key);
	glk_json_figure(json, value, digits);
}

#endif
