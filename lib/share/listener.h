/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SHARE_LISTENER_H
#define GLK_SHARE_LISTENER_H

/* Where a broker listens, inside this folder: see listener.c. */
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct glk_listener {
	int fd;
	char path[PATH_MAX]; /* "": it is another's */
	struct stat made;    /* there */
};

/* At a path, or NULL: in the directory of the user. 0, or -errno, with a sentence in `why` or "". */
int glk_listener_open(
	struct glk_listener *listener, const char *path, bool all_users, char *why);
bool glk_listener_is_own(const struct glk_listener *listener);

#endif
