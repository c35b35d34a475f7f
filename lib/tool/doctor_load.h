/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_DOCTOR_LOAD_H
#define GLK_TOOL_DOCTOR_LOAD_H

/*
 * glakectl doctor --load: the one place of glake that loads kernel modules. The steps stand apart so
 * that tests can give them other programs and another machine.
 */
#include "tool/doctor.h"

/* Loads names[0] and then names[1], which depends on it and is not tried without it, by `program`, which is modprobe.
 * `root` is "" but for tests. */
void doctor_load_names(const char *program, const char *root, const char *const *names,
	struct doctor_load *ret_loads);

#define DOCTOR_MINORS 255 /* of GPUs; the one after them is nvidiactl */

/* Nodes that are missing, or have another's number. */
struct doctor_missing {
	bool control, uvm, tools;
	bool gpu[DOCTOR_MINORS]; /* by its minor number */
};

/* Those of what is loaded: of each GPU that the driver has, below a root that is "" but for tests. */
void doctor_find_missing(const char *root, const struct glake_module *modules,
	const struct glake_uvm_tools *tools, struct doctor_missing *ret_missing);

/* Runs `program`, which is nvidia-modprobe, once for each node; one run makes both of nvidia_uvm. */
void doctor_make_nodes(const char *program, const struct doctor_missing *missing,
	struct doctor_made *ret_made);

/* After that: whether it helped. */
void doctor_look_again(const struct doctor_missing *missing, struct doctor_made *made);

#endif
