/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Four processes on one GPU by leave of a broker, which runs in a fifth: memory that lies idle in one goes to another,
 * so does what a killed one held, the weights of a model exist once, and so do equal pages of models that differ. Every word is checked by kernels. All are
 * forked before CUDA is touched here, and do what they are told.
 */
#include "share/broker.h"
#include "kernels.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <glake/glake.h>

#define MIB	  ((size_t)1 << 20)
#define GIB	  ((size_t)1 << 30)
#define WORKERS	  4
#define SPARES	  3 /* no process that has touched CUDA makes another */
#define BLOCKS	  160
#define PART	  (64 * MIB)
#define PARTS	  128
#define TOTAL	  (24 * GIB)
#define MODEL	  (4 * GIB)
#define PIECE	  (32 * MIB) /* of a model, with a serial of its own */
#define QUESTIONS 2000

enum deed {
	OPEN,
	ALLOC,
	FILL,
	CHECK,
	FREE,
	PUBLISH,
	ATTACH,
	ATTACH_ALL,
	DETACH,
	UNSEAL,
	TAG,	 /* all blocks from now on are of a workspace */
	AWAY,	 /* whose contents need not last, */
	AGAIN,	 /* and which has its memory again */
	MODELED, /* an elastic block */
	SEAL,
	WRITE, /* and read a model; of a fine-tune each tenth piece is another */
	READ,
	END
};

struct order {
	enum deed deed;
	int block, count; /* the first, and how many */
	size_t size;	  /* of each */
	uint32_t flags, serial;
	char key[32]; /* of a name, which the number of the block follows */
};

struct report {
	int err;
	int64_t wrong;
	uint64_t saved; /* by a seal */
	double seconds;
};

static char path[108];
static struct gpu_work work;
static struct glake *ctx;
static void *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static uint32_t tag;

static int open_context(void)
{
	char broker[160];
	const char *settings[] = {broker, "share.wait=20s", "log.level=error", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.settings = settings};
	int err;

	snprintf(broker, sizeof(broker), "share.broker=%s", path);
	gpu_open();
	err = glake_open(&options, &ctx);
	gpu_work_init(&work);
	return err;
}

static int64_t pass(const struct order *o, bool check)
{
	for (int i = o->block; i < o->block + o->count; i++)
		gpu_pass(&work, &blocks[i], 1, sizes[i],
			o->serial + (uint32_t)(i - o->block), check, NULL);
	return (int64_t)gpu_counters_take(&work).wrong;
}

/* All of them in one call. */
static int attach_all(const struct order *o)
{
	static char keys[BLOCKS][48];
	const char *names[BLOCKS];
	uint64_t stamps[BLOCKS];

	for (int i = 0; i < o->count; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%s%d", o->key, i);
		names[i] = keys[i];
		stamps[i] = o->serial;
	}
	return glake_attach_all(ctx, 0, names, stamps, (size_t)o->count, &sizes[o->block],
		&blocks[o->block]);
}

static int64_t pass_pieces(const struct order *o)
{
	for (size_t i = 0; i < MODEL / PIECE; i++) {
		void *at = (char *)blocks[o->block] + i * PIECE;

		gpu_pass(&work, &at, 1, PIECE,
			(uint32_t)(10000 + 100 * i +
				(o->serial && i % 10 == 0 ? o->serial : 0)),
			o->deed == READ, NULL);
	}
	return (int64_t)gpu_counters_take(&work).wrong;
}

static int modeled(int i)
{
	int err = glake_alloc(ctx, 0, MODEL, NULL, GLAKE_ALLOC_ELASTIC, &blocks[i]);

	return err ? err : glake_commit(ctx, blocks[i], 0, MODEL, NULL, NULL);
}

static int seal(int i, uint64_t *ret_saved)
{
	struct glake_sealed s = {.sz = sizeof(s)};
	int err = glake_seal(ctx, blocks[i], NULL, 0, &s);

	*ret_saved = s.saved;
	tap_note("  looked at %.2f GiB, %.2f saved, %.2f shared, %llu left, %llu differ",
		(double)s.looked / GIB, (double)s.saved / GIB, (double)s.shared / GIB,
		(unsigned long long)s.left, (unsigned long long)s.differ);
	fflush(stdout);
	return err;
}

static int one(const struct order *o, int i)
{
	char key[48];
	int err = 0;

	snprintf(key, sizeof(key), "%s%d", o->key, i - o->block);
	switch (o->deed) {
	case ALLOC:
		sizes[i] = o->size;
		return glake_alloc(ctx, 0, o->size, NULL, o->flags, &blocks[i]);
	case FREE:
		return glake_free(ctx, blocks[i], NULL);
	case PUBLISH:
		return glake_publish(ctx, blocks[i], key, o->serial);
	case ATTACH:
		return glake_attach(ctx, 0, key, o->serial, 0, &sizes[i], &blocks[i]);
	case DETACH:
		return glake_detach(ctx, blocks[i], NULL);
	case UNSEAL:
		return glake_unseal(ctx, blocks[i], NULL);
	default:
		return err;
	}
}

/* What the driver's calls took since, and what a question without an answer takes. */
static void note_calls(const struct order *o, const struct glake_driver_stats *since)
{
	struct glake_driver_stats d = {.sz = sizeof(d)};
	double begin = now_s();
	char key[48];
	size_t size;
	void *ptr;

	for (int i = o->block; i < o->block + o->count; i++) {
		snprintf(key, sizeof(key), "%s%d", o->key, i - o->block);
		glake_attach(ctx, 0, key, o->serial + 1, 0, &size, &ptr);
	}
	tap_note("  the broker's part: %.2f ms", (now_s() - begin) * 1e3);
	glake_driver_stats_get(ctx, &d);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		if (d.calls[i] > since->calls[i])
			tap_note("  %llu x %s: %.2f ms",
				(unsigned long long)(d.calls[i] - since->calls[i]),
				glake_call_name(i),
				(double)(d.ns[i] - since->ns[i]) / 1e6);
	}
	fflush(stdout); /* which a worker that is killed takes with it */
}

static int set_tag(bool has)
{
	int err = has ? glake_tag_open(ctx, "workspace", &tag) : 0;

	return err ? err : glake_tag_set(ctx, has ? tag : 0, NULL);
}

static struct report obey(const struct order *o)
{
	struct glake_driver_stats since = {.sz = sizeof(since)};
	struct report r = {0};
	double begin;

	if (o->deed == ATTACH)
		glake_driver_stats_get(ctx, &since);
	begin = now_s();

	if (o->deed == OPEN)
		r.err = open_context();
	else if (o->deed == TAG)
		r.err = set_tag(o->serial);
	else if (o->deed == AWAY)
		r.err = glake_tag_suspend(ctx, 0, tag, GLAKE_TAG_DROP, NULL);
	else if (o->deed == AGAIN)
		r.err = glake_tag_resume(ctx, 0, tag, NULL);
	else if (o->deed == END)
		r.err = glake_close(ctx, NULL);
	else if (o->deed == FILL || o->deed == CHECK)
		r.wrong = pass(o, o->deed == CHECK);
	else if (o->deed == ATTACH_ALL)
		r.err = attach_all(o);
	else if (o->deed == MODELED)
		r.err = modeled(o->block);
	else if (o->deed == SEAL)
		r.err = seal(o->block, &r.saved);
	else if (o->deed == WRITE || o->deed == READ)
		r.wrong = pass_pieces(o);
	for (int i = o->block; !r.err && i < o->block + o->count; i++)
		r.err = one(o, i);
	r.seconds = now_s() - begin;
	if (o->deed == ATTACH)
		note_calls(o, &since);
	if (r.err)
		gpu_why();
	return r;
}

static int worker(int socket)
{
	struct order o;
	struct report r;

	while (recv(socket, &o, sizeof(o), 0) == (ssize_t)sizeof(o)) {
		r = obey(&o);
		if (send(socket, &r, sizeof(r), MSG_NOSIGNAL) < 0 || o.deed == END)
			return 0;
	}
	return 0;
}

/* ---- Who tells them ---- */

static int sockets[WORKERS + SPARES], spare = WORKERS;
static pid_t child[WORKERS + SPARES], broker;

static void tell(int w, struct order o)
{
	if (send(sockets[w], &o, sizeof(o), MSG_NOSIGNAL) < 0)
		tap_bail("a worker has gone");
}

static struct report hear(int w)
{
	struct report r;

	if (recv(sockets[w], &r, sizeof(r), 0) != (ssize_t)sizeof(r))
		tap_bail("a worker has ended");
	return r;
}

static struct report run(int w, struct order o)
{
	tell(w, o);
	return hear(w);
}

static void start_worker(int w)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		tap_bail("no sockets");
	child[w] = fork();
	if (child[w] < 0)
		tap_bail("no fork");
	if (!child[w]) {
		close(pair[0]);
		_exit(worker(pair[1]));
	}
	close(pair[1]);
	sockets[w] = pair[0];
}

static void kill_worker(int w)
{
	kill(child[w], SIGKILL);
	waitpid(child[w], NULL, 0);
	close(sockets[w]);
}

static size_t free_bytes(struct glk_drv *drv)
{
	size_t free = 0, total = 0;

	must(drv->ops->memory_info(drv, 0, &free, &total), "no memory info");
	return free;
}

/* What a question for leave takes, without the driver. */
static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void time_leave(void)
{
	static struct glk_broker_hello hello = {
		.version = GLK_BROKER_VERSION, .gpus = 1, .self = 1, .name = "asks"};
	struct glk_broker_want want = {.least = GIB, .like = GIB};
	struct glk_broker_bytes give = {.bytes = GIB};
	static double seconds[QUESTIONS];
	char why[GLK_WIRE_WHY_MAX];
	struct glk_wire_frame frame;
	struct glk_wire_peer peer;
	int fd, bell[2], err;

	strcpy(hello.gpu[0].uuid, "none");
	hello.gpu[0].memory = 4 * GIB;
	must(glk_wire_dial(path, 1000, &fd, &peer, why), why);
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, bell), "no sockets");
	err = glk_wire_send(
		fd, GLK_BROKER_HELLO, &hello, sizeof(hello), &bell[1], 1, 1000);
	must(err ? err : glk_wire_receive(fd, &frame, 1000), "no welcome");
	for (int i = 0; i < QUESTIONS; i++) {
		double begin = now_s();

		err = glk_wire_send(
			fd, GLK_BROKER_WANT, &want, sizeof(want), NULL, 0, 1000);
		must(err ? err : glk_wire_receive(fd, &frame, 1000), "no answer");
		seconds[i] = now_s() - begin;
		if (frame.kind != GLK_BROKER_GRANTED)
			tap_bail("no leave");
		must(glk_wire_send(
			     fd, GLK_BROKER_GIVE, &give, sizeof(give), NULL, 0, 1000),
			"not given");
	}
	qsort(seconds, QUESTIONS, sizeof(*seconds), by_time);
	tap_note("leave for 1 GiB: median %.1f us, 99 of 100 in %.1f us",
		seconds[QUESTIONS / 2] * 1e6, seconds[QUESTIONS * 99 / 100] * 1e6);
	close(fd);
	close(bell[0]);
	close(bell[1]);
}

static void time_lent(void)
{
	struct report r;

	r = run(0, (struct order){.deed = ALLOC, .count = 22, .size = GIB});
	is_int(r.err, 0, "one has 22 of 24 GiB");
	tap_note("22 blocks of 1 GiB: %.1f ms each", r.seconds / 22 * 1e3);
	run(0, (struct order){.deed = FILL, .count = 22, .serial = 100});
	run(0, (struct order){.deed = FREE, .count = 22});
	r = run(1, (struct order){.deed = ALLOC, .count = 1, .size = 3 * GIB});
	is_int(r.err, 0, "what lies idle there goes to another");
	tap_note("idle in one to 3 GiB in another's hands: %.1f ms", r.seconds * 1e3);
	for (int i = 1; i < 4; i++) {
		r = run(1,
			(struct order){
				.deed = ALLOC, .block = i, .count = 1, .size = GIB});
		tap_note("and 1 GiB more: %.1f ms", r.seconds * 1e3);
	}
	run(1, (struct order){.deed = FILL, .count = 4, .serial = 200});
	is_int(run(1, (struct order){.deed = CHECK, .count = 4, .serial = 200}).wrong, 0,
		"each word is right there");
	run(1, (struct order){.deed = FREE, .count = 4});
}

/* Two workspaces of which one alone has room, by turns. */
static void time_turns(void)
{
	const struct order alloc = {.deed = ALLOC, .count = 14, .size = GIB};
	struct order space = {.deed = TAG, .serial = 1}, o = {.count = 14};
	double away = 0, again = 0;
	int w;

	is_int(run(0, space).err, 0, "one has a workspace");
	is_int(run(0, alloc).err, 0, "of 14 of 24 GiB");
	is_int(run(0, (struct order){.deed = AWAY}).err, 0, "which need not last");
	is_int(run(1, space).err, 0, "another one");
	is_int(run(1, alloc).err, 0, "has as much");
	for (int turn = 0; turn < 6; turn++) {
		struct report left, back;

		w = turn % 2;
		left = run(!w, (struct order){.deed = AWAY});
		back = run(w, (struct order){.deed = AGAIN});
		o.serial = (uint32_t)turn * 100;
		o.deed = FILL;
		run(w, o);
		o.deed = CHECK;
		ok(!left.err && !back.err && !run(w, o).wrong, "turn %d", turn);
		away += left.seconds / 6;
		again += back.seconds / 6;
	}
	tap_note("14 GiB by turns: left in %.1f ms, had again in %.1f ms", away * 1e3,
		again * 1e3);
	for (w = 1; w >= 0; w--) { /* the second one has the memory */
		if (!w)
			run(w, (struct order){.deed = AGAIN});
		run(w, (struct order){.deed = FREE, .count = 14});
		run(w, (struct order){.deed = TAG});
	}
}

static void time_death(const char *what, size_t held, size_t wanted)
{
	struct report r;
	double begin;
	int count = (int)(held / GIB);

	r = run(2, (struct order){.deed = ALLOC, .count = count, .size = GIB});
	is_int(r.err, 0, what);
	run(2, (struct order){.deed = FILL, .count = count, .serial = 300});
	tell(1, (struct order){.deed = ALLOC, .count = 1, .size = wanted});
	usleep(300000); /* it waits in line by now */
	begin = now_s();
	kill_worker(2);
	r = hear(1);
	tap_note("SIGKILL of %zu GiB to %zu GiB in another's hands: %.1f ms", held / GIB,
		wanted / GIB, (now_s() - begin) * 1e3);
	is_int(r.err, 0, "what a killed process held is had");
	run(1, (struct order){.deed = FILL, .count = 1, .serial = 400});
	is_int(run(1, (struct order){.deed = CHECK, .count = 1, .serial = 400}).wrong, 0,
		"each word is right there");
	run(1, (struct order){.deed = FREE, .count = 1});
}

static void check_model(struct glk_drv *drv, const char *key, int count, size_t size)
{
	struct order o = {.count = count, .size = size, .serial = 500};
	size_t before, after;
	struct report r;

	strcpy(o.key, key);
	before = free_bytes(drv);
	o.deed = ALLOC;
	o.flags = GLAKE_ALLOC_CONTIGUOUS;
	is_int(run(0, o).err, 0, "a model is loaded");
	o.deed = FILL;
	run(0, o);
	o.deed = PUBLISH;
	r = run(0, o);
	is_int(r.err, 0, "and published");
	tap_note("publish %d of %zu MiB: %.2f ms", count, size / MIB, r.seconds * 1e3);
	for (int w = 1; w < WORKERS; w++) {
		o.deed = ATTACH;
		r = run(w, o);
		is_int(r.err, 0, "another process attaches it");
		tap_note("attach %d of %zu MiB: %.2f ms", count, size / MIB,
			r.seconds * 1e3);
		o.deed = CHECK;
		is_int(run(w, o).wrong, 0, "each word is right there");
	}
	for (int w = 1; count > 1 && w < WORKERS; w++) {
		o.deed = DETACH;
		run(w, o);
		o.deed = ATTACH_ALL;
		r = run(w, o);
		is_int(r.err, 0, "taken down, and attached in one call");
		tap_note("attach %d of %zu MiB in one call: %.2f ms", count, size / MIB,
			r.seconds * 1e3);
		o.deed = CHECK;
		is_int(run(w, o).wrong, 0, "each word is right there");
	}
	after = free_bytes(drv);
	tap_note("memory held by 4 replicas: %.4f of one",
		(double)(before - after) / (double)(size * (size_t)count));
	ok(before - after < size * (size_t)count + size * (size_t)count / 33,
		"four replicas are 1.03 times one");
}

static void check_unseal(void)
{
	struct order o = {.deed = UNSEAL, .count = 1, .serial = 500};
	struct report r = run(1, o);

	is_int(r.err, 0, "one has its own");
	tap_note("unseal 8 GiB: %.2f ms", r.seconds * 1e3);
	o.deed = CHECK;
	is_int(run(1, o).wrong, 0, "with each word");
	o.deed = FILL;
	o.serial = 600;
	run(1, o);
	is_int(run(1, (struct order){.deed = CHECK, .count = 1, .serial = 600}).wrong, 0,
		"which it writes");
	is_int(run(3, (struct order){.deed = CHECK, .count = 1, .serial = 500}).wrong, 0,
		"and nobody else sees");
	kill_worker(0);
	is_int(run(3, (struct order){.deed = CHECK, .count = 1, .serial = 500}).wrong, 0,
		"the publisher is killed, and it is there");
}

static void reopen(int w)
{
	usleep(500000); /* the driver has the memory of the one before */
	sockets[w] = sockets[spare];
	child[w] = child[spare++];
	is_int(run(w, (struct order){.deed = OPEN}).err, 0, "a process begins");
}

static void load(int w, uint32_t tune)
{
	is_int(run(w, (struct order){.deed = MODELED}).err, 0, "a model of 4 GiB");
	run(w, (struct order){.deed = WRITE, .serial = tune});
}

static void read_right(int w, uint32_t tune, const char *what)
{
	is_int(run(w, (struct order){.deed = READ, .serial = tune}).wrong, 0, what);
}

static uint64_t seal_in(int w, const char *what)
{
	struct report r = run(w, (struct order){.deed = SEAL});

	is_int(r.err, 0, what);
	tap_note("%s: %.1f ms", what, r.seconds * 1e3);
	return r.saved;
}

/* Fine-tunes of one base in processes of their own. */
static void check_alike(struct glk_drv *drv)
{
	const struct order own = {.deed = UNSEAL, .count = 1},
			   gone = {.deed = FREE, .count = 1};
	size_t none = free_bytes(drv), one, two, three;
	struct report r;
	uint64_t saved;

	load(3, 0);
	is_int((int64_t)seal_in(3, "a base is sealed"), 0, "which nobody has yet");
	one = none - free_bytes(drv);
	load(2, 50);
	two = none - free_bytes(drv);
	saved = seal_in(2, "a fine-tune in another process is sealed");
	ok(saved * 100 >= MODEL * 85, "%.1f %% of the base are saved: 85 at the least",
		(double)saved * 100 / MODEL);
	three = none - free_bytes(drv);
	tap_note("held: one %.3f GiB, two %.3f before and %.3f after", (double)one / GIB,
		(double)two / GIB, (double)three / GIB);
	ok(three < one + MODEL * 15 / 100, "which the GPU has free");
	read_right(3, 0, "each word of the base is right");
	read_right(2, 50, "and of the other");
	seal_in(2, "again");
	r = run(2, own);
	is_int(r.err, 0, "it has pages of its own");
	tap_note("%.1f ms", r.seconds * 1e3);
	read_right(2, 50, "with each word");
	run(2, (struct order){.deed = WRITE});
	read_right(3, 0, "what it writes is its own");
	saved = seal_in(2, "all of it is equal now");
	is_int((int64_t)saved, (int64_t)MODEL, "and saved");
	kill_worker(3);
	read_right(2, 0, "the first process is killed, and each word is there");
	reopen(3);
	tap_note("held: %.3f GiB", (double)(none - free_bytes(drv)) / GIB);
	load(3, 70);
	saved = seal_in(3, "another fine-tune, in a third process");
	ok(saved * 100 >= MODEL * 85, "has %.1f %% of it from there",
		(double)saved * 100 / MODEL);
	tap_note("held: %.3f GiB", (double)(none - free_bytes(drv)) / GIB);
	read_right(2, 0, "each word is right in one");
	read_right(3, 70, "and in the other");
	is_int(run(2, gone).err, 0, "one goes");
	read_right(3, 70, "the other has all of its own");
	is_int(run(3, gone).err, 0, "which goes too");
}

int main(void)
{
	struct glk_broker_options options = {.socket = path, .total = TOTAL};
	char folder[64] = "/tmp/glake-gpu-XXXXXX";
	struct glk_drv *drv;
	size_t begin;

	if (!mkdtemp(folder))
		tap_bail("no folder");
	snprintf(path, sizeof(path), "%s/b.sock", folder);
	broker = fork();
	if (!broker) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		glk_broker_run(&options);
		rmdir(folder);
		_exit(0);
	}
	for (int w = 0; w < WORKERS + SPARES; w++)
		start_worker(w);
	for (int i = 0; i < 200 && access(path, F_OK); i++)
		usleep(10000);
	drv = gpu_open();
	tap_plan_later();
	time_leave();
	for (int w = 0; w < WORKERS; w++)
		is_int(run(w, (struct order){.deed = OPEN}).err, 0, "a process begins");
	begin = free_bytes(drv);
	time_lent();
	time_turns();
	time_death("one has 8 GiB", 20 * GIB, 8 * GIB);
	reopen(2);
	check_alike(drv);
	check_model(drv, "parts", PARTS, PART);
	for (int w = 1; w < WORKERS; w++)
		is_int(run(w, (struct order){.deed = DETACH, .count = PARTS}).err, 0,
			"detached");
	kill_worker(0);
	reopen(0);
	check_model(drv, "whole", 1, 8 * GIB);
	check_unseal();
	for (int w = 1; w < WORKERS; w++) {
		run(w, (struct order){.deed = END});
		waitpid(child[w], NULL, 0);
	}
	for (int i = 0; i < 100 && free_bytes(drv) + 64 * MIB < begin; i++)
		usleep(20000);
	ok(free_bytes(drv) + 64 * MIB >= begin, "all memory is back");
	kill(broker, SIGTERM);
	waitpid(broker, NULL, 0);
	must(drv->ops->close(drv), "close");
	return tap_done();
}
