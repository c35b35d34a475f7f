/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The source that is another GPU, which lends: its pages are had before those of the host, whose peer the node is,
 * and whoever has one need not know. Memory for contents that are away is lent like them, and
 * is no page (tier/peer.c). Both count against what the lender may lend, and
 * against its budget, as long as they are there. While it is suspended it lends none. A driver that has none is
 * asked for each page and each content otherwise, of which there may be tens of thousands: nobody asks it for a
 * while. What fails behind that may be the borrower's own, who alone asks for none for a while.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "pool/pool.h"

#include <errno.h>

/* Whether it was the last word: nothing is asked of the lender any more. */
static bool is_over(struct glk_node *peer, int err)
{
	bool did;

	if (!glk_node_is_refusal(err) && err != -ENODEV)
		return false;
	did = glk_xchg_seq_cst(&peer->borrows, false);
	did |= glk_xchg_seq_cst(&peer->stows, false);
	if (did)
		glk_warn("GPU %d has nothing lent by GPU %d any more: %s",
			peer->gpu->place.id, peer->lender->place.id,
			glk_thread_current->error.text);
	return true;
}

void glk_lend_leave(struct glk_node *peer)
{
	glk_store_relaxed(&peer->apart_since, glk_load_relaxed(&peer->lender->wet));
	glk_store_relaxed(&peer->apart, glk_clock_ns() + GLK_LEND_DRY_NS);
}

void glk_lend_failed(struct glk_node *peer, int err)
{
	if (!is_over(peer, err))
		glk_lend_leave(peer);
}

/* It has failed with the lender of late. */
static bool is_apart(const struct glk_node *peer)
{
	return glk_clock_ns() < glk_load_relaxed(&peer->apart) &&
		glk_load_relaxed(&peer->apart_since) ==
		glk_load_relaxed(&peer->lender->wet);
}

bool glk_lend_stows(const struct glk_node *peer)
{
	/* pairs with: the release in glk_beside_lend */
	return peer && glk_load_acquire(&peer->stows) &&
		!glk_load_relaxed(&peer->lender->shut);
}

bool glk_lend_takes(const struct glk_node *peer)
{
	return glk_lend_stows(peer) && !is_apart(peer);
}

void glk_lend_wet(struct glk_node *lender)
{
	glk_add_relaxed(&lender->wet, 1);
	if (glk_load_relaxed(&lender->dry))
		glk_store_relaxed(&lender->dry, 0);
}

static void unclaim(struct glk_node *peer, uint64_t size, bool calls)
{
	glk_sub_relaxed(&peer->held, size);
	glk_sub_relaxed(&peer->lender->lent, size);
	glk_node_unclaim(peer->lender, size);
}

static int claim(struct glk_node *peer, uint64_t size, bool calls)
{
	struct glk_node *lender = peer->lender;
	uint64_t lent = glk_load_relaxed(&lender->lent);

	if (glk_load_relaxed(&lender->shut) || is_apart(peer) ||
		glk_clock_ns() < glk_load_relaxed(&lender->dry))
		return -ENOMEM;
	do {
		if (lent > lender->lends || size > lender->lends - lent)
			return -ENOMEM;
	} while (!glk_cas_seq_cst(&lender->lent, &lent, lent + size));
	if (glk_node_claim(lender, size)) {
		glk_sub_relaxed(&lender->lent, size);
		return -ENOMEM;
	}
	glk_add_relaxed(&peer->held, size);
	if (!glk_load_seq_cst(&lender->shut))
		return 0;
	unclaim(peer, size, calls);
	return -ENOMEM;
}

static int make(
	struct glk_node *peer, size_t size, uint64_t *ret_handle, uint8_t *ret_able)
{
	struct glk_node *lender = peer->lender;
	struct glk_drv *drv = peer->pool->drv;
	int err = drv->ops->create(drv, lender->place, size, 0, ret_handle);

	*ret_able = 0;
	if (!err)
		glk_node_note_peak(lender);
	else if (!is_over(peer, err))
		glk_store_relaxed(&lender->dry, glk_clock_ns() + GLK_LEND_DRY_NS);
	return err;
}

const struct glk_source glk_source_lender = {
	.claim = claim, .unclaim = unclaim, .make = make};

/* Whoever claims looks whether it is shut afterwards, and who shuts reads the claims afterwards: one of
 * them at least meets the other. */
void glk_lend_shut(struct glk_node *lender, bool on)
{
	glk_xchg_seq_cst(&lender->shut, on);
}

bool glk_lend_is_shut(const struct glk_node *lender)
{
	return glk_load_seq_cst(&lender->shut);
}

uint64_t glk_lend_lent(const struct glk_node *lender)
{
	return glk_load_seq_cst(&lender->lent);
}
