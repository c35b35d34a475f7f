/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents on their way between a GPU and its store: see tier.h. */
#include "tier/tier.h"

#include "base/error.h"
#include "base/thread.h"
#include "tier/cipher.h"
#include "tier/io/io.h"
#include "tier/pack.h"

#include <errno.h>
#include <string.h>

/* Bytes from one event on the way to the host to the next, when there are more than can be kept. */
#define MARKS ((uint64_t)128 << 20)
/* Runs that go as one copy where several links may carry it: 4 GiB of whole pieces. */
#define RUNS 64

static struct glk_stream *enter(struct glk_mover *mover, uint32_t id)
{
	return glk_stream_enter(mover->streams, id);
}

static void lengthen(struct glk_mover *mover)
{
	glk_lock(mover->streams->gpu);
	glk_event_lengthen(mover->streams, mover->out);
	glk_unlock(mover->streams->gpu);
}

int glk_mover_init(struct glk_mover *mover, struct glk_streams *streams, int node,
	struct glk_node *host)
{
	int err;

	*mover = (struct glk_mover){.streams = streams};
	err = glk_store_init(
		&mover->store, streams->drv, streams->gpu, streams->device, node, host);
	if (!err)
		err = glk_channel_init(&mover->out_channel, streams, &mover->out);
	if (!err)
		lengthen(mover);
	if (!err)
		err = glk_channel_init(&mover->back_channel, streams, &mover->back);
	if (err)
		glk_mover_fini(mover);
	return err;
}

int glk_mover_fini(struct glk_mover *mover)
{
	struct glk_streams *streams = mover->streams;
	int err, failed;

	err = glk_channel_fini(&mover->out_channel, streams);
	failed = glk_channel_fini(&mover->back_channel, streams);
	err = err ? err : failed;
	if (streams) {
		glk_pack_fini(mover);
		glk_cipher_fini(mover);
		failed = glk_store_fini(&mover->store);
		err = err ? err : failed;
	}
	*mover = (struct glk_mover){0};
	return err;
}

/* Links that contents may go over, and the nodes near them. */
static void find_near(struct glk_mover *mover)
{
	const struct glk_io *io = mover->io;
	struct glk_store *store = &mover->store;
	int own = store->device;

	glk_store_near(store, glk_io_node(io, own), io->piece, io->least);
	for (int gpu = 0; gpu < io->gpus; gpu++) {
		if (gpu != own && io->lend >> gpu & 1)
			glk_store_near(store, glk_io_node(io, gpu), io->piece, io->least);
	}
	if (store->nears == 1)
		store->nears = 0;
}

int glk_mover_borrow(struct glk_mover *mover, struct glk_io *io)
{
	int err = 0;

	mover->io = io;
	if (io && io->lend & ~(UINT64_C(1) << mover->streams->device)) {
		find_near(mover);
		err = glk_channel_open_gate(&mover->out_channel, mover->streams);
	}
	if (!err && mover->out_channel.gate)
		err = glk_channel_open_gate(&mover->back_channel, mover->streams);
	return err;
}

uint32_t glk_mover_entry(struct glk_mover *mover, bool out, uint64_t bytes)
{
	struct glk_channel *channel = out ? &mover->out_channel : &mover->back_channel;

	if (!channel->gate || mover->store.cipher ||
		!glk_io_relays(mover->io, mover->streams->device, bytes))
		return out ? mover->out : mover->back;
	channel->gated = true;
	return channel->gate_id;
}

int glk_mover_enter_back(struct glk_mover *mover, uint64_t bytes)
{
	glk_mover_entry(mover, false, bytes);
	return glk_channel_pass(&mover->back_channel, mover->streams);
}

/* Whether no copy is under way, as far as is known. */
static bool rests(void *arg)
{
	struct glk_mover *mover = arg;
	struct glk_streams *streams = mover->streams;
	struct glk_use out = glk_stream_use(enter(mover, mover->out), streams->tick);
	struct glk_use back = glk_stream_use(enter(mover, mover->back), streams->tick);

	return glk_clock_finished(streams, &out) && glk_clock_finished(streams, &back);
}

void glk_mover_trim(struct glk_mover *mover)
{
	uint64_t pieces = (mover->store.reserve + GLK_STORE_PIECE - 1) / GLK_STORE_PIECE;

	glk_store_trim(&mover->store, pieces * GLK_STORE_PIECE, rests, mover);
}

void glk_mover_give(struct glk_mover *mover)
{
	glk_store_give(&mover->store, rests, mover);
}

void glk_mover_trim_all(struct glk_mover *mover)
{
	glk_mover_trim(mover);
	glk_mover_give(mover);
	if (mover->store.pack && rests(mover))
		glk_unpack_trim(mover->store.pack);
}

void glk_mover_yield(struct glk_mover *mover, uint64_t bytes)
{
	uint64_t there;

	glk_store_settle(&mover->store);
	there = mover->store.there;
	glk_store_trim(&mover->store, there > bytes ? there - bytes : 0, rests, mover);
}

void glk_mover_mark(struct glk_mover *mover)
{
	struct glk_stream *out = enter(mover, mover->out);
	unsigned slot, before = out->count;

	if (!before)
		mover->gap = 0;
	if (mover->queued - mover->marked < mover->gap)
		return;
	mover->marked = mover->queued;
	/* half of them went, so that those to come stand as far from each other */
	if (!glk_event_cover(mover->streams, out, &slot) && out->count < before)
		mover->gap = mover->gap ? 2 * mover->gap : MARKS;
}

/* Behind all that a use stands for, by stream waits; where an event cannot be had of a stream that has
 * ended, by waiting for the GPU. */
static int order(struct glk_mover *mover, struct glk_use *use, struct glk_stream *stream)
{
	int err = glk_clock_order(mover->streams, use, stream);

	if (err == -EAGAIN && !glk_clock_sync_use(mover->streams, use))
		err = glk_clock_order(mover->streams, use, stream);
	if (err == -EAGAIN)
		err = glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"a stream that used the block captures a graph");
	return err;
}

/* From a place in a content on. */
static struct glk_left left_of(const struct glk_store *store, uint32_t run, uint64_t from,
	uint64_t bytes, uint64_t addr)
{
	struct glk_left left = {run, addr, bytes, from + glk_store_at(store, run)->skip};

	while (left.skip >= glk_store_at(store, left.run)->chunks * GLK_STORE_CHUNK) {
		left.skip -= glk_store_at(store, left.run)->chunks * GLK_STORE_CHUNK;
		left.run = glk_store_at(store, left.run)->next;
	}
	return left;
}

/* The next runs of it, up to `most` and to one that was packed or another GPU has, or one such: how many, and near
 * which node each lies. */
static size_t gather(const struct glk_store *store, struct glk_left *left, bool out,
	size_t most, struct glake_copy_range *ranges, uint8_t *near)
{
	size_t count = 0;

	for (; left->bytes && count < most && !glk_store_at(store, left->run)->packed;
		count++) {
		const struct glk_store_run *r = glk_store_at(store, left->run);
		bool afar = glk_store_is_afar(store, r);
		char *host = store->piece[r->piece].base + r->first * GLK_STORE_CHUNK +
			left->skip;
		uint64_t size = r->chunks * GLK_STORE_CHUNK - left->skip;
		void *gpu = (void *)(uintptr_t)left->addr;

		if (afar && count)
			break;
		most = afar ? 1 : most;
		if (store->cipher && !afar)
			size = glk_cipher_plain(store, r, left->skip);
		size = size < left->bytes ? size : left->bytes;
		ranges[count] = (struct glake_copy_range){
			.dst = out ? host : gpu, .src = out ? gpu : host, .bytes = size};
		near[count] = store->piece[r->piece].near;
		left->skip += size;
		left->addr += size;
		left->bytes -= size;
		if (left->skip == r->chunks * GLK_STORE_CHUNK) {
			left->run = r->next;
			left->skip = 0;
		} else if (left->bytes) {
			/* the next chunk is of another kind */
			return count + 1;
		}
	}
	return count;
}

_Static_assert(GLK_STORE_NEARS <= GLK_IO_STOCKS, "a content lies on all of them");

/* Those of a node go side by side. How many nodes. */
static unsigned by_node(const struct glk_store *store, struct glake_copy_range *ranges,
	const uint8_t *near, size_t count, struct glk_io_stock *ret_stock)
{
	struct glake_copy_range was[RUNS];
	unsigned stocks = 0;
	size_t to = 0;

	memcpy(was, ranges, count * sizeof(*was));
	for (unsigned n = 0; n < store->nears; n++) {
		size_t before = to;

		for (size_t i = 0; i < count; i++) {
			if (near[i] == n)
				ranges[to++] = was[i];
		}
		if (to > before)
			ret_stock[stocks++] = (struct glk_io_stock){
				.node = store->near[n].node, .count = to - before};
	}
	return stocks;
}

/* Over the links to the host that are lent, if it is worth that. One range where none are. */
static int carry(
	struct glk_mover *mover, struct glk_channel *channel, struct glk_io_copy *copy)
{
	const struct glake_copy_range *r = copy->ranges;
	int err;

	if (!copy->relays)
		return glk_channel_copy(channel, mover->streams->drv,
			mover->streams->device, (uintptr_t)r->dst, (uintptr_t)r->src,
			r->bytes);
	copy->stream = channel->main;
	for (size_t i = 0; i < copy->count; i++)
		copy->bytes += r[i].bytes;
	err = glk_io_copy(mover->io, copy, false);
	return err ? err : copy->err;
}

/* What was packed of it, a part. */
static int unpack(struct glk_mover *mover, struct glk_left *left)
{
	uint64_t bytes = 0;
	int err =
		glk_unpack(mover->store.pack, left->run, left->addr, &left->run, &bytes);

	left->addr += bytes;
	left->bytes -= bytes;
	return err;
}

/* One content, or a part of it, run by run, or many at a time where links to the host may help. The lock is
 * given up for each time. After an error *ret_afar tells whether that was a part which another GPU has. */
static int copy(struct glk_mover *mover, struct glk_left left, bool out, bool links,
	bool *ret_afar)
{
	struct glk_channel *channel = out ? &mover->out_channel : &mover->back_channel;
	int gpu = mover->streams->device;
	uint64_t relays = links && !mover->store.cipher
		? glk_io_relays(mover->io, gpu, left.bytes)
		: 0;
	size_t most = relays ? RUNS : 1, count;
	struct glk_io_stock stock[GLK_IO_STOCKS];
	struct glake_copy_range ranges[RUNS];
	uint8_t near[RUNS];
	int err;

	/* another one may have passed it since it was queued at */
	channel->gated |= relays && channel->gate;
	err = glk_channel_pass(channel, mover->streams);
	while (left.bytes && !err) {
		const struct glk_store_run *r = glk_store_at(&mover->store, left.run);
		bool afar = glk_store_is_afar(&mover->store, r);
		struct glk_io_copy next;

		*ret_afar = afar;
		if (r->packed) {
			err = unpack(mover, &left);
			continue;
		}
		if (!afar &&
			(out ? mover->store.cipher != NULL
			     : glk_cipher_has(&mover->store, r, left.skip))) {
			err = glk_cipher_copy(mover, &left, out);
			continue;
		}
		count = gather(&mover->store, &left, out, most, ranges, near);
		next = (struct glk_io_copy){.ranges = ranges,
			.count = count,
			.is_known = true,
			.is_up = out,
			.gpu = gpu,
			.behind = channel->passed,
			.stock = stock,
			.relays = afar ? 0 : relays};
		if (next.relays)
			next.stocks = by_node(&mover->store, ranges, near, count, stock);
		glk_lock_pause(mover->streams->gpu);
		err = carry(mover, channel, &next);
		glk_lock_resume(mover->streams->gpu);
	}
	return err;
}

static struct glk_use used_by(struct glk_mover *mover, struct glk_stream *stream)
{
	return glk_stream_use(stream, glk_clock_tick(mover->streams, stream));
}

/* A part of a copy may be queued, of memory that nobody watches over. Why it failed stays on record. */
static void abandon(struct glk_mover *mover, const struct glk_use *use)
{
	struct glake_error why = glk_thread_current->error;

	glk_clock_sync_use(mover->streams, use);
	glk_error_back(&why);
}

/* To room that was taken, which is given back after an error; *ret_afar: another GPU did not take its part. */
static int send(struct glk_mover *mover, uint64_t addr, uint64_t bytes, bool links,
	struct glk_use *use, uint32_t run, bool *ret_afar)
{
	struct glk_stream *out = enter(mover, mover->out);
	struct glk_stream *back = enter(mover, mover->back);
	struct glk_stream *entry =
		links ? enter(mover, glk_mover_entry(mover, true, bytes)) : out;
	struct glk_store_ticks until;
	struct glk_use read, written;
	int err;

	err = order(mover, use, entry);
	until = glk_store_ticks(&mover->store, run);
	read = glk_stream_use(back, until.read);
	if (!err && read.tick)
		err = order(mover, &read, entry);
	written = glk_stream_use(out, until.written);
	if (!err && written.tick && entry != out)
		err = order(mover, &written, entry);
	if (err) {
		glk_store_put(&mover->store, run, 0);
		return err;
	}
	mover->queued += bytes;
	err = copy(mover, left_of(&mover->store, run, 0, bytes, addr), true, links,
		ret_afar);
	*use = used_by(mover, out);
	if (err) {
		abandon(mover, use);
		glk_store_put(&mover->store, run, 0);
		return err;
	}
	glk_store_at(&mover->store, run)->written = use->tick;
	return 0;
}

int glk_move_out(struct glk_mover *mover, uint64_t addr, uint64_t bytes,
	struct glk_use *use, uint32_t *ret_run)
{
	struct glk_store *store = &mover->store;
	bool afar = false, beside;
	uint32_t run;
	int err, failed;

	err = glk_store_take(store, bytes, true, &run);
	if (err)
		return err;
	failed = err = send(mover, addr, bytes, true, use, run, &afar);
	/* a lender that is lost, or out of reach by now, has failed nobody: there is the host */
	if (failed && afar) {
		err = glk_store_take(store, bytes, false, &run);
		/* without room there it is not known who has failed, and the next content would be tried again */
		if (err)
			glk_lend_leave(store->host->peer);
		else
			err = send(mover, addr, bytes, true, use, run, &beside);
		/* where that goes, and else it may have been this GPU */
		if (!err)
			glk_lend_failed(store->host->peer, failed);
	}
	if (err)
		return err;
	if (store->pack && !glk_store_at(store, run)->afar)
		glk_pack_note(store->pack, run);
	*ret_run = run;
	return 0;
}

/* The last run of a chain goes on as another one did, which takes what the first has, and the chunks that it
 * had serve others: what is still to read them is on the stream that writes there next. */
static void replace(struct glk_store *store, uint32_t run, uint32_t other)
{
	struct glk_store_run *r = glk_store_at(store, run), *last,
			     *new = glk_store_at(store, other);

	glk_store_leave(store, r, 0);
	for (last = new; last->next; last = glk_store_at(store, last->next))
		;
	last->next = r->next;
	r->next = new->next;
	r->piece = new->piece;
	r->first = new->first;
	r->chunks = new->chunks;
	glk_slab_put(&store->runs, other);
}

static int move_run_home(struct glk_mover *mover, uint32_t run)
{
	struct glk_store *store = &mover->store;
	const struct glk_store_run *r = glk_store_at(store, run);
	uint64_t addr =
		(uintptr_t)store->piece[r->piece].base + r->first * GLK_STORE_CHUNK;
	uint64_t bytes = r->chunks * GLK_STORE_CHUNK;
	struct glk_use use = {0};
	uint32_t other;
	bool afar;
	int err = glk_store_take(store, bytes, false, &other);

	if (!err)
		err = send(mover, addr, bytes, false, &use, other, &afar);
	if (!err)
		replace(store, run, other);
	return err;
}

int glk_move_home(struct glk_mover *mover, uint32_t run)
{
	struct glk_store *store = &mover->store;
	struct glk_store_run *first = glk_store_at(store, run);
	int err = 0;

	first->hashed = false;
	for (uint32_t id = run, next; id && !err; id = next) {
		next = glk_store_at(store, id)->next;
		if (glk_store_is_afar(store, glk_store_at(store, id)))
			err = move_run_home(mover, id);
	}
	/* who has it back does so behind this */
	first->written = used_by(mover, enter(mover, mover->out)).tick;
	glk_poke_relaxed(&first->afar, glk_store_afar(store, run));
	if (store->pack && !first->afar)
		glk_pack_note(store->pack, run);
	return err;
}

int glk_move_back(struct glk_mover *mover, uint32_t run, uint64_t from, uint64_t bytes,
	uint64_t addr, struct glk_use *ret_use)
{
	struct glk_stream *out = enter(mover, mover->out);
	struct glk_stream *back = enter(mover, mover->back);
	struct glk_store_run *first = glk_store_at(&mover->store, run);
	struct glk_use written = glk_stream_use(out, first->written);
	bool afar;
	int err;

	first->readers++;
	err = order(mover, &written, enter(mover, glk_mover_entry(mover, false, bytes)));
	if (!err)
		err = copy(mover, left_of(&mover->store, run, from, bytes, addr), false,
			true, &afar);
	first->readers--;
	*ret_use = used_by(mover, back);
	first->read = ret_use->tick;
	return err;
}

int glk_move_lend(struct glk_mover *mover, uint32_t run, struct glk_stream *reader)
{
	struct glk_store_run *first = glk_store_at(&mover->store, run);
	struct glk_use written = glk_stream_use(enter(mover, mover->out), first->written);
	int err = order(mover, &written, reader);

	first->readers += !err;
	return err;
}

void glk_move_places(const struct glk_mover *mover, uint32_t run, uint64_t from,
	uint64_t bytes, uint64_t *ret_places)
{
	struct glk_left left = left_of(&mover->store, run, from, bytes, 0);

	while (left.bytes) {
		struct glake_copy_range r;
		uint64_t at = left.addr;
		uint8_t near;

		if (!gather(&mover->store, &left, false, 1, &r, &near))
			return;
		for (uint64_t in = 0; in < r.bytes; in += GLK_STORE_CHUNK)
			ret_places[(at + in) / GLK_STORE_CHUNK] = (uintptr_t)r.src + in;
	}
}

void glk_move_lent(struct glk_mover *mover, uint32_t run, struct glk_stream *reader)
{
	struct glk_store *store = &mover->store;
	struct glk_stream *back = enter(mover, mover->back);
	struct glk_store_run *first = glk_store_at(store, run);
	struct glk_use use = used_by(mover, reader);

	if (order(mover, &use, back))
		abandon(mover, &use);
	first->readers--;
	first->read = used_by(mover, back).tick;
	for (uint32_t id = run; id; id = glk_store_at(store, id)->next) {
		struct glk_store_piece *p = &store->piece[glk_store_at(store, id)->piece];

		p->read = p->read < first->read ? first->read : p->read;
	}
}

int glk_move_across(struct glk_mover *mover, uint64_t to, uint64_t from, uint64_t bytes,
	bool out, uint64_t relays, struct glk_use *use)
{
	struct glk_stream *stream = enter(mover, out ? mover->out : mover->back);
	/* an address of it is read alone */
	struct glake_copy_range range = {.dst = (void *)(uintptr_t)to,
		.src = (void *)(uintptr_t)from,
		.bytes = bytes};
	struct glk_io_copy copy = {.ranges = &range,
		.count = 1,
		.relays = relays,
		.gpu = mover->streams->device,
		.is_up = out,
		.is_known = true};
	int err = order(mover, use, stream);

	if (err)
		return err;
	mover->queued += out ? bytes : 0;
	glk_lock_pause(mover->streams->gpu);
	err = carry(mover, out ? &mover->out_channel : &mover->back_channel, &copy);
	glk_lock_resume(mover->streams->gpu);
	*use = used_by(mover, stream);
	if (err)
		abandon(mover, use);
	return err;
}
