/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of what is kept of refused requests: see glake/refusal.h. */
#include "api/context.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

int glake_refusal_text(struct glake *ctx, int device, int form, char *buffer, size_t size,
	size_t *ret_length)
{
	char text[GLK_REFUSAL_TEXT];
	struct glk_context *context;
	struct glk_cache *cache;
	size_t length;
	int err;

	if (form != GLAKE_REFUSAL_WHOLE && form != GLAKE_REFUSAL_ADVICE)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no form %d", form);
	if (!buffer && !ret_length)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the text");
	err = glk_context_device(ctx, device, &context, &cache);
	if (err)
		return err;
	err = glk_refusal_text(cache, form, text, &length);
	if (err)
		return glk_error(err, GLAKE_ERROR_INVAL,
			"GPU %d has refused no request for want of memory", device);
	if (buffer && length >= size)
		return glk_error(-ENOSPC, GLAKE_ERROR_INVAL,
			"%zu bytes of text are more than the buffer has room for",
			length);
	if (buffer)
		memcpy(buffer, text, length + 1);
	if (ret_length)
		*ret_length = length;
	return 0;
}
