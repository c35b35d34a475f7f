/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_CONF_READER_H
#define GLK_BASE_CONF_READER_H

/*
 * Between the parts of the reader of the configuration, and no one else: one reading, from
 * where it is now, and what it found so far.
 */
#include "base/conf.h"

/* Findings of one reading that are handed out; a file may have a line in each second byte. */
#define GLK_CONF_FINDINGS_MAX 100

struct glk_conf_reader {
	struct glk_conf *conf;
	glake_conf_finding_fn fn;
	void *arg;
	const struct glk_conf_form *forms;
	bool is_check;
	/* Where the reading is. */
	enum glake_conf_origin origin;
	const char *source; /* file, variable or "" */
	int line;	    /* 0: not of one line */
	/* What it found. */
	int err; /* of the first error */
	int findings;
};

/* A finding where the reading is: err 0 is a warning. The first error fills the record. */
void glk_conf_report(struct glk_conf_reader *reader, int err, const char *key,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Sets a key from text where the reading is, or reports why not. */
void glk_conf_assign(
	struct glk_conf_reader *reader, enum glk_conf_id id, const char *text);

/* The same by name; err is what a name that is not known is reported as. */
void glk_conf_assign_named(struct glk_conf_reader *reader, const char *section,
	const char *key, const char *text, int err);

/* Reports a key that is not in the table, with what was probably meant. */
void glk_conf_report_unknown(
	struct glk_conf_reader *reader, int err, const char *section, const char *key);

/* Reads text into the field; else -EINVAL and a sentence that says what would be right. */
int glk_conf_parse(struct glk_conf *conf, enum glk_conf_id id, const char *text,
	char *ret_why, size_t size);

/* Reads a file; `named` when the program asked for this one. 0 or -errno, reported. */
#define GLK_CONF_FILE_MAX (64 << 10)
int glk_conf_read_file(struct glk_conf_reader *reader, const char *path, bool named);

/* Reads the lines of a file that is in memory, and changes it on the way. */
void glk_conf_read_lines(struct glk_conf_reader *reader, char *text);

/* A foreign text made fit for a message: shortened, in printable ASCII. */
#define GLK_CONF_SHOWN_MAX 64
void glk_conf_show(const char *text, char *buffer, size_t size);

#endif
