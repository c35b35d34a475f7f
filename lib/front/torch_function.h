/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_TORCH_FUNCTION_H
#define GLK_FRONT_TORCH_FUNCTION_H

/*
 * std::function<bool(cudaStream_t)> of libstdc++, as C sees it. In C++'s ABI an argument of that
 * type is handed over by address; the caller ends it.
 */
#include <stdbool.h>

struct CUstream_st;

struct glk_torch_function {
	void *functor[2];
	bool (*manage)(void *dst, const void *src, int operation); /* NULL: empty */
	bool (*invoke)(const void *functor, struct CUstream_st **stream);
};

/* Whether this is one: code where code must be, and answers as libstdc++ gives them. */
bool glk_torch_function_check(const struct glk_torch_function *function);
/* A copy of one that was checked, to be dropped. */
void glk_torch_function_copy(
	const struct glk_torch_function *function, struct glk_torch_function *ret_copy);
void glk_torch_function_drop(struct glk_torch_function *copy);

/* Calls it. May throw: the caller must be ready to be unwound. */
static inline bool glk_torch_function_call(
	const struct glk_torch_function *function, struct CUstream_st *stream)
{
	return function->invoke(function->functor, &stream);
}

#endif
