/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_CONTEXT_H
#define GLAKE_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

/*
 * A context owns the memory of all GPUs it can see. The type is opaque, and a value of it is
 * a handle, not an address: a handle of a closed context is recognised and answered -ESTALE.
 * A process may have up to GLAKE_CONTEXT_MAX contexts open; most need one.
 */
struct glake;

#define GLAKE_CONTEXT_MAX 64

/* Which driver a context runs on. */
enum glake_backend {
	GLAKE_BACKEND_AUTO = 0, /* CUDA where it works, else the software device */
	GLAKE_BACKEND_SOFT = 1, /* the software device */
	GLAKE_BACKEND_CUDA = 2, /* CUDA; glake_open fails where it does not work */
};

struct glake_options {
	size_t sz;	   /* sizeof(struct glake_options) */
	int backend;	   /* enum glake_backend; AUTO leaves it to the configuration */
	int no_conf_file;  /* not 0: do not read the configuration file */
	int no_fork_hooks; /* not 0: the host installs liburcu's fork hooks itself */
	/* not 0: the program says itself what it runs on, and the library does not warn where AUTO
	 * comes to the software device */
	int no_soft_warning;
	const char *conf_file; /* NULL: the installed one, see glake_conf_path */
	/* "section.key=value" strings ended by NULL; they win over file and environment.
	 * NULL for none. Copied. */
	const char *const *settings;
	/* The same for what the program would have where neither file nor environment says
	 * anything: "driver.backend=cuda" for one that is of no use without. */
	const char *const *defaults;
};

/*
 * Opens a context. NULL options stand for all zeroes: automatic choice of the driver, the
 * installed configuration file, the environment.
 *
 * Configuration is taken from options->defaults, then the file, then GLAKE_<SECTION>_<KEY> in the
 * environment, then options->settings and options->backend, later over earlier. See glake.conf(5).
 *
 * Where AUTO finds no CUDA that works, a warning says so once in a process, and why.
 *
 * Returns 0, or -EINVAL (options or configuration; glake_last_error names file, line and
 * key), -E2BIG (options from a newer header with unknown content), -ENODEV (CUDA asked for
 * and absent, too old, a stub or without a device: the record says which; in a forked child:
 * FORKED), -ENOENT or -EACCES (a configuration file that the options name and that is absent
 * or refused), -EOPNOTSUPP (tier.verify or tier.compress in a library that was built without what
 * that needs, or liblz4 is not there), -ENOMEM (no host memory for tables: NOMEM_HOST; a limit of the process that
 * is too low for the software device, as RLIMIT_FSIZE: LIMIT), -EMFILE (GLAKE_CONTEXT_MAX
 * reached, or the process can open no more files).
 *
 * A child that was forked while a context was open opens none, nor do its children. One forked
 * before or after that may, on CUDA only before the parent's first.
 *
 * Thread: any. Blocks: yes, initialises the driver. Driver calls: many.
 */
GLAKE_EXPORT int glake_open(const struct glake_options *options, struct glake **ret_ctx);

/*
 * Closes a context and gives all its memory back to the driver, also that of blocks not
 * freed yet; their number goes to ret_leaked (may be NULL). The caller has made sure that no
 * work on the GPU still uses them and no other thread is inside a call on this context.
 *
 * Returns 0, or -ESTALE (no open context), -EIO (the driver refused to take memory back; the
 * context is closed all the same), -EBUSY (BUSY: by a function of the program that the library
 * calls, then nothing was done; on the software device: streams of glake_stream_new were never
 * ended; the context is closed all the same). NULL is accepted
 * and does nothing. In a forked child 0, and nothing happens to the parent's memory;
 * ret_leaked is 0.
 * Thread: any. Blocks: yes, waits for the streams it knows. Driver calls: many.
 */
GLAKE_EXPORT int glake_close(struct glake *ctx, size_t *ret_leaked);

/*
 * Counts the GPUs of a context, which are numbered from 0. Returns their number, or -ESTALE,
 * -ENODEV (in a forked child). Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_device_count(struct glake *ctx);

/*
 * Says what a context runs on. Returns GLAKE_BACKEND_SOFT or GLAKE_BACKEND_CUDA, or -ESTALE,
 * -ENODEV (in a forked child). Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_backend(struct glake *ctx);

/*
 * Say which version of the library runs. Return GLAKE_VERSION_OF(major, minor, micro) of
 * version.h, and its text, as "1.2.3", which is the library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT uint32_t glake_version(void);
GLAKE_EXPORT const char *glake_version_string(void);

/* Message levels, for the log hook and the key log.level. */
enum glake_log_level {
	GLAKE_LOG_NONE = 0,
	GLAKE_LOG_ERROR = 1,
	GLAKE_LOG_WARNING = 2,
	GLAKE_LOG_INFO = 3,
	GLAKE_LOG_DEBUG = 4,
};

typedef void (*glake_log_fn)(int level, const char *line, void *arg);

/*
 * Sends the library's messages to a function instead of stderr, for the whole process; NULL
 * restores stderr. The function may be called from any thread, also from several at once,
 * never under a lock of the library, and must not call the library. Without a hook errors and
 * warnings go to stderr, or what log.level says; of those of one kind ten in ten seconds, and how
 * many were left out. A run in which all is well prints nothing. The hook before may still be in
 * a call on another thread when this one returns.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT void glake_log_hook(glake_log_fn fn, void *arg, int level);

GLAKE_END_DECLS

#endif
