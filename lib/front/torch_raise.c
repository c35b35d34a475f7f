/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How an allocation says that it failed. PyTorch takes whatever address it is given: NULL
 * becomes a tensor at address 0 and a fault much later. An exception of C++ is the only answer
 * it understands, and it may pass through these frames, which are compiled for that.
 *
 * Three ways, the first that there is:
 *
 * - a function that was handed in, made with PyTorch's headers (torch_allocator.cc): it throws
 *   c10::OutOfMemoryError, which Python sees as torch.OutOfMemoryError;
 * - the function of libc10 that throws c10::Error for a failed check, found by its name: Python
 *   sees a RuntimeError. Its text begins as PyTorch's own, which is what programs look for;
 * - none: the text goes to stderr, once, and NULL to PyTorch.
 */
#include "front/torch.h"

#include "base/atomic.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* c10::detail::torchCheckFail(const char *, const char *, uint32_t, const char *) */
#define CHECK_FAIL "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"

typedef void (*check_fail_fn)(
	const char *function, const char *file, uint32_t line, const char *text);

static glk_atomic(glk_torch_raise_fn) handed_in;
static glk_atomic(int) said;

void glake_torch_raise_with(glk_torch_raise_fn fn)
{
	glk_store_release(&handed_in, fn); /* pairs with: the acquires below */
}

/* It is not in the global scope of a Python program, so it is asked for by its name. */
void *glk_torch_c10(const char *name)
{
	void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD), *fn;

	if (!c10)
		return NULL;
	fn = dlsym(c10, name);
	dlclose(c10);
	return fn;
}

static check_fail_fn find_check_fail(void)
{
	check_fail_fn fn;

	*(void **)&fn = glk_torch_c10(CHECK_FAIL);
	return fn;
}

int glake_torch_raises(void)
{
	/* pairs with: the release in glake_torch_raise_with */
	if (glk_load_acquire(&handed_in))
		return 2;
	return find_check_fail() ? 1 : 0;
}

static void say(const char *text)
{
	char line[1280];
	int length;

	if (glk_xchg_acq_rel(&said, 1))
		return;
	length = snprintf(line, sizeof(line), "glake[%d] error: %s\n", getpid(), text);
	if (length >= (int)sizeof(line)) {
		length = sizeof(line) - 1;
		line[length - 1] = '\n';
	}
	if (write(STDERR_FILENO, line, (size_t)length) < 0)
		return; /* nowhere left to say so */
}

void glk_torch_raise(bool out_of_memory, const char *text)
{
	/* pairs with: the release in glake_torch_raise_with */
	glk_torch_raise_fn fn = glk_load_acquire(&handed_in);
	check_fail_fn check_fail;

	if (fn) {
		fn(out_of_memory, text);
		return;
	}
	check_fail = find_check_fail();
	if (check_fail)
		check_fail("glake", "glake", 0, text);
	say(text);
}
