/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_UVM_H
#define GLK_API_UVM_H

/*
 * Counters and events of managed memory, of which the process has one set at a time. Where none is
 * open these cost a load. Inside this folder, but for the operations that tests replace.
 */
#include <glake/uvm.h>

#include <stdbool.h>

struct glk_context;
struct glk_uvm_ops;

/* As glake_uvm_open, for a module of this generation behind these operations. */
int glk_managed_open(struct glk_context *context, const struct glake_uvm_options *options,
	const struct glk_uvm_ops *ops, char generation, int major, int minor);

/* When the context closes, and around its suspensions. */
void glk_managed_end(const struct glk_context *context);
void glk_managed_pause(const struct glk_context *context);
void glk_managed_continue(const struct glk_context *context);

/* In a forked child. */
void glk_managed_forked(void);

/* Whether it has them open; then what they are. */
bool glk_managed_figures(
	const struct glk_context *context, struct glake_uvm_figures *ret_figures);

#endif
