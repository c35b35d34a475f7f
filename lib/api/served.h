/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_SERVED_H
#define GLK_API_SERVED_H

/*
 * The contexts that answer at the socket of this process: those whose configuration says
 * rpc.socket. The first opens it and the last closes it. Inside this folder.
 */
#include "watch/rpc.h"

struct glake;
struct glk_context;

/* A context has been opened. Where there can be no socket a warning says why. */
void glk_served_begin(struct glake *handle, const struct glk_context *context);
/* It is about to be closed: waits for the answer that is about it. */
void glk_served_end(struct glake *handle);
void glk_served_forked(void);

/*
 * For methods: all contexts there are, which stay open until it returns, so it should not take
 * long; or, in place of what it held, the one after `last`, by their numbers, NULL behind the
 * last, so that only who closes that one waits.
 */
struct glake *const *glk_served(size_t *ret_count);
struct glake *glk_served_next(const struct glake *last);

/*
 * rpc_board.c: the board of figures, of the thread that answers. What is due of it is done, and how
 * long it has time then, ms, or -1; somebody who may watch it is left; it is ended when there is no
 * such thread any more, and forgotten in a child.
 */
int glk_served_board_due(void);
void glk_served_board_left(uint64_t asker);
void glk_served_board_end(void);
void glk_served_board_forked(void);

/* rpc.c */
extern const struct glk_rpc_method glk_rpc_methods[];

/* Adds what tells a process from others. */
void glk_method_add_process(struct glk_json *json);
/* The last error of this thread, of the library, is the answer. */
void glk_method_refuse(struct glk_rpc_call *call, int err);

/*
 * Calls fn for each GPU that the parameters choose by their numbers, context and gpu: one that was
 * named in any case, else all that are in use. A context is held while it is its turn. An error of
 * fn ends it, and is the answer.
 */
typedef int (*glk_method_gpu_fn)(
	struct glk_rpc_call *call, struct glake *handle, int gpu, void *arg);
void glk_method_each_gpu(struct glk_rpc_call *call, glk_method_gpu_fn fn, void *arg);
/* Begins an object of the answer with the numbers of a GPU. */
void glk_method_begin_gpu(struct glk_json *json, struct glake *handle, int gpu);

/* rpc_conf.c, rpc_board.c, rpc_steer.c: methods */
void glk_method_board(struct glk_rpc_call *call);
void glk_method_config_get(struct glk_rpc_call *call);
void glk_method_config_set(struct glk_rpc_call *call);
void glk_method_config_reload(struct glk_rpc_call *call);
void glk_method_spill(struct glk_rpc_call *call);
void glk_method_fetch(struct glk_rpc_call *call);
void glk_method_suspend(struct glk_rpc_call *call);
void glk_method_resume(struct glk_rpc_call *call);
void glk_method_trace_start(struct glk_rpc_call *call);
void glk_method_trace_stop(struct glk_rpc_call *call);

#endif
