/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FLOW_FRONT_TORCH_H
#define GLK_FLOW_FRONT_TORCH_H

/*
 * PyTorch's plug-in as PyTorch sees it: a file that is loaded, and functions by their names. In
 * C++ the types are those of PyTorch.
 */
#include "context.h"

#include <dlfcn.h>

static void *plug;

/* Sets a function pointer to what the plug-in calls by that name. */
#define find(name)                                                                       \
	do {                                                                             \
		*(void **)&name = dlsym(plug, "glake_torch_" #name);                     \
		if (!name)                                                               \
			tap_bail("glake_torch_" #name " is missing");                    \
	} while (0)

static inline void load(int argc, char **argv)
{
	setenv("GLAKE_DRIVER_BACKEND", "soft", 1);
	setenv("GLAKE_POOL_BUDGET", "256MiB", 1);
	setenv("GLAKE_SOFT_GPUS", "2", 1);
	plug = argc >= 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!plug)
		tap_bail("the plug-in cannot be loaded");
}

#endif
