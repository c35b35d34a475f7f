/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the driver says of an address. It knows the pages of a block and not the block, so of a
 * range it would tell the page, of a context that there is none, of handles for other
 * processes that it has none, and of one block after the other on a page the same number; MPI
 * libraries and their kin choose their way by these answers: one that takes the page for the block
 * touches only a part of it, and one that takes a new block for an old one uses memory that others
 * have. All else is true of our memory as the driver says it.
 */
#include "front/preload/preload.h"

#include <string.h>

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

static bool is_of_block(glk_cu_attribute attribute)
{
	return attribute == GLK_CU_POINTER_CONTEXT ||
		attribute == GLK_CU_POINTER_BUFFER_ID ||
		attribute == GLK_CU_POINTER_LEGACY_IPC ||
		attribute == GLK_CU_POINTER_RANGE_START ||
		attribute == GLK_CU_POINTER_RANGE_SIZE;
}

/* What there is to say of an address. */
struct facts {
	bool ours, exports;
	struct CUctx_st *context; /* NULL: as the driver says */
	glk_cu_address base;
	size_t size;
	struct glk_preload_seat *seat; /* NULL: not a block of this process */
};

/* Numbers of blocks, of which the driver's own are far away. */
#define NUMBERS (UINT64_C(1) << 48)

static struct facts look_up(glk_cu_address ptr)
{
	struct glk_preload_seat *seat;
	struct glake_block block;
	struct facts facts = {0};

	if (glk_preload_find(ptr, &seat, &block)) {
		facts.ours = glk_preload_ipc_range(ptr, &facts.base, &facts.size);
		return facts;
	}
	return (struct facts){.ours = true,
		.exports = block.can & GLAKE_CAN_EXPORT,
		.context = seat->context,
		.base = (glk_cu_address)(uintptr_t)block.base,
		.size = block.size,
		.seat = seat};
}

/* Over the driver's answer. */
static void amend(const struct facts *facts, glk_cu_attribute attribute, void *data)
{
	uint64_t number;

	switch (attribute) {
	case GLK_CU_POINTER_BUFFER_ID:
		number = facts->seat ? glk_preload_ipc_number(facts->seat,
					       (void *)(uintptr_t)facts->base)
				     : 0;
		number += number ? NUMBERS : 0;
		if (number)
			memcpy(data, &number, sizeof(number));
		break;
	case GLK_CU_POINTER_CONTEXT:
		if (facts->context)
			memcpy(data, &facts->context, sizeof(facts->context));
		break;
	case GLK_CU_POINTER_LEGACY_IPC:
		/* an int or a bool, of which the driver has written all bytes */
		*(unsigned char *)data = facts->exports;
		break;
	case GLK_CU_POINTER_RANGE_START:
		memcpy(data, &facts->base, sizeof(facts->base));
		break;
	case GLK_CU_POINTER_RANGE_SIZE:
		memcpy(data, &facts->size, sizeof(facts->size));
		break;
	}
}

glk_cu_result cuPointerGetAttribute(
	void *data, glk_cu_attribute attribute, glk_cu_address ptr)
{
	bool serves = SERVES(cuPointerGetAttribute) && is_of_block(attribute);
	glk_cu_result result =
		GLK_PRELOAD_PASS(cuPointerGetAttribute, data, attribute, ptr);
	struct facts facts;

	if (result || !serves)
		return result;
	facts = look_up(ptr);
	if (facts.ours)
		amend(&facts, attribute, data);
	return GLK_CU_SUCCESS;
}

glk_cu_result cuPointerGetAttributes(
	unsigned int count, glk_cu_attribute *attributes, void **data, glk_cu_address ptr)
{
	bool serves = SERVES(cuPointerGetAttributes);
	glk_cu_result result =
		GLK_PRELOAD_PASS(cuPointerGetAttributes, count, attributes, data, ptr);
	struct facts facts;
	bool looked = false;

	for (unsigned int i = 0; serves && !result && i < count; i++) {
		if (!is_of_block(attributes[i]))
			continue;
		if (!looked)
			facts = look_up(ptr);
		looked = true;
		if (facts.ours)
			amend(&facts, attributes[i], data[i]);
	}
	return result;
}
