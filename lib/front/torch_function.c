/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The layout of std::function is no promise of any standard. What PyTorch hands over is looked
 * at before it is trusted: its two functions must lie in code of a loaded object, and asked
 * where the functor is, the manager must answer as that of libstdc++ does. The one of libc++ has
 * other words at these places and is refused. The rest is for the caller to do without it.
 */
#include "front/torch_function.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* What libstdc++ asks a manager for. */
enum {
	OPERATION_FUNCTOR = 1,
	OPERATION_COPY = 2,
	OPERATION_END = 3,
};

struct question {
	uintptr_t addr;
	bool is_code;
};

static int look(struct dl_phdr_info *object, size_t size, void *arg)
{
	struct question *question = arg;

	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];

		if (part->p_type == PT_LOAD && part->p_flags & PF_X &&
			question->addr - (object->dlpi_addr + part->p_vaddr) <
				part->p_memsz)
			question->is_code = true;
	}
	return question->is_code;
}

static bool is_code(uintptr_t addr)
{
	struct question question = {.addr = addr};

	dl_iterate_phdr(look, &question);
	return question.is_code;
}

bool glk_torch_function_check(const struct glk_torch_function *function)
{
	void *answer[2] = {NULL, NULL};

	if (!function || (uintptr_t)function % sizeof(void *) ||
		!is_code((uintptr_t)function->manage) ||
		!is_code((uintptr_t)function->invoke))
		return false;
	function->manage(answer, function->functor, OPERATION_FUNCTOR);
	/* small ones lie in the function itself, others where it points */
	return answer[0] == function->functor ||
		(answer[0] && answer[0] == function->functor[0]);
}

void glk_torch_function_copy(
	const struct glk_torch_function *function, struct glk_torch_function *ret_copy)
{
	struct glk_torch_function copy = {
		.manage = function->manage, .invoke = function->invoke};

	function->manage(copy.functor, function->functor, OPERATION_COPY);
	*ret_copy = copy;
}

void glk_torch_function_drop(struct glk_torch_function *copy)
{
	if (copy->manage)
		copy->manage(copy->functor, copy->functor, OPERATION_END);
	*copy = (struct glk_torch_function){0};
}
