/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_RPC_MAP_H
#define GLK_API_RPC_MAP_H

/* Methods of the socket that tell where memory is, and why there was none: a row each in rpc.c. Inside this folder. */
struct glk_rpc_call;

void glk_rpc_map(struct glk_rpc_call *call);
void glk_rpc_origins(struct glk_rpc_call *call);
void glk_rpc_stack(struct glk_rpc_call *call);
void glk_rpc_refusals(struct glk_rpc_call *call);

#endif
