/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tokens of sequences that others have, here in the same process; and lanes that are a page each. */
#include "kv_parts.h"

#include <glake/share.h>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#define MOST 16

struct out {
	struct glake_piece piece[MOST];
	size_t count, bytes;
};

static int files(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static int export(struct glake_kv *kv, uint32_t slot, uint32_t lane, uint32_t first,
	uint32_t tokens, int reads, struct out *out)
{
	int err = glake_kv_export(
		kv, slot, lane, first, tokens, reads, out->piece, MOST, &out->count);

	out->bytes = 0;
	for (size_t i = 0; !err && i < out->count; i++)
		out->bytes += out->piece[i].length;
	return err;
}

static void close_all(const struct out *out)
{
	for (size_t i = 0; i < out->count; i++)
		close(out->piece[i].fd);
}

static unsigned char *import(const struct out *out)
{
	void *here = NULL;

	if (glake_import(ctx, 0, out->piece, out->count, out->bytes, &here))
		tap_bail(record().text);
	return here;
}

static void fill(struct glake_kv *kv, uint32_t lanes, uint32_t slot, uint32_t from,
	uint32_t to, int value)
{
	for (uint32_t lane = 0; lane < lanes; lane++) {
		for (uint32_t t = from; t < to; t++)
			memset(at(kv, lane, slot, t), value, 2048);
	}
}

static const struct glake_kv_options layers = {.sz = sizeof(layers),
	.slots = 4,
	.tokens = 4096,
	.lanes = 3,
	.lane_bytes = 2048,
	.prefixes = 2};

/* A lane of a sequence, or some of its tokens, and what may not be done with it meanwhile. */
static void leaves(void)
{
	struct glake_kv_sequence q = {.sz = sizeof(q)};
	uint32_t one, two, unused;
	struct glake_kv *kv;
	unsigned char *here;
	struct out out;
	int before;

	begin("soft.memory=1GiB");
	kv = make(&layers);
	before = files();
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(export(kv, one, 1, 0, 1, 0, &out), -ERANGE, "without tokens");
	is_int(glake_kv_grow(kv, one, 1500, stream), 0, "it grows");
	fill(kv, 3, one, 0, 1500, 1);
	memset(at(kv, 1, one, 1000), 2, 2048);
	is_int(export(kv, 7, 1, 0, 1, 0, &out), -EINVAL, "no sequence");
	is_int(export(kv, 99, 1, 0, 1, 0, &out), -EINVAL, "no slot");
	is_int(export(kv, one, 3, 0, 1, 0, &out), -EINVAL, "no lane");
	is_int(export(kv, one, 1, 0, 0, 0, &out), -ERANGE, "no tokens");
	is_int(export(kv, one, 1, 1000, 1049, 0, &out), -ERANGE, "more than there are");
	is_int(export(kv, one, 1, UINT32_MAX, UINT32_MAX, 0, &out), -ERANGE, "far more");
	is_int(glake_kv_export(NULL, one, 1, 0, 1, 0, out.piece, MOST, &out.count),
		-EINVAL, "no cache");
	is_int(glake_kv_export(kv, one, 1, 0, 1, 0, NULL, MOST, &out.count), -EINVAL,
		"no list");
	is_int(glake_kv_export(kv, one, 1, 0, 1, 0, out.piece, MOST, NULL), -EINVAL,
		"no place for their number");
	is_int(glake_kv_export(kv, one, 1, 0, 1500, 0, out.piece, 1, &out.count), -EINVAL,
		"a short list");
	ok(files() == before && !told(kv).outs, "which leave nothing out");
	is_int(glake_kv_free(kv, one, stream), 0, "it may end");
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "and begin");
	is_int(glake_kv_grow(kv, one, 1500, stream), 0, "and grow");
	fill(kv, 3, one, 0, 1500, 1);
	memset(at(kv, 1, one, 1000), 2, 2048);
	is_int(export(kv, one, 1, 1000, 500, 0, &out), 0, "500 tokens of a lane");
	ok(out.count == 2 && out.piece[0].offset == (size_t)1000 * 2048 &&
			out.piece[0].length == 24 * 2048 &&
			out.piece[1].length == 476 * 2048 &&
			out.piece[0].page_size == PAGE && !out.piece[0].flags,
		"lie in two pages");
	here = import(&out);
	close_all(&out);
	ok(here[0] == 2 && here[2048] == 1 && here[499 * 2048] == 1, "and are theirs");
	memset(at(kv, 1, one, 1499), 3, 2048);
	here[2048] = 4;
	ok(here[499 * 2048] == 3 && at(kv, 1, one, 1001)[0] == 4, "as one memory");
	glake_kv_sequence_get(kv, one, &q);
	ok(q.outs == 1 && told(kv).outs == 1, "it is out");
	is_int(export(kv, one, 2, 0, 1, 1, &out), 0, "and another lane");
	close_all(&out);
	is_int(glake_kv_export_end(kv, one, 0), -EINVAL, "not that one");
	is_int(glake_kv_export_end(kv, one, 3), -EINVAL, "none");
	is_int(glake_kv_export_end(kv, 3, 0), -EINVAL, "nor of no sequence");
	is_int(glake_kv_export_end(NULL, one, 1), -EINVAL, "nor of no cache");
	is_int(glake_kv_export_end(kv, one, 2), 0, "which ends");
	is_int(glake_kv_export_end(kv, one, 2), -EINVAL, "once");
	is_int(glake_kv_trim(kv, one, 10, stream), -EBUSY, "it is not cut");
	is_int(glake_kv_free(kv, one, stream), -EBUSY, "nor ended");
	is_int(glake_kv_spill(kv, one, stream), -EBUSY, "nor sent away");
	is_int(glake_kv_close(kv, stream), -EBUSY, "nor its cache");
	is_int(glake_spill(ctx, told(kv).base, stream), -EBUSY, "nor the block of that");
	is_int(glake_suspend(ctx, 0, NULL), 0, "the GPU is suspended without it");
	is_int((int64_t)figures().away, 0, "  which stays");
	is_int(glake_resume(ctx, 0, NULL), 0, "and resumed");
	is_int(glake_kv_grow(kv, one, 3000, stream), 0, "it grows");
	is_int(glake_kv_fork(kv, one, 2500, 4096, stream, &two), 0, "and is forked");
	settle();
	ok(here[0] == 2 && at(kv, 1, two, 1001)[0] == 4, "with what they wrote");
	is_int(glake_kv_free(kv, two, stream), 0, "the fork is not out");
	is_int(export(kv, one, 0, 0, 2500, 0, &out), 0, "what was shared");
	ok(out.piece[0].flags == GLAKE_PIECE_READ, "  may only be read");
	close_all(&out);
	is_int(glake_kv_export_end(kv, one, 0), 0, "ends");
	is_int(glake_import_end(ctx, here, stream), 0, "they are done");
	is_int(glake_kv_export_end(kv, one, 1), 0, "and say so");
	is_int(glake_kv_spill(kv, one, stream), 0, "it goes");
	is_int(export(kv, one, 2, 0, 2500, 0, &out), -EBUSY, "is not given from there");
	is_int(glake_kv_fetch(kv, one, stream), 0, "and comes");
	is_int(glake_kv_new(kv, 100, stream, &unused), 0, "another one");
	is_int(glake_kv_free(kv, one, stream), 0, "it ends");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int(files(), before, "no descriptor is left");
	is_int((int64_t)figures().live, 0, "nothing is live");
	finish();
}

/* An importer that may not write: what it queues there is refused. */
static void is_read(void)
{
	unsigned char *here, copy[2048];
	struct glake_kv *kv;
	uint32_t one;
	struct out out;
	void *none = NULL;

	begin("soft.memory=1GiB");
	kv = make(&layers);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 1500, stream), 0, "grows");
	fill(kv, 3, one, 0, 1500, 5);
	is_int(export(kv, one, 0, 0, 1500, 1, &out), 0, "is given to be read");
	ok(out.piece[0].flags == GLAKE_PIECE_READ &&
			out.piece[1].flags == GLAKE_PIECE_READ,
		"as all pieces say");
	out.piece[1].flags = 0;
	is_int(glake_import(ctx, 0, out.piece, out.count, out.bytes, &none), -EINVAL,
		"not some of them");
	out.piece[1].flags = 2;
	is_int(glake_import(ctx, 0, out.piece, out.count, out.bytes, &none), -E2BIG,
		"nor what nobody knows");
	out.piece[1].flags = GLAKE_PIECE_READ;
	here = import(&out);
	close_all(&out);
	ok(here[0] == 5 && here[1499 * 2048 + 2047] == 5, "it is read");
	is_int(glake_soft_copy(ctx, stream, at(kv, 1, one, 0), here, 2048), 0,
		"by work that is queued");
	settle();
	ok(glake_soft_fill(ctx, stream, here, 1, 2048) < 0, "and not written");
	ok(glake_soft_copy(ctx, stream, here, at(kv, 1, one, 0), 2048) < 0, "by any");
	memcpy(copy, here, sizeof(copy));
	ok(copy[0] == 5 && at(kv, 0, one, 0)[0] == 5, "so that it is as it was");
	is_int(glake_import_end(ctx, here, stream), 0, "done");
	is_int(glake_kv_export_end(kv, one, 0), 0, "and back");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Windows keep what is out, states are one piece, and all lanes of a token go together. */
static void by_rule(void)
{
	const struct glake_kv_lane lanes[] = {{.bytes = 2048},
		{.bytes = 2048, .rule = GLAKE_KV_WINDOW, .window = 1024},
		{.bytes = 3 * MIB, .rule = GLAKE_KV_STATE}};
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 2,
		.tokens = 16384,
		.lanes = 3,
		.lane = lanes,
		.prefixes = 1};
	struct glake_kv *kv;
	uint32_t one, two, tokens;
	struct out out;

	begin("soft.memory=1GiB");
	kv = make(&o);
	is_int(glake_kv_new(kv, 16384, stream, &one), 0, "a sequence");
	is_int(export(kv, one, 2, 0, 1, 0, &out), 0, "its state");
	ok(out.count == 2 && out.bytes == 3 * MIB, "is 3 MiB");
	close_all(&out);
	is_int(glake_kv_new(kv, 16384, stream, &two), 0, "another one");
	is_int(glake_kv_grow(kv, two, 5000, stream), 0, "with tokens");
	is_int(glake_kv_publish(kv, two, 5000, "k", 1, stream), 0, "is published");
	is_int(glake_kv_adopt(kv, one, "k", 1, stream, &tokens), -EBUSY,
		"and not written where somebody has the state");
	is_int(glake_kv_export_end(kv, one, 2), 0, "  who is done");
	is_int(glake_kv_adopt(kv, one, "k", 1, stream, &tokens), 0, "then it is");
	is_int(export(kv, two, 1, 0, 5000, 0, &out), -ERANGE, "a window is short");
	is_int(export(kv, two, 1, 3976, 1024, 0, &out), 0, "and has its last tokens");
	close_all(&out);
	is_int(glake_kv_grow(kv, two, 9000, stream), 0, "it goes on");
	is_int(export(kv, two, 1, 3976, 5024, 0, &out), 0, "and keeps them");
	close_all(&out);
	is_int(glake_kv_export_end(kv, two, 1), 0, "one is done");
	is_int(glake_kv_export_end(kv, two, 1), 0, "and the other");
	is_int(glake_kv_grow(kv, two, 9100, stream), 0, "it goes on");
	is_int(export(kv, two, 1, 3976, 5024, 0, &out), -ERANGE, "without");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	o = layers;
	o.flags = GLAKE_KV_TOKEN_FRONT;
	kv = make(&o);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 100, stream), 0, "with lanes of a token in a row");
	is_int(export(kv, one, 2, 10, 5, 0, &out), 0, "of which five");
	ok(out.bytes == (size_t)5 * 3 * 2048 &&
			out.piece[0].offset == (size_t)10 * 3 * 2048,
		"are all lanes");
	close_all(&out);
	is_int(glake_kv_export_end(kv, one, 0), 0, "whichever of them is named");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
}

/* Lanes of one page: all at once, nothing shared, nothing that goes. */
static void single(void)
{
	struct glake_kv_options o = layers;
	struct glake_kv_figures f = {.sz = sizeof(f)};
	struct glake_block block = {.sz = sizeof(block)};
	uint32_t one, two, three, tokens;
	struct glake_kv_place place = {.sz = sizeof(place)};
	struct glake_kv *kv = NULL;
	uint64_t bytes = 0;
	unsigned char *here;
	struct out out;

	o.flags = GLAKE_KV_SINGLE;
	o.ahead = 10;
	begin("soft.memory=512MiB");
	is_int(glake_kv_bytes(&o, 1, &bytes), 0, "what a sequence takes");
	is_int((int64_t)bytes, 3 * 4096 * 2048, "  is all that it may have");
	o.limit = 6 * bytes - 1;
	is_int(glake_kv_open(ctx, 0, &o, stream, &kv), -EDQUOT, "a limit below all");
	o.limit = 6 * bytes;
	kv = make(&o);
	is_int((int64_t)figures().live, (int64_t)(6 * bytes), "all of it is there");
	glake_kv_figures_get(kv, &f);
	is_int((int64_t)f.held, (int64_t)(6 * bytes), "and held");
	for (uint32_t i = 0; i < 3; i++) {
		glake_kv_place_get(kv, i, &place);
		if (glake_query(ctx, place.base, &block))
			tap_bail(record().text);
		ok(block.size == 2 * bytes && block.pages == 1 &&
				block.can & GLAKE_CAN_CONTIGUOUS,
			"lane %u is one page", i);
	}
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 2500, stream), 0, "grows");
	fill(kv, 3, one, 0, 2500, 1);
	is_int(glake_kv_fork(kv, one, 2400, 4096, stream, &two), 0, "is forked");
	is_int(glake_kv_publish(kv, one, 2500, "k", 1, stream), 0, "and published");
	is_int(glake_kv_new(kv, 4096, stream, &three), 0, "for another one");
	is_int(glake_kv_adopt(kv, three, "k", 1, stream, &tokens), 0, "who has it");
	settle();
	fill(kv, 3, one, 0, 2500, 2);
	ok(at(kv, 2, two, 2399)[0] == 1 && at(kv, 0, three, 2499)[2047] == 1 &&
			at(kv, 1, three, 0)[0] == 1,
		"as copies");
	is_int(glake_kv_trim(kv, two, 100, stream), 0, "they are cut anywhere");
	is_int(glake_kv_spill(kv, two, stream), -EOPNOTSUPP, "and do not go away");
	is_int(export(kv, one, 1, 2000, 500, 1, &out), 0, "500 tokens are given");
	ok(out.count == 1 && out.piece[0].page_size == 2 * bytes &&
			out.piece[0].offset == (size_t)2000 * 2048,
		"in one piece");
	here = import(&out);
	close_all(&out);
	ok(here[0] == 2 && here[499 * 2048] == 2, "and read");
	is_int(glake_kv_free(kv, one, stream), -EBUSY, "it stays meanwhile");
	is_int(glake_kv_close(kv, stream), -EBUSY, "as all does");
	is_int(glake_import_end(ctx, here, stream), 0, "they are done");
	is_int(glake_kv_export_end(kv, one, 0), -EINVAL, "not with that lane");
	is_int(glake_kv_export_end(kv, one, 1), 0, "but with that one");
	is_int(glake_kv_withdraw(kv, 0, "k", 1, stream), 0, "withdrawn");
	is_int(glake_kv_free(kv, one, stream), 0, "it ends");
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "and another one begins");
	glake_kv_figures_get(kv, &f);
	ok(f.held == 6 * bytes && !f.shared && !f.outs && f.sequences == 3,
		"with what was there");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	is_int((int64_t)figures().live, 0, "nothing is live");
	o.limit = 0;
	o.slots = 40;
	is_int(glake_kv_open(ctx, 0, &o, stream, &kv), -ENOMEM, "more than there is");
	is_int((int64_t)figures().live, 0, "  leaves nothing");
	finish();
}

struct giver {
	struct glake_kv *kv;
	uint32_t slot;
	bool torn;
};

static void *gives(void *arg)
{
	struct giver *g = arg;
	struct out out;

	for (int i = 0; i < 60 && !g->torn; i++) {
		g->torn = export(g->kv, g->slot, 1, 0, 1500, 1, &out) != 0;
		if (g->torn)
			break;
		close_all(&out);
		g->torn = glake_kv_export_end(g->kv, g->slot, 1) != 0;
	}
	return NULL;
}

/* One leaves and is given back while another one of its cache goes to the host and comes. */
static void beside_others(void)
{
	struct giver g = {.torn = false};
	pthread_t thread;
	uint32_t other;
	bool torn = false;

	begin("soft.memory=256MiB");
	g.kv = make(&layers);
	if (glake_kv_new(g.kv, 4096, stream, &g.slot) ||
		glake_kv_grow(g.kv, g.slot, 1500, stream) ||
		glake_kv_new(g.kv, 4096, stream, &other) ||
		glake_kv_grow(g.kv, other, 2000, stream))
		tap_bail(record().text);
	fill(g.kv, 3, g.slot, 0, 1500, 1);
	fill(g.kv, 3, other, 0, 2000, 2);
	if (pthread_create(&thread, NULL, gives, &g))
		tap_bail("no thread");
	for (int i = 0; i < 40 && !torn; i++)
		torn = glake_kv_spill(g.kv, other, stream) ||
			glake_kv_fetch(g.kv, other, stream) ||
			at(g.kv, 2, other, 1999)[2047] != 2;
	pthread_join(thread, NULL);
	ok(!torn && !g.torn, "neither is in the way of the other");
	ok(!told(g.kv).outs && at(g.kv, 1, g.slot, 1499)[0] == 1, "all is back");
	is_int(glake_kv_close(g.kv, stream), 0, "all ends");
	finish();
}

/* A context that ends with sequences that are out, and pages that are not made for it. */
static void ends(void)
{
	const char *const settings[] = {
		"soft.memory=256MiB", "map.span=64GiB", "pool.export=no", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake_kv *kv;
	uint32_t one;
	struct out out;

	if (glake_open(&options, &ctx) || glake_stream_new(ctx, 0, &stream))
		tap_bail(record().text);
	kv = make(&layers);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 10, stream), 0, "whose pages stay here");
	is_int(export(kv, one, 0, 0, 10, 1, &out), -EOPNOTSUPP, "is not given");
	is_int(told(kv).outs, 0, "and not out");
	is_int(glake_kv_close(kv, stream), 0, "all ends");
	finish();
	begin("soft.memory=256MiB");
	kv = make(&layers);
	is_int(glake_kv_new(kv, 4096, stream, &one), 0, "a sequence");
	is_int(glake_kv_grow(kv, one, 10, stream), 0, "with tokens");
	is_int(export(kv, one, 0, 0, 10, 1, &out), 0, "is given");
	close_all(&out);
	glake_stream_free(ctx, 0, stream);
	is_int(glake_close(ctx, NULL), 0, "the context ends");
	is_int(export(kv, one, 0, 0, 10, 1, &out), -ESTALE, "nothing is given then");
	is_int(glake_kv_export_end(kv, one, 0), -ESTALE, "nor back");
	is_int(glake_kv_close(kv, NULL), 0, "and the cache goes");
}

int main(void)
{
	tap_plan_later();
	leaves();
	is_read();
	by_rule();
	single();
	beside_others();
	ends();
	return tap_done();
}
