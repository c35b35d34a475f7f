/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_SIZED_H
#define GLK_BASE_SIZED_H

/*
 * Structures that begin with `size_t sz`, taken from and given to programs that may have been
 * compiled with an older or a newer header. `known` is the size this library was built with.
 */
#include <stddef.h>

/* Structures that say they are larger are not looked at; none of ours comes near. */
#define GLK_SIZED_MAX 4096

/*
 * Copies in: what the caller's structure lacks is zero. `out` has `known` bytes, of which its
 * sz is set to `known`. 0; -EINVAL for NULL or a sz that cannot be; -E2BIG when bytes beyond
 * `known` are not zero. With a record; `out` is written only on success.
 */
int glk_sized_in(const void *in, void *out, size_t known);

/*
 * Copies out as much as the caller has room for; its sz stays, and bytes beyond `known` are zero
 * before and after. 0, or the errors of glk_sized_in, with a record.
 */
int glk_sized_out(void *user, const void *structure, size_t known);

#endif
