/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_SERVED_H
#define GLK_API_SERVED_H

/*
 * The contexts that answer at the socket of this process: those whose configuration says
 * rpc.socket. Inside this folder.
 */
#include "watch/rpc.h"

struct glake;
struct glk_context;

/*
 * For methods: all contexts there are, which stay open until it returns, so it should not take
 * long; or, in place of what it held, the one after `last`, by their numbers, NULL behind the
 * last, so that only who closes that one waits.
 */
struct glake *const *glk_served(size_t *ret_count);
struct glake *glk_served_next(const struct glake *last);
/* Of all there are, the one of a number; 0: the first. NULL: there is none. */
struct glake *glk_served_find(uint64_t number);

/* Around each answer: a thread gives one at a time. */
void glk_served_answer(void);
void glk_served_answered(void);

/* One that has been opened; one that is about to be closed: waits for the answer that is about it.
 * False: there was none at all. Whether there is none, nor one that is closed now. */
void glk_served_add(struct glake *handle);
bool glk_served_remove(const struct glake *handle);
bool glk_served_is_none(void);
void glk_served_forked(void);

/* Adds what tells a process from others. */
void glk_served_add_process(struct glk_json *json);
/* The last error of this thread, of the library, is the answer. */
void glk_served_refuse(struct glk_rpc_call *call, int err);

/* rpc.c: the first context opens the socket and the last closes it. Where there can be no socket a
 * warning says why. */
void glk_socket_begin(struct glake *handle, const struct glk_context *context);
void glk_socket_end(struct glake *handle);
void glk_socket_forked(void);

/* Methods that stand with what they tell. */
void glk_method_check(struct glk_rpc_call *call);
void glk_method_map(struct glk_rpc_call *call);
void glk_method_origins(struct glk_rpc_call *call);
void glk_method_stack(struct glk_rpc_call *call);
void glk_method_trace_start(struct glk_rpc_call *call);
void glk_method_trace_stop(struct glk_rpc_call *call);
void glk_method_whose(struct glk_rpc_call *call);

#endif
