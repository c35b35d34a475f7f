/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The client's part of the pages that processes have in common (depot.h). A page that the broker knows has the number of
 * the connection and that of the broker: over another connection, or with another broker, it is known no more. It stays
 * with those who stand on it, and what others have made counts as each one's own from then on (lease.c). One that was
 * offered and had no answer may be known: it has the number of the connection alone, and is as such a one.
 *
 * What the broker says is not trusted: a descriptor that is no memory of the GPU is given back, and one that is another
 * page is found out where its contents are compared.
 */
#include "share/lessee.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static uint64_t known_as(const struct glk_lessee *l, uint32_t id)
{
	return id ? l->turn << 32 | id : 0;
}

static bool is_of_now(const struct glk_lessee *l, uint64_t known)
{
	return l->here && known >> 32 == (l->turn & UINT32_MAX);
}

static void leave(struct glk_lessee *l, uint32_t gpu, uint64_t bytes, uint64_t known)
{
	struct glk_broker_pages left = {
		.gpu = gpu, .count = 1, .bytes = bytes, .id = {(uint32_t)known}};

	glk_lessee_say(l, GLK_BROKER_LEAVE, &left, sizeof(left), NULL, 0);
}

uint64_t glk_commons_turn(struct glk_lessee *l, int device)
{
	uint64_t turn;

	if (!l || device >= GLK_BROKER_GPUS)
		return 0;
	glk_lock(&l->lock);
	turn = glk_lessee_try(l) ? l->turn : 0;
	glk_unlock(&l->lock);
	return turn;
}

bool glk_commons_forget(struct glk_node *node, const struct glk_page *page)
{
	struct glk_lessee *l = glk_lessee_of(node);
	bool now;

	glk_lock(&l->lock);
	now = is_of_now(l, page->common);
	if (now && page->foreign)
		l->gpu[node->index].foreign -= page->size;
	if (now && (uint32_t)page->common)
		leave(l, node->index, page->size, page->common);
	glk_unlock(&l->lock);
	return page->foreign && !now;
}

/* Asks, and has the answer. 0; -EAGAIN: the broker is away, or says what it was not asked. */
static int ask(struct glk_lessee *l, uint32_t kind, const struct glk_broker_pages *said,
	const int *fds, struct glk_wire_frame *frame)
{
	bool seeks = kind == GLK_BROKER_SEEK;
	const struct glk_broker_pages *answer = (const void *)frame->body;
	uint32_t had = 0;

	if (!l->here ||
		glk_lessee_say(
			l, kind, said, sizeof(*said), fds, seeks ? 0 : said->count) ||
		glk_lessee_hear(l, frame))
		return -EAGAIN;
	for (uint32_t i = 0; i < said->count; i++)
		had += answer->id[i] != 0;
	if (frame->kind == (seeks ? GLK_BROKER_SOUGHT : GLK_BROKER_TAKEN) &&
		frame->length == sizeof(*answer) && frame->count == (seeks ? had : 0))
		return 0;
	glk_wire_frame_close(frame);
	glk_lessee_lose(l, "it says what it was not asked");
	return -EAGAIN;
}

static struct glk_broker_pages said_of(const struct glk_node *node, uint64_t bytes,
	const struct glk_common *commons, uint32_t count)
{
	struct glk_broker_pages said = {
		.gpu = node->index, .count = count, .bytes = bytes};

	for (uint32_t i = 0; i < count; i++)
		said.number[i] = commons[i].number;
	return said;
}

static bool is_memory(struct glk_node *node, uint64_t handle)
{
	struct glk_drv *drv = node->pool->drv;
	struct glk_place place;
	int err = drv->ops->page_place(drv, handle, &place);

	if (err)
		return err == -EOPNOTSUPP;
	return place.kind == node->place.kind && place.id == node->place.id;
}

/* The page of a descriptor, for the pool. */
static int adopt(struct glk_node *node, uint64_t bytes, struct glk_common *common)
{
	struct glk_drv *drv = node->pool->drv;
	uint64_t handle;
	int err = drv->ops->import_fd(drv, common->fd, &handle);

	if (err)
		return err;
	err = is_memory(node, handle)
		? glk_node_adopt(node, bytes, handle, common->known, &common->page)
		: -EINVAL;
	if (err)
		drv->ops->release(drv, handle);
	return err;
}

/* Each that was found has a page, or is given up. */
static void adopt_all(struct glk_lessee *l, struct glk_node *node, uint64_t bytes,
	struct glk_common *commons, uint32_t count)
{
	struct glake_error why = glk_thread_current->error;

	for (uint32_t i = 0; i < count; i++) {
		struct glk_common *c = &commons[i];
		int err;

		if (!c->known)
			continue;
		err = adopt(node, bytes, c);
		close(c->fd);
		c->fd = -1;
		glk_lock(&l->lock);
		if (!is_of_now(l, c->known))
			l->gpu[node->index].leased += err ? 0 : bytes;
		else if (err)
			leave(l, node->index, bytes, c->known);
		else
			l->gpu[node->index].foreign += bytes;
		glk_unlock(&l->lock);
		c->known = err ? 0 : c->known;
	}
	glk_error_back(&why);
}

int glk_commons_seek(struct glk_lessee *l, struct glk_node *node, uint64_t bytes,
	struct glk_common *commons, uint32_t count)
{
	struct glk_broker_pages said = said_of(node, bytes, commons, count);
	const struct glk_broker_pages *answer;
	struct glk_wire_frame frame;
	uint32_t fd = 0;
	int err;

	glk_lock(&l->lock);
	err = ask(l, GLK_BROKER_SEEK, &said, NULL, &frame);
	answer = (const void *)frame.body;
	for (uint32_t i = 0; i < count; i++) {
		commons[i].page = 0;
		commons[i].known = err ? 0 : known_as(l, answer->id[i]);
		if (commons[i].known)
			commons[i].fd = frame.fd[fd++];
	}
	glk_unlock(&l->lock);
	if (!err)
		adopt_all(l, node, bytes, commons, count);
	return err;
}

int glk_commons_offer(struct glk_lessee *l, struct glk_node *node, uint64_t bytes,
	struct glk_common *commons, uint32_t count)
{
	struct glk_broker_pages said = said_of(node, bytes, commons, count);
	const struct glk_broker_pages *answer;
	struct glk_drv *drv = node->pool->drv;
	int fds[GLK_COMMONS_MOST], err = 0;
	struct glk_wire_frame frame;
	uint32_t done = 0;

	while (done < count && !err) {
		err = drv->ops->export_fd(drv,
			glk_page_at(node->pool, commons[done].page)->handle, &fds[done]);
		done += !err;
	}
	glk_lock(&l->lock);
	/* others may have it before there is an answer, and where there is none */
	for (uint32_t i = 0; i < count && !err; i++)
		glk_page_at(node->pool, commons[i].page)->common = l->turn << 32;
	if (!err)
		err = ask(l, GLK_BROKER_OFFER, &said, fds, &frame);
	answer = (const void *)frame.body;
	for (uint32_t i = 0; i < count; i++)
		commons[i].known = err ? 0 : known_as(l, answer->id[i]);
	for (uint32_t i = 0; i < count && !err; i++)
		glk_page_at(node->pool, commons[i].page)->common = commons[i].known;
	glk_unlock(&l->lock);
	while (done)
		close(fds[--done]);
	return err;
}
