/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies over several links, whatever the driver refuses: no byte is wrong that is not told. */
#include "unit/api/copy_rig.h"

/* Faults that are tried whatever comes of them. */
#define FAULTS_LEAST 20

/* Where the driver does not tell what links carry it is measured, with memory of the library alone. */
static void measured(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct glk_node *target;
	struct glk_io *io;
	uint64_t held;

	begin(settings);
	io = &context->io;
	glk_fault_set(context->drv, "link_get:from=1:err=EOPNOTSUPP");
	held = glk_load_relaxed(&glk_pool_gpu(&context->pool, 0)->held);
	ok(round_trip(3 * MIB), "unknown links");
	ok(io->gpu[1].measured && io->gpu[3].measured && !io->gpu[0].measured,
		"are measured once they are used");
	ok(io->gpu[1].down.rate > 0.1 && io->gpu[1].leave.rate > 0.1,
		"%.1f and %.1f bytes a ns", io->gpu[1].down.rate, io->gpu[1].leave.rate);
	is_int((int64_t)glk_load_relaxed(&glk_pool_gpu(&context->pool, 0)->held),
		(int64_t)held, "the target has as much as before");
	ok(round_trip(3 * MIB), "and again");
	end();
	begin(settings);
	io = &context->io;
	target = glk_pool_gpu(&context->pool, 0);
	glk_fault_set(context->drv, "link_get:from=1:err=EOPNOTSUPP");
	glk_store_relaxed(&target->budget, glk_load_relaxed(&target->held));
	ok(round_trip(3 * MIB), "and where the target has no room for it");
	ok(io->gpu[1].measured && io->gpu[1].leave.rate == 390,
		"the link between GPUs is taken to be what it was");
	end();
	begin(settings);
	glk_fault_set(context->drv, "link_get:from=1;stream_sync:from=1:len=2");
	tap_expect_log(1);
	ok(round_trip(3 * MIB), "where what was queued cannot be waited for");
	ok(context->io.gpu[1].off && !context->io.gpu[2].off, "there is no such path");
	end();
}

/* What was not measured before the first piece is not measured later, over slots that are read still. */
static void measured_never(void)
{
	static const char *const settings[] = {MANY, "soft.streams=worker", NULL};
	struct CUstream_st *hop;
	struct glk_drv *drv;

	begin(settings);
	drv = context->drv;
	fill(host, ROOM);
	glk_fault_set(drv, "link_get:from=1:err=EOPNOTSUPP;host_lock:from=1:err=ENOMEM");
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, NULL) | sync_stream(), 0,
		"where nothing can be locked to measure with");
	hop = context->io.gpu[0].hop[GLK_IO_DOWN][1];
	glk_soft_hold(drv, 0, hop, true);
	memset(gpu, 0, ROOM);
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, NULL), 0,
		"pieces on their way");
	glk_fault_set(drv, "off");
	is_int(glake_copy(ctx, gpu + MIB, host + MIB, MIB, stream, 0, NULL), 0,
		"and more, where it could be by now");
	ok(!context->io.gpu[1].probe && !context->io.gpu[1].off, "which is not done");
	glk_soft_hold(drv, 0, hop, false);
	ok(!sync_stream() && !memcmp(gpu, host, 2 * MIB), "all bytes arrive");
	end();
}

/* One copy with faults, of which the rule names the n-th call. */
struct outcome {
	int wrong, told, whole, refused;
	uint64_t failed;
};

/* What is told not to have been copied is; then all of it has to be there. */
static int complete(struct glake_copy_job *job, unsigned char *to,
	const unsigned char *from, struct outcome *o)
{
	struct glake_copy_state now = state_of(job);
	struct glake_copy_part part;
	uint64_t sum = 0;
	int wrong = now.stage == GLAKE_COPY_QUEUED;

	o->told += now.stage == GLAKE_COPY_FAILED;
	o->whole += now.stage == GLAKE_COPY_DONE;
	wrong += (now.stage == GLAKE_COPY_FAILED) != (now.failed_parts > 0);
	wrong += glake_copy_wait(job, -1) != now.error;
	wrong += !now.error != !now.failed_parts;
	wrong += glake_copy_failed(job, now.failed_parts, &part) != -ENOENT;
	for (uint32_t i = 0; i < now.failed_parts; i++) {
		wrong += glake_copy_failed(job, i, &part) != 0;
		memcpy(to + part.offset, from + part.offset, part.bytes);
		sum += part.bytes;
	}
	return wrong + (sum != now.failed) + (memcmp(to, from, now.bytes) != 0);
}

static void try_one(bool up, const char *form, unsigned n, struct outcome *o)
{
	static const char *const settings[] = {
		MANY, "soft.gpus=3", "soft.streams=random", NULL};
	struct glake_copy_job *job = NULL;
	unsigned char *to, *from;
	char rule[256];
	uint64_t calls;

	begin(settings);
	to = up ? other : gpu;
	from = up ? gpu : host;
	fill(from, MIB);
	memset(to, 0, MIB);
	snprintf(rule, sizeof(rule), form, n);
	glk_fault_set(context->drv, rule);
	if (glake_copy(ctx, to, from, MIB - 3, stream, 0, &job)) {
		o->refused++;
		job = NULL;
	}
	glk_fault_count(context->drv, &calls, &o->failed);
	glk_fault_set(context->drv, "off");
	sync_stream();
	if (job)
		o->wrong += complete(job, to, from, o) + glake_copy_close(job);
	o->wrong += to[MIB - 3] != 0;
	for (int device = 0; device < 3; device++)
		o->wrong += context->drv->ops->device_sync(context->drv, device) != 0;
	/* what is left of the paths goes on as if nothing had been */
	fill(from, MIB);
	o->wrong += glake_copy(ctx, to, from, MIB, stream, 0, NULL) || sync_stream() ||
		memcmp(to, from, MIB);
	for (int device = 0; device < 3; device++)
		tap_expect_log(context->io.gpu[device].off);
	/* a device that is lost takes no event back, be it that of a job */
	if (strstr(form, "sticky") && o->refused)
		tap_expect_log(!ended());
	else
		o->wrong += !ended();
}

/* What is called to measure links; what gives memory back is not refused. */
#define MEASURING                                                                         \
	"link_get:from=1;copy:nth=%1$u;create:nth=%1$u;map:nth=%1$u;set_access:nth=%1$u;" \
	"reserve:nth=%1$u;host_lock:nth=%1$u;stream_sync:nth=%1$u"

/* The n-th call fails, for some n, beside those that always do: all arrives, or what did not is told; nothing stays behind. */
static void faults(const char *form, uint64_t always)
{
	unsigned step = tap_on_valgrind() ? 40 : 12;

	for (int up = 0; up < 2; up++) {
		struct outcome o = {.failed = always + 1};
		unsigned n = 0, tries = 0;

		for (; o.failed > always || n < FAULTS_LEAST; tries++) {
			int before = o.wrong;

			n += 1 + (unsigned)(dice() % (n < FAULTS_LEAST ? 3 : step));
			try_one(up, form, n, &o);
			if (o.wrong > before)
				tap_note("call %u", n);
		}
		ok(!o.wrong, "%s, %s: no byte is wrong that is not told", form,
			up ? "up" : "down");
		ok(n >= FAULTS_LEAST && o.whole + o.told + o.refused == (int)tries,
			"%u tries: %d copied whole, %d in part, %d refused", tries,
			o.whole, o.told, o.refused);
	}
}

/* Staging memory that gets no rights and is not unmapped: nobody has it, and it is counted until it goes. */
static void staging_is_kept(void)
{
	static const char *const settings[] = {MANY, "io.lend=1", NULL};
	struct glk_node *node;
	uint64_t before;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	node = glk_pool_gpu(&context->pool, 1);
	before = glk_load_relaxed(&node->held);
	tap_expect_log(1);
	glk_fault_set(context->drv, "set_access:nth=1:err=ENOMEM;unmap:nth=1:err=EIO");
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, NULL) | sync_stream(), 0,
		"a copy, while staging memory gets no rights and stays mapped");
	glk_fault_set(context->drv, "off");
	ok(!memcmp(gpu, host, ROOM), "every byte");
	ok(context->io.gpu[1].off, "the link is not used");
	is_int((int64_t)(glk_load_relaxed(&node->held) - before), 2 * MIB,
		"and what the driver keeps is counted");
	is_int(glake_copy(ctx, other, gpu, ROOM, stream, 0, NULL) | sync_stream(), 0,
		"another copy");
	is_int((int64_t)(glk_load_relaxed(&node->held) - before), 2 * MIB,
		"takes no more of it");
	end();
}

/* A relay hands back what lies behind the direct path's piece in memory, and not in the list: told of apart. */
static void told_apart(void)
{
	static const char *const settings[] = {MANY, "soft.gpus=2", NULL};
	const size_t piece = 64 * KIB;
	struct glake_copy_range r[] = {{gpu, host, piece}, {gpu + MIB, host + MIB, piece},
		{gpu + piece, host + piece, piece}};
	struct glake_copy_part part;
	struct glake_copy_job *job;
	uint64_t lost = 0;

	begin(settings);
	for (int i = 0; i < 3; i++)
		r[i].dst = gpu + ((unsigned char *)r[i].src - host);
	is_int(glake_copy_list(ctx, r, 3, stream, 0, &job) | sync_stream(), 0,
		"ranges of which the last is behind the first in memory");
	is_int(state_of(job).paths, 2, "over two links");
	glake_copy_close(job);
	glk_fault_set(context->drv, "copy:from=1:err=EIO");
	tap_expect_log(1);
	is_int(glake_copy_list(ctx, r, 3, stream, 0, &job), 0,
		"again, and both links fail");
	glk_fault_set(context->drv, "off");
	is_int(state_of(job).stage, GLAKE_COPY_FAILED, "it has failed");
	is_int((int64_t)state_of(job).failed, 3 * (int64_t)piece, "all of it");
	for (uint32_t i = 0; !glake_copy_failed(job, i, &part); i++)
		for (uint64_t at = part.offset; at < part.offset + part.bytes;
			at += piece)
			lost |= UINT64_C(1) << at / piece;
	is_int((int64_t)lost, 7, "each part is told of");
	glake_copy_close(job);
	end();
}

/* Over one link a list is queued up to the range that is refused; the rest is one part. */
static void list_cut(void)
{
	static const char *const settings[] = {"soft.gpus=1", "driver.fault=off", NULL};
	struct glake_copy_range r[3];
	struct glake_copy_part part;
	struct glake_copy_job *job;

	begin(settings);
	for (size_t i = 0; i < 3; i++)
		r[i] = (struct glake_copy_range){gpu + i * KIB, host + i * KIB, KIB};
	fill(host, 3 * KIB);
	memset(gpu, 0, 3 * KIB);
	glk_fault_set(context->drv, "copy:nth=2:err=EIO");
	is_int(glake_copy_list(ctx, r, 3, stream, 0, &job) | sync_stream(), 0,
		"a list of which the second range is refused");
	glk_fault_set(context->drv, "off");
	is_int(state_of(job).stage, GLAKE_COPY_FAILED, "it has failed");
	is_int(glake_copy_failed(job, 0, &part), 0, "in a part");
	ok(part.offset == KIB && part.bytes == 2 * KIB, "behind the first range");
	is_int(glake_copy_failed(job, 1, &part), -ENOENT, "and in no other");
	ok(!memcmp(gpu, host, KIB), "which is there");
	glake_copy_close(job);
	glk_fault_set(context->drv, "copy:nth=1:err=EIO");
	is_int(glake_copy_list(ctx, r, 3, stream, 0, NULL), -EIO,
		"and one whose first is");
	glk_fault_set(context->drv, "off");
	end();
}

/* How often the link of the other GPU is not used any more, after one of the first calls of a kind has failed. */
static int blamed(const char *call, const char *err, const char *piece, size_t bytes)
{
	const char *const settings[] = {MANY, "soft.gpus=2", piece, NULL};
	int count = 0, wrong = 0;

	for (int n = 1; n <= 12; n++) {
		char rule[64];

		begin(settings);
		fill(host, bytes);
		wrong += glake_copy(ctx, gpu, host, bytes, stream, 0, NULL) != 0;
		wrong += context->io.gpu[1].off;
		snprintf(rule, sizeof(rule), "%s:nth=%d:err=%s", call, n, err);
		glk_fault_set(context->drv, rule);
		glake_copy(ctx, gpu, host, bytes, stream, 0, NULL);
		glk_fault_set(context->drv, "off");
		count += context->io.gpu[1].off;
		tap_expect_log(context->io.gpu[1].off);
		fill(host, bytes);
		wrong += glake_copy(ctx, gpu, host, bytes, stream, 0, NULL) != 0;
		wrong += sync_stream() || memcmp(gpu, host, bytes) != 0;
		wrong += !ended();
	}
	ok(!wrong, "one %s is refused with %s, and copies before and behind are right",
		call, err);
	return count;
}

/* Memory that the driver does not know is no fault of a link. */
static void whose_fault(void)
{
	static const char few[] = "io.piece=64KiB"; /* for the slots that there are */

	is_int(blamed("copy", "EINVAL", few, MIB), 0, "which is no fault of the link");
	is_int(blamed("copy", "EIO", few, MIB), 8,
		"which is, of all but the direct ones");
	is_int(blamed("event_record", "EINVAL", few, MIB), 1,
		"and so it is behind the last piece");
	is_int(blamed("event_record", "EINVAL", "io.piece=256KiB", ROOM), 4,
		"and behind each whose slot is needed again");
}

int main(void)
{
	if (tap_one_thread_takes_long())
		tap_skip_all("takes too long here");
	tap_plan_later();
	copy_rig_start();
	measured();
	measured_never();
	faults("any:nth=%u:err=EIO", 0);
	faults("any:nth=%u:err=EINVAL", 0);
	faults(MEASURING, 1);
	faults("copy:from=%u:err=EIO", 0);
	faults("copy:nth=%u:sticky=1", 0);
	staging_is_kept();
	told_apart();
	whose_fault();
	list_cut();
	return tap_done();
}
