/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_CONF_H
#define GLK_BASE_CONF_H

/*
 * The configuration of a context: a plain structure of typed values, filled once when the
 * context is opened, from defaults, file, environment and options, later over earlier. It is
 * made from the table in conf_keys.h. May be used by every room.
 */
#include <glake/conf.h>
#include <glake/context.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define GLK_KIB	   ((size_t)1 << 10)
#define GLK_MIB	   ((size_t)1 << 20)
#define GLK_GIB	   ((size_t)1 << 30)
#define GLK_TIB	   ((size_t)1 << 40)
#define GLK_SECOND INT64_C(1000000000)

#define GLK_CONF_TEXT_MAX 128

#define GLK_CONF_TYPE_BOOL   bool
#define GLK_CONF_TYPE_INT    int64_t
#define GLK_CONF_TYPE_SIZE   size_t
#define GLK_CONF_TYPE_TIME   int64_t
#define GLK_CONF_TYPE_CHOICE int
#define GLK_CONF_TYPE_RATIO  double
#define GLK_CONF_SUFFIX_BOOL
#define GLK_CONF_SUFFIX_INT
#define GLK_CONF_SUFFIX_SIZE
#define GLK_CONF_SUFFIX_TIME
#define GLK_CONF_SUFFIX_CHOICE
#define GLK_CONF_SUFFIX_RATIO
#define GLK_CONF_TYPE_SHARE size_t
#define GLK_CONF_SUFFIX_SHARE
#define GLK_CONF_TYPE_TEXT   char
#define GLK_CONF_SUFFIX_TEXT [GLK_CONF_TEXT_MAX]

/* A SHARE with this bit is millionths of a whole, any other is bytes. */
#define GLK_CONF_PART ((size_t)1 << 63)

enum glk_conf_id {
#define GLK_KEY(section, key, type, field, ...) GLK_CONF_##field,
#include "base/conf_keys.h"
#undef GLK_KEY
	GLK_CONF_COUNT,
};

struct glk_conf {
#define GLK_KEY(section, key, type, field, ...)                                          \
	GLK_CONF_TYPE_##type field GLK_CONF_SUFFIX_##type;
#include "base/conf_keys.h"
#undef GLK_KEY
	struct {
		int origin; /* enum glake_conf_origin */
		int line;
		char source[GLK_CONF_TEXT_MAX];
	} from[GLK_CONF_COUNT];
	bool no_soft_warning; /* of the options, not a key */
};

/* Indices of the choices that code asks for. */
enum { GLK_SOFT_STREAMS_WORKER, GLK_SOFT_STREAMS_STEPPED, GLK_SOFT_STREAMS_RANDOM };
enum { GLK_STATS_HOLD_CLOCK_WALL, GLK_STATS_HOLD_CLOCK_CPU };
enum { GLK_POOL_EXPORT_AUTO, GLK_POOL_EXPORT_FD, GLK_POOL_EXPORT_NO };
enum { GLK_TIER_PROBE_AUTO, GLK_TIER_PROBE_ALWAYS, GLK_TIER_PROBE_NEVER };
enum { GLK_POOL_RDMA_AUTO, GLK_POOL_RDMA_YES, GLK_POOL_RDMA_NO };
enum { GLK_POOL_PEERS_NO, GLK_POOL_PEERS_ALL };
enum { GLK_POLICY_ENDS_BOTH, GLK_POLICY_ENDS_LOW, GLK_POLICY_ENDS_HIGH };
enum { GLK_POOL_MANAGED_NO, GLK_POOL_MANAGED_YES, GLK_POOL_MANAGED_OVER };
enum { GLK_TIER_COMPRESS_NO, GLK_TIER_COMPRESS_LZ4 };
enum { GLK_TIER_PLACE_GPU, GLK_TIER_PLACE_HOST, GLK_TIER_PLACE_PEER };
enum {
	GLK_GUARD_OFF,
	GLK_GUARD_SAMPLE,
	GLK_GUARD_CANARY,
	GLK_GUARD_POISON,
	GLK_GUARD_FULL
};
enum { GLK_TIER_AWAY_HOST, GLK_TIER_AWAY_PEER };

/* All keys at their defaults. */
void glk_conf_init(struct glk_conf *conf);

/*
 * Fills `ret_conf` as glake_open documents; options NULL stand for all zeroes. A backend that
 * the options name becomes driver_backend, over every other origin.
 *
 * Each finding goes to fn. With fn NULL, the way of glake_open, findings go to the log, at
 * the level that log.level asks for. The first error goes to the thread's record.
 *
 * 0; -EINVAL (options, a bad value, a line that is none); -E2BIG (options); -ENOENT and
 * -EACCES (a file that the options name); -ENOMEM or another -errno when reading fails.
 */
int glk_conf_read(const struct glake_options *options, glake_conf_finding_fn fn,
	void *arg, struct glk_conf *ret_conf);

/* A text that has a form, which another room knows: 0, or -EINVAL and a record that says what is
 * wrong and what would be right. */
struct glk_conf_form {
	enum glk_conf_id id;
	int (*check)(const char *text);
};

/* The same with all that may be asked of a reading. */
struct glk_conf_reading {
	const struct glake_options *options;
	glake_conf_finding_fn fn;
	void *arg;
	const struct glk_conf_form
		*forms; /* which end with a check of NULL; NULL: none */
	/* For a person who wants to know: an installed file that is refused is an error too, and
	 * not a warning behind which the program goes on. */
	bool is_check;
	/* What held before the file was read: the defaults of the program. NULL: nobody asks. */
	struct glk_conf *ret_defaults;
};

int glk_conf_read_as(const struct glk_conf_reading *reading, struct glk_conf *ret_conf);

/* The file read when options name none. For tests: another one; NULL restores it. */
const char *glk_conf_path(void);
void glk_conf_path_set(const char *path);

/* Which clock tells how long the lock of a GPU is held: for glk_lock_time(). */
static inline clockid_t glk_conf_hold_clock(const struct glk_conf *conf)
{
	return conf->stats_hold_clock == GLK_STATS_HOLD_CLOCK_CPU
		? CLOCK_THREAD_CPUTIME_ID
		: CLOCK_MONOTONIC;
}

/*
 * Reads the file again, over the defaults that held when the context was opened, and nothing else.
 * A file that is refused is an error, as are bad values. 0 or -errno and a record, as glk_conf_read.
 */
int glk_conf_read_again(const struct glk_conf_reading *reading,
	const struct glk_conf *defaults, struct glk_conf *ret_conf);

/* Takes over a live key, while others may read its field by glk_peek, and a lock of the caller keeps
 * all else apart. */
void glk_conf_take(
	struct glk_conf *conf, enum glk_conf_id id, const struct glk_conf *from);

/* policy.target, which changes behind a running program's back, where so much of all memory is held:
 * 0 to 1, which auto goes by. */
double glk_conf_target(const struct glk_conf *conf, double held);
/* Bytes of a SHARE of a whole; SIZE_MAX for 0. */
size_t glk_conf_share(size_t share, size_t whole);
/* Whether it is auto. */
bool glk_conf_target_is_auto(const struct glk_conf *conf);

/* Sets one key from "section.key=value", with origin OPTION. 0 or -EINVAL and a record. */
int glk_conf_set(struct glk_conf *conf, const char *setting);

/* The value as a person writes it, into a buffer. */
void glk_conf_format(
	const struct glk_conf *conf, enum glk_conf_id id, char *buffer, size_t size);

#endif
