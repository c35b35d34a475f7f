/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a context has published, attached or claimed, by name, as the broker is told of it: see lessee.h. */
#include "share/lessee.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>

/* ns between two looks at one that is read, which takes some ms. */
#define LOOK_NS 1000000

/* NULL: it is not known. */
static struct glk_name *find_name(
	struct glk_lessee *l, const struct glk_broker_item *item)
{
	for (uint32_t i = 0; i < l->names; i++) {
		struct glk_name *n = &l->name[i];

		if (n->is && n->item.gpu == item->gpu && !strcmp(n->item.key, item->key))
			return n;
	}
	return NULL;
}

/* For one more: the one that is awaited longest makes way. NULL: all are claimed. */
static struct glk_name *place_name(struct glk_lessee *l)
{
	struct glk_name *oldest = NULL;

	for (uint32_t i = 0; i < GLK_NAMES; i++) {
		struct glk_name *n = &l->name[i];

		if (!n->is)
			return n;
		if (n->is == AWAITED && (!oldest || n->age < oldest->age))
			oldest = n;
	}
	return oldest;
}

/* One that cannot be remembered is as it was without. */
static void keep_name(struct glk_lessee *l, const struct glk_broker_item *item, int is)
{
	struct glk_name *n = find_name(l, item);

	if (!n) {
		n = place_name(l);
		if (!n)
			return;
		*n = (struct glk_name){
			.is = AWAITED, .item = *item, .turn = l->turn, .age = l->named++};
		n->item.flags = GLK_BROKER_CLAIM;
		if (l->names <= n - l->name)
			l->names = (uint32_t)(n - l->name) + 1;
	}
	if (n->is != AWAITED || is != AWAITED)
		n->turn = l->turn;
	n->is = is;
	n->unsure = false;
}

/* Of a claim that the broker refused. */
static int refusal_of(const struct glk_wire_frame *frame)
{
	const struct glk_broker_refused *refused = (const void *)frame->body;

	return frame->kind == GLK_BROKER_REFUSED && frame->length == sizeof(*refused)
		? refused->err
		: 0;
}

/* After a question about a name; `away`: it has no answer, and was not even asked where it was not `said`. */
static void note_name(struct glk_lessee *l, uint32_t kind,
	const struct glk_broker_item *item, const struct glk_wire_frame *frame, bool said,
	bool away)
{
	bool claims = kind == GLK_BROKER_GET && item->flags & GLK_BROKER_CLAIM;
	struct glk_name *n = find_name(l, item);
	int err = away ? 0 : refusal_of(frame);

	if (away && claims && said && !n) {
		/* who is told to come again need not: others may have the claim then */
		keep_name(l, item, GIVEN_UP);
	} else if (away && claims && said && n->is == AWAITED) {
		n->unsure = true;
	} else if (away) {
		if (kind == GLK_BROKER_END && n && n->is == CLAIMED)
			n->is = GIVEN_UP;
		/* the next broker is told of it as of all that is published */
		if (kind == GLK_BROKER_PUT && said && n)
			n->is = NONE;
	} else if (claims && (err == -ENOENT || err == -EAGAIN)) {
		keep_name(l, item, err == -ENOENT ? CLAIMED : AWAITED);
	} else if (!err && n) {
		n->is = NONE;
	}
}

/* Says something of a name that was remembered, and has the answer. 0 or -errno. */
static int say_name(struct glk_lessee *l, uint32_t kind, const struct glk_name *n)
{
	int err = glk_lessee_say(l, kind, &n->item, sizeof(n->item), NULL, 0);

	if (!err)
		err = glk_lessee_hear(l, &l->frame);
	if (!err)
		glk_wire_frame_close(&l->frame);
	return err;
}

/* In the broker's words: another process has claimed it, or there are too many names, or what there may be. */
static void tell_lost(const struct glk_lessee *l, const struct glk_name *n)
{
	const struct glk_broker_refused *refused = (const void *)l->frame.body;
	bool is_refused = refusal_of(&l->frame);

	glk_warn("%s is not for this process to publish any more: %.*s", n->item.key,
		is_refused ? (int)sizeof(refused->text) - 1 : INT_MAX,
		is_refused ? refused->text : "the broker says what it was not asked");
}

/* Claims of before; what somebody else has by now is no claim any more. */
static void claim_again(struct glk_lessee *l)
{
	for (uint32_t i = 0; i < l->names && l->here; i++) {
		struct glk_name *n = &l->name[i];
		bool awaited = n->is == AWAITED;

		if (!n->is || (awaited && !n->unsure))
			continue;
		if (say_name(l, n->is == CLAIMED ? GLK_BROKER_GET : GLK_BROKER_END, n))
			return;
		n->unsure = false;
		if (awaited)
			continue;
		if (n->is == CLAIMED && refusal_of(&l->frame) == -ENOENT) {
			n->turn = l->turn;
			continue;
		}
		if (n->is == CLAIMED && l->frame.kind == GLK_BROKER_FOUND) {
			glk_warn("another process has published %s meanwhile",
				n->item.key);
			say_name(l, GLK_BROKER_END, n);
		} else if (n->is == CLAIMED) {
			tell_lost(l, n);
		}
		n->is = NONE;
	}
}

/* What a broker that has ended held for others, the new one holds again. */
static void put_again(struct glk_lessee *l)
{
	for (struct glk_shared *s = l->shared; s && l->here; s = s->next) {
		struct glk_broker_item item = s->item;

		item.flags |= GLK_BROKER_AGAIN;
		if (glk_lessee_say(l, GLK_BROKER_PUT, &item, sizeof(item), &s->fd, 1) ||
			glk_lessee_hear(l, &l->frame))
			return;
		glk_wire_frame_close(&l->frame);
		if (l->frame.kind != GLK_BROKER_DONE)
			glk_warn("what was published as %s is something else by now",
				item.key);
	}
}

void glk_names_again(struct glk_lessee *l)
{
	claim_again(l);
	put_again(l);
}

static int refuse_item(const struct glk_wire_frame *frame, const char *key)
{
	const struct glk_broker_refused *refused = (const void *)frame->body;
	int err = refusal_of(frame);

	if (err >= 0)
		return glk_error(-EIO, GLAKE_ERROR_INVAL,
			"%s: the broker says what it was not asked", key);
	return glk_error(err,
		err == -EAGAIN		 ? GLAKE_ERROR_AGAIN
			: err == -ENOSPC ? GLAKE_ERROR_LIMIT
					 : GLAKE_ERROR_INVAL,
		"%s: %.*s", key, (int)sizeof(refused->text) - 1, refused->text);
}

static void keep(struct glk_lessee *l, struct glk_shared *shared)
{
	shared->next = l->shared;
	l->shared = shared;
}

int glk_lessee_item(struct glk_lessee *l, uint32_t kind,
	const struct glk_broker_item *item, struct glk_shared *put,
	struct glk_wire_frame *frame)
{
	uint32_t wanted = kind == GLK_BROKER_GET ? GLK_BROKER_FOUND : GLK_BROKER_DONE;
	struct glk_broker_item said = *item;
	bool claims = kind == GLK_BROKER_GET && item->flags & GLK_BROKER_CLAIM, asks;
	bool fits = false;
	const struct glk_name *name;
	int err;

	glk_lock(&l->lock);
	asks = !glk_lessee_find(l);
	name = find_name(l, item);
	if (claims && !name && !place_name(l)) {
		err = glk_error(-ENOSPC, GLAKE_ERROR_LIMIT,
			"%s: this process has claimed %d names already", item->key,
			GLK_NAMES);
		goto unlock;
	}
	if (claims && name && name->is == AWAITED && name->turn != l->turn)
		said.flags |= GLK_BROKER_AGAIN;
	err = !asks ||
		glk_lessee_say(l, kind, &said, sizeof(said), put ? &put->fd : NULL,
			put ? 1 : 0) ||
		glk_lessee_hear(l, frame);
	note_name(l, kind, item, frame, asks, err);
	fits = !err && frame->kind == wanted &&
		frame->count == (kind == GLK_BROKER_GET ? 1u : 0u) &&
		(kind != GLK_BROKER_GET || frame->length == sizeof(*item));
	if (asks && put && (err || fits))
		keep(l, put);
	if (err && asks && put)
		err = -EINPROGRESS;
	else if (err)
		err = glk_error(-EAGAIN, GLAKE_ERROR_AGAIN,
			"the broker at %s is away: %s", l->path, l->why);
unlock:
	glk_unlock(&l->lock);
	if (err || fits)
		return err;
	glk_wire_frame_close(frame);
	return refuse_item(frame, item->key);
}

/* An answer that fits the question. */
static bool is_answer(const struct glk_wire_frame *frame, uint32_t count)
{
	const struct glk_broker_founds *founds = (const void *)frame->body;
	uint32_t had = 0;

	for (uint32_t i = 0; i < count; i++)
		had += !founds->found[i].err;
	return frame->kind == GLK_BROKER_FOUNDS && frame->length == sizeof(*founds) &&
		founds->count == count && frame->count == had;
}

int glk_lessee_items(
	struct glk_lessee *l, struct glk_broker_item *items, int *fds, uint32_t count)
{
	struct glk_broker_names said = {.gpu = items[0].gpu, .count = count};
	const struct glk_broker_founds *founds;
	struct glk_wire_frame frame;
	struct glk_name *name;
	uint32_t fd = 0;
	int err;

	for (uint32_t i = 0; i < count; i++) {
		said.name[i].stamp = items[i].stamp;
		memcpy(said.name[i].key, items[i].key, sizeof(items[i].key));
	}
	glk_lock(&l->lock);
	err = glk_lessee_find(l) ||
		glk_lessee_say(l, GLK_BROKER_GETS, &said, sizeof(said), NULL, 0) ||
		glk_lessee_hear(l, &frame);
	if (!err && !is_answer(&frame, count)) {
		glk_wire_frame_close(&frame);
		glk_lessee_lose(l, "it says what it was not asked");
		err = 1;
	}
	founds = (const void *)frame.body;
	for (uint32_t i = 0; i < count && !err; i++) {
		const struct glk_broker_found *found = &founds->found[i];

		fds[i] = found->err < 0 ? found->err : -EIO;
		if (found->err)
			continue;
		fds[i] = frame.fd[fd++];
		items[i].page = found->page;
		items[i].offset = found->offset;
		items[i].length = found->length;
		items[i].stamp = found->stamp;
		items[i].sum = found->sum;
		name = find_name(l, &items[i]);
		if (name)
			name->is = NONE;
	}
	if (err)
		err = glk_error(-EAGAIN, GLAKE_ERROR_AGAIN,
			"the broker at %s is away: %s", l->path, l->why);
	glk_unlock(&l->lock);
	return err;
}

void glk_lessee_keep(struct glk_lessee *l, struct glk_shared *shared)
{
	glk_lock(&l->lock);
	keep(l, shared);
	glk_unlock(&l->lock);
}

/* What is attached at an address, by what names it. */
static struct glk_shared **find_attached(struct glk_lessee *l, int device, uint64_t addr)
{
	struct glk_shared **link = &l->shared;

	while (*link &&
		((*link)->addr != addr || !(*link)->attached ||
			(*link)->item.gpu != (uint32_t)device))
		link = &(*link)->next;
	return link;
}

struct glk_shared *glk_lessee_take(struct glk_lessee *l, int device, uint64_t addr)
{
	const struct timespec step = {.tv_nsec = LOOK_NS};
	struct glk_shared **link, *found;

	glk_lock(&l->lock);
	link = find_attached(l, device, addr);
	while (*link && (*link)->looks) {
		glk_unlock(&l->lock);
		nanosleep(&step, NULL);
		glk_lock(&l->lock);
		link = find_attached(l, device, addr);
	}
	found = *link;
	if (found)
		*link = found->next;
	glk_unlock(&l->lock);
	return found;
}

struct glk_shared *glk_lessee_hold(struct glk_lessee *l, int device, uint32_t after)
{
	struct glk_shared *s;

	glk_lock(&l->lock);
	for (s = l->shared; s; s = s->next) {
		if (s->item.gpu == (uint32_t)device && !after--)
			break;
	}
	if (s)
		s->looks++;
	glk_unlock(&l->lock);
	return s;
}

void glk_lessee_let_go(struct glk_lessee *l, struct glk_shared *shared)
{
	glk_lock(&l->lock);
	shared->looks--;
	glk_unlock(&l->lock);
}
