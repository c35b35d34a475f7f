/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_DOCTOR_LOAD_H
#define GLK_TOOL_DOCTOR_LOAD_H

/*
 * glakectl doctor --load: the one place of glake that loads kernel modules. The steps stand apart so
 * that tests can give them another libkmod, another configuration and another program.
 */
#include "tool/doctor.h"

#include <libkmod.h>

/* clang-format off */
#define DOCTOR_KMOD(F)									\
	F(kmod_list_next) F(kmod_module_get_initstate) F(kmod_module_get_module)	\
	F(kmod_module_get_name) F(kmod_module_new_from_lookup)				\
	F(kmod_module_new_from_name) F(kmod_module_probe_insert_module)			\
	F(kmod_module_unref) F(kmod_module_unref_list) F(kmod_new) F(kmod_set_log_fn)	\
	F(kmod_unref)
/* clang-format on */

struct doctor_kmod {
#define MEMBER(name) __typeof__(name) *name;
	DOCTOR_KMOD(MEMBER)
#undef MEMBER
};

/* 0, or -ENOENT where libkmod is not installed. */
int doctor_kmod_find(struct doctor_kmod *ret_kmod);

/* Loads names[0] and then names[1], which depends on it and is not tried without it. */
void doctor_load_names(const struct doctor_kmod *kmod, struct kmod_ctx *ctx,
	const char *const *names, struct doctor_load *ret_loads);

/*
 * Loads one module with what it depends on, as modprobe -b does: names of modprobe.d(5), options and
 * install commands count, and a module that is blacklisted is left alone. Commands write to stderr.
 */
void doctor_load_module(const struct doctor_kmod *kmod, struct kmod_ctx *ctx,
	const char *name, struct doctor_load *ret_load);

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
