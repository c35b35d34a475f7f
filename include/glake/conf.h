/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_CONF_H
#define GLAKE_CONF_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct glake_options;

/* Where a value came from, weakest first. */
enum glake_conf_origin {
	GLAKE_CONF_DEFAULT = 0,
	GLAKE_CONF_FILE = 1,
	GLAKE_CONF_ENV = 2,
	GLAKE_CONF_OPTION = 3,
};

/* One key of the configuration. Strings live as long as the process. */
struct glake_conf_key {
	size_t sz;	     /* sizeof(struct glake_conf_key) */
	const char *section; /* "pool" */
	const char *key;     /* "budget" */
	const char *type; /* "bool", "int", "size", "time", "ratio", "choice", "text" */
	const char *default_value;
	const char *range; /* what is right, in words: "512 ... 1TiB", "soft, cuda" */
	const char *help;  /* one sentence or more */
	int live;	   /* 1: glake_conf_set changes it while the program runs */
};

/*
 * Describes key number `index`, from 0 in the order of glake.conf(5).
 *
 * Returns 0, or -ENOENT (past the last key), -EINVAL (NULL, sz not set), -E2BIG.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_conf_key_get(size_t index, struct glake_conf_key *ret_key);

/* The value of a key, and its origin. */
struct glake_conf_value {
	size_t sz;	  /* sizeof(struct glake_conf_value) */
	int origin;	  /* enum glake_conf_origin */
	int line;	  /* of the file; 0 if not from a file */
	char source[128]; /* file name, variable name or "" */
	char text[128];	  /* the value as a person writes it, "8MiB" */
};

/*
 * Gives the value of key number `index` in a context. With ctx NULL it is the value that
 * glake_open(NULL, ...) would run with: file and environment are read at the call.
 *
 * Returns 0, or -ENOENT (past the last key), -EINVAL (NULL, sz not set; for ctx NULL also a
 * configuration that glake_open would refuse, see glake_conf_check), -E2BIG, -ESTALE,
 * -ENODEV (in a forked child).
 * Thread: any. Blocks: with ctx NULL, reads files. Driver calls: none.
 */
GLAKE_EXPORT int glake_conf_value_get(
	struct glake *ctx, size_t index, struct glake_conf_value *ret_value);

/* A finding of glake_conf_check or glake_conf_reload. */
struct glake_conf_finding {
	size_t sz;	  /* set by the library */
	int error;	  /* 0: a warning */
	int line;	  /* 0: not of one line */
	const char *file; /* file or variable; valid during the call */
	const char *key;  /* "pool.budget" or "" */
	const char *text; /* what is wrong and what would be right */
};

typedef void (*glake_conf_finding_fn)(
	const struct glake_conf_finding *finding, void *arg);

/*
 * Reads the configuration that `options` describe as glake_open would, without opening
 * anything, and reports each warning and error to fn (may be NULL).
 *
 * Returns 0 if glake_open would accept all of it, or -EINVAL (it would not), -E2BIG (options),
 * -ENOENT (options->conf_file names a file that does not exist), -EACCES (that file is refused for
 * its kind, owner or mode, or the installed one is, without which glake_open goes on after a
 * warning).
 * Thread: any. Blocks: reads files. Driver calls: none.
 */
GLAKE_EXPORT int glake_conf_check(
	const struct glake_options *options, glake_conf_finding_fn fn, void *arg);

/*
 * Sets a key of a context while it runs. Which keys may change then glake_conf_key says (live), and
 * glake.conf(5). What they ask for holds from the next request on that depends on it; what was
 * decided before stays: pool.budget moves nothing (glake_trim does), policy.target chooses no other
 * size of pages, and what tier.place had put on the host stays there. log.level is one for all
 * contexts of the process.
 *
 * key		"pool.budget"
 * text		as in the file: "40GiB"
 *
 * Returns 0; the value is then one that the program has set (GLAKE_CONF_OPTION). Or -ENOENT (there
 * is no such key), -EPERM (it is read when a context is opened, and stays), -EINVAL (a value that is
 * not right; NULL), -EOPNOTSUPP (tier.place: there is no memory of the host; share.quota: it was opened without one),
 * -ESTALE, -ENODEV (in a forked child). A refused call changes nothing, and its record says what would be right.
 * Thread: any. Blocks: for others that set keys. Driver calls: none.
 */
GLAKE_EXPORT int glake_conf_set(struct glake *ctx, const char *key, const char *text);

/*
 * Reads the file again that the context was opened with, and takes over the keys that may change
 * while it runs, where neither the environment nor the program has set them: a key that has gone
 * from the file is at its default again, and a GPU whose budget glake_budget_set has set (the method
 * budget of the socket too) keeps that. Of the others, those that would be different now are
 * reported to fn (may be NULL), as what is wrong in the file is. The environment is not read again.
 *
 * Returns 0, or an error and nothing is changed: -EINVAL (a line or a value that is not right),
 * -ENOENT (the file of the options is not there), -EACCES (it is refused for its kind, owner or
 * mode; the installed one too, without which glake_open goes on), -EOPNOTSUPP (as
 * above; keys before it in glake.conf(5) are changed), -ENOMEM, -ESTALE, -ENODEV.
 * Thread: any. Blocks: reads a file; for others that set keys. Driver calls: none.
 */
GLAKE_EXPORT int glake_conf_reload(
	struct glake *ctx, glake_conf_finding_fn fn, void *arg);

/*
 * Reads a size as the configuration and the tools take it: "24G", "24GB", "1.5 GiB"; see
 * glake.conf(5). Fractions of a byte are left out.
 *
 * Returns 0, or -EINVAL (NULL, no size), -ERANGE (2^64 bytes and more). After an error ret_bytes
 * is as it was.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_size_parse(const char *text, uint64_t *ret_bytes);

/*
 * Names the file that is read when options name none. Returns its path, as
 * "/etc/glake.conf", which is the library's and stays. Thread: any. Blocks: no. Driver
 * calls: none.
 */
GLAKE_EXPORT const char *glake_conf_path(void);

GLAKE_END_DECLS

#endif
