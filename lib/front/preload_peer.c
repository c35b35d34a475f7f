/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * GPUs that reach each other's memory. The driver gives the right for all memory of a context,
 * now and later; the library gives it for what it holds. It may come before the library holds
 * any, so it is remembered here. Where the library cannot give it the GPU is left to the driver.
 */
#include "front/preload.h"

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

/* [g][p]: GPU p may use the memory of GPU g. */
static glk_atomic(bool) may_use[GLK_PRELOAD_GPUS_MAX][GLK_PRELOAD_GPUS_MAX];

static void tell(struct glk_preload_seat *seat, int peer, bool on)
{
	struct glake_error error = {.sz = sizeof(error)};
	int err;

	if (!glk_preload_in(seat))
		return;
	err = glk_library.peer_access(seat->glake, seat->device, peer, on);
	glk_preload_out(seat);
	if (!err || !on)
		return;
	glk_library.last_error(&error);
	glk_preload_gpu_share(seat->device, error.text);
}

void glk_preload_peers_adopt(struct glk_preload_seat *seat)
{
	for (int peer = 0; peer < GLK_PRELOAD_GPUS_MAX; peer++)
		if (glk_load_seq_cst(&may_use[seat->device][peer]))
			tell(seat, peer, true);
}

/* The current GPU may use the memory of another one's context, or no more. */
static void note(struct CUctx_st *peer, bool on)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct glk_preload_seat *seat;
	int user = -1, device;

	if (!next->complete || next->cuCtxGetDevice(&user))
		return;
	device = glk_preload_gpu_of(peer);
	if (device < 0 || user < 0 || user >= GLK_PRELOAD_GPUS_MAX || device == user)
		return;
	/* before the seat is looked for: whoever makes one looks here behind that */
	glk_xchg_seq_cst(&may_use[device][user], on);
	seat = glk_preload_seat_at(device);
	if (seat)
		tell(seat, user, on);
}

glk_cu_result cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned int flags)
{
	bool serves = SERVES(cuCtxEnablePeerAccess);
	glk_cu_result result = GLK_PRELOAD_PASS(cuCtxEnablePeerAccess, peer, flags);

	if (!result && serves)
		note(peer, true);
	return result;
}

glk_cu_result cuCtxDisablePeerAccess(struct CUctx_st *peer)
{
	bool serves = SERVES(cuCtxDisablePeerAccess);
	glk_cu_result result = GLK_PRELOAD_PASS(cuCtxDisablePeerAccess, peer);

	if (!result && serves)
		note(peer, false);
	return result;
}
