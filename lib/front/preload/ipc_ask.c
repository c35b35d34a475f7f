/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is asked of a process whose blocks are opened, and the pages that are mapped. A question has one
 * answer, for which it is given a few seconds.
 */
#include "front/preload/ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* The answer, and nothing that was said by the way. */
static int receive(
	struct glk_preload_ipc_peer *peer, uint32_t what, struct glk_wire_frame *frame)
{
	const struct glk_preload_ipc_answer *answer = (const void *)frame->body;
	int64_t until = now_ms() + GLK_PRELOAD_IPC_ANSWER_MS, left;
	int err;

	for (;;) {
		left = until - now_ms();
		err = glk_wire_receive(peer->fd - 1, frame, left > 0 ? (int)left : 0);
		if (err)
			return err == -EAGAIN ? -ETIMEDOUT : err == -EPIPE ? -ESRCH : err;
		/* not now: this thread may be inside the library */
		if (frame->kind == GLK_PRELOAD_IPC_FREED) {
			glk_preload_ipc_unwanted(peer, answer->id);
		} else if (frame->kind == GLK_PRELOAD_IPC_RELEASE) {
			glk_store_relaxed(&peer->asked, true);
			peer->asked_id = answer->id;
		} else {
			break;
		}
		glk_wire_frame_close(frame);
	}
	if (frame->kind == what && frame->length >= GLK_PRELOAD_IPC_ANSWER_SIZE(0) &&
		answer->here <= GLK_PRELOAD_IPC_LIST &&
		frame->length == GLK_PRELOAD_IPC_ANSWER_SIZE(answer->here) &&
		answer->err <= 0)
		return 0;
	glk_wire_frame_close(frame);
	return -EPROTO;
}

/* A question and its answer. What fails on the way fails the connection. */
static int ask(struct glk_preload_ipc_peer *peer, uint32_t what,
	struct glk_preload_ipc_question question, struct glk_wire_frame *frame)
{
	int err;

	if (glk_load_relaxed(&peer->failed))
		return -ESRCH;
	err = !glk_preload_ipc_peer_is(peer)
		? -EPIPE
		: glk_wire_send(peer->fd - 1, what, &question, sizeof(question), NULL, 0,
			  GLK_PRELOAD_IPC_ANSWER_MS);
	if (err)
		err = err == -EAGAIN ? -ETIMEDOUT : -ESRCH;
	else
		err = receive(peer, what, frame);
	/* a message that came in part was one message all the same */
	if (err && err != -EMFILE)
		glk_store_relaxed(&peer->failed, true);
	if (err)
		return err;
	err = ((const struct glk_preload_ipc_answer *)(const void *)frame->body)->err;
	if (err)
		glk_wire_frame_close(frame);
	return err;
}

/* Whether a list goes on with what is told already. */
static int add_pages(struct glk_preload_ipc_block *block, uint64_t *have,
	const struct glk_preload_ipc_answer *answer)
{
	if (answer->pages != block->pages || !answer->here ||
		answer->here > block->pages - *have)
		return -EPROTO;
	for (uint32_t i = 0; i < answer->here; i++) {
		struct glake_piece *piece = &block->pieces[*have];
		uint64_t size = answer->page[i].size;

		*piece = (struct glake_piece){
			.fd = -1, .page_size = size, .number = answer->page[i].number};
		piece->offset = *have ? 0 : answer->offset;
		if (piece->offset >= size)
			return -EPROTO;
		++*have;
	}
	return 0;
}

/* The first and the last one have what the size leaves them; what does not fit the library finds. */
static void set_lengths(struct glk_preload_ipc_block *block)
{
	uint64_t left = block->size;

	for (uint64_t i = 0; i < block->pages; i++) {
		struct glake_piece *piece = &block->pieces[i];
		uint64_t most = piece->page_size - piece->offset;

		piece->length = left < most || i + 1 == block->pages ? left : most;
		left -= piece->length;
	}
}

static int list_pages(struct glk_preload_ipc_peer *peer,
	struct glk_preload_ipc_block *block, struct glk_wire_frame *frame)
{
	const struct glk_preload_ipc_answer *answer = (const void *)frame->body;
	struct glk_preload_ipc_question more = {.id = block->id};
	uint64_t have = 0;
	int err = frame->count ? -EPROTO : 0;

	glk_wire_frame_close(frame);
	while (!err) {
		err = add_pages(block, &have, answer);
		if (err || have == block->pages)
			break;
		more.first = have;
		err = ask(peer, GLK_PRELOAD_IPC_MORE, more, frame);
		if (!err && frame->count)
			err = -EPROTO;
	}
	if (!err)
		set_lengths(block);
	return err;
}

void glk_preload_ipc_block_end(struct glk_preload_ipc_block *block)
{
	munmap(block->pieces, block->pages * sizeof(*block->pieces));
	block->pieces = NULL;
}

static int make_block(struct glk_preload_ipc_block *block,
	const struct glk_preload_ipc_answer *answer, uint64_t id)
{
	*block = (struct glk_preload_ipc_block){.id = id,
		.pages = answer->pages,
		.size = answer->size,
		.at = answer->at,
		.space = answer->space};
	memcpy(block->uuid, answer->uuid, sizeof(block->uuid) - 1);
	if (!block->pages || block->pages > GLAKE_PIECES_MAX)
		return -EPROTO;
	block->pieces = mmap(NULL, block->pages * sizeof(*block->pieces),
		PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return block->pieces == MAP_FAILED ? -ENOMEM : 0;
}

int glk_preload_ipc_ask(struct glk_preload_ipc_peer *peer, uint64_t id,
	struct glk_preload_ipc_block *ret_block)
{
	struct glk_preload_ipc_block block;
	struct glk_wire_frame frame;
	int err;

	glk_preload_ipc_tell_rest();
	err = ask(peer, GLK_PRELOAD_IPC_OPEN, (struct glk_preload_ipc_question){.id = id},
		&frame);
	if (err)
		return err;
	err = make_block(&block, (const void *)frame.body, id);
	if (!err) {
		err = list_pages(peer, &block, &frame);
		if (err)
			glk_preload_ipc_block_end(&block);
	}
	glk_wire_frame_close(&frame);
	if (err) {
		/* it is held there; what it says is not to be trusted any more */
		glk_store_relaxed(&peer->failed, true);
		return err;
	}
	*ret_block = block;
	return 0;
}

struct fetch {
	struct glk_preload_ipc_peer *peer;
	uint64_t id;
};

static int fetch(void *arg, size_t first, size_t count, int *ret_fds)
{
	const struct fetch *fetch = arg;
	struct glk_preload_ipc_question question = {fetch->id, first, count};
	struct glk_wire_frame frame;
	int err = ask(fetch->peer, GLK_PRELOAD_IPC_PAGES, question, &frame);

	if (err)
		return err;
	if (frame.count != count) {
		glk_wire_frame_close(&frame);
		glk_store_relaxed(&fetch->peer->failed, true);
		return -EPROTO;
	}
	memcpy(ret_fds, frame.fd, count * sizeof(*ret_fds));
	return 0;
}

_Static_assert(GLAKE_MIRROR_FDS <= GLK_WIRE_FDS_MAX, "they come in one frame");

int glk_preload_ipc_map(struct glk_preload_ipc_peer *peer, struct glk_preload_seat *seat,
	int device, const struct glk_preload_ipc_block *block,
	struct glake_mirror **ret_mirror, glk_cu_address *ret)
{
	struct fetch source = {peer, block->id};
	struct glake_mirror *mirror;
	void *ptr;
	int err;

	err = glk_preload_ipc_peer_mirror(peer, block->space, seat, device, &mirror);
	if (!err)
		err = glk_library.mirror_open(seat->glake, mirror, block->at,
			block->pieces, (size_t)block->pages, (size_t)block->size, fetch,
			&source, &ptr);
	if (err)
		return err;
	*ret_mirror = mirror;
	*ret = (glk_cu_address)(uintptr_t)ptr;
	return 0;
}
