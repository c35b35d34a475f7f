/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_REFUSAL_H
#define GLAKE_REFUSAL_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;

enum glake_refusal_form {
	GLAKE_REFUSAL_WHOLE = 0, /* all of it, in lines */
	GLAKE_REFUSAL_ADVICE =
		1, /* what would have helped, in one line without its end */
};

/*
 * Tells why the last request of a GPU was answered -ENOMEM, for people: what was asked for; what the
 * GPU holds, what of it nobody uses, and why that did not serve; where the request stopped; what
 * would have helped, as keys with values and functions to call; and who has the memory, the ten
 * sizes and the ten streams that have most of it. It may be of any thread. The text is ended by a
 * zero and has less than 8 KiB; its wording may change.
 *
 * Figures are of the moment of the refusal. For who has the memory, and in what pieces, the
 * addresses are walked, as by glake_map: at most once a second, and no more than 100000 runs
 * of them, some ten milliseconds. A program that finds out what there is by asking for too much
 * so pays for a walk a second; the text says how old the walk is, and how far it came.
 *
 * With log.level=info a report that has a new walk is logged too.
 *
 * form		enum glake_refusal_form
 * buffer	`size` bytes; NULL: the length alone is asked for
 * ret_length	of the text, without the zero; may be NULL with a buffer
 *
 * Returns 0, or -ENOENT (none was refused so far), -EINVAL (no such device or form, NULL), -ENOSPC
 * (longer than `size`; the buffer then holds nothing of meaning), -ESTALE, -ENODEV (in a forked
 * child).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_refusal_text(struct glake *ctx, int device, int form, char *buffer,
	size_t size, size_t *ret_length);

GLAKE_END_DECLS

#endif
