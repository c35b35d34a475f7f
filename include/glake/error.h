/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_ERROR_H
#define GLAKE_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

/*
 * What went wrong, in more detail than an errno value has room for. No class is folded into
 * another: running out of descriptors is never reported as running out of memory.
 */
enum glake_error_class {
	GLAKE_ERROR_NONE = 0,
	GLAKE_ERROR_NOMEM_DEVICE =
		1,		    /* -ENOMEM: no GPU memory on any rung of the ladder */
	GLAKE_ERROR_NOMEM_HOST = 2, /* -ENOMEM: no host memory */
	GLAKE_ERROR_ADDRESS =
		3, /* -ENOMEM: address space of a span or the driver used up */
	GLAKE_ERROR_LIMIT = 4,	      /* a maximum of ours or of the system was reached */
	GLAKE_ERROR_DEVICE_LOST = 5,  /* -ENODEV: sticky driver error, the GPU has gone */
	GLAKE_ERROR_PERM = 6,	      /* -EPERM, -EACCES */
	GLAKE_ERROR_BUSY = 7,	      /* -EBUSY: in use */
	GLAKE_ERROR_AGAIN = 8,	      /* -EAGAIN: later */
	GLAKE_ERROR_CAPTURE = 9,      /* -EBUSY: not while this stream captures a graph */
	GLAKE_ERROR_INVAL = 10,	      /* -EINVAL: the caller's arguments */
	GLAKE_ERROR_NOT_MINE = 11,    /* -EINVAL: not a pointer of this context */
	GLAKE_ERROR_DOUBLE_FREE = 12, /* -EINVAL: freed before */
	GLAKE_ERROR_STALE = 13,	      /* -ESTALE: a handle of something that was closed */
	GLAKE_ERROR_FORKED = 14,      /* -ENODEV: in a forked child */
	GLAKE_ERROR_SHUTDOWN = 15, /* -ENODEV: after exit began or the driver has gone */
	GLAKE_ERROR_UNSUPPORTED = 16, /* -EOPNOTSUPP: not by this driver or this GPU */
	GLAKE_ERROR_CORRUPT = 17,     /* -EIO: our own books are inconsistent */
	GLAKE_ERROR_DRIVER = 18,      /* -EIO: a driver fault that does not stick */
	GLAKE_ERROR_CONFIG = 19,      /* -EINVAL: a configuration value */
	GLAKE_ERROR_GUARD =
		20, /* -EIO: the program wrote where it should not, see guard.h */
};

#define GLAKE_ERROR_TEXT_MAX 256

/* The record of the last failed call of one thread. */
struct glake_error {
	size_t sz;	 /* set by the caller: sizeof(struct glake_error) */
	int err;	 /* negative errno value, as returned */
	int error_class; /* enum glake_error_class */
	int native;	 /* CUresult or errno of the call below; 0 if none */
	char call[32];	 /* that call, as "cuMemCreate"; "" if none */
	char text[GLAKE_ERROR_TEXT_MAX]; /* one sentence */
};

/*
 * Gives the record of the last call of this thread that failed. The record stays until the
 * next failure of this thread; a success does not clear it. With no failure so far, err and
 * error_class are 0. A thread for whose record there is no host memory is told that: -ENOMEM,
 * NOMEM_HOST.
 *
 * Returns 0, or -EINVAL (NULL, sz not set).
 * Thread: any, reads only its own record. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_last_error(struct glake_error *ret_error);

/*
 * Names an error class. Returns its name, as "NOMEM_DEVICE", or "?" for an unknown one,
 * never NULL. The text is the library's and stays.
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT const char *glake_error_class_name(int error_class);

GLAKE_END_DECLS

#endif
