/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Throws PyTorch's own exceptions, which only code made with its headers can. The Python module
 * compiles this for the PyTorch that is installed and hands the function to the plug-in, see
 * torch_raise.c.
 */
#include <c10/util/Exception.h>

extern "C" __attribute__((visibility("default"))) void glake_torch_oom_raise(
	int out_of_memory, const char *text)
{
	TORCH_CHECK_WITH(OutOfMemoryError, !out_of_memory, text);
	TORCH_CHECK(false, text);
}
