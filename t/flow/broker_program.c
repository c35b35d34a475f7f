/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client of a broker that does what it is told, a line each, and answers with one:
 *
 *	alloc MIB	a block, whose number is the answer, or "refused -errno text"
 *	check N		whether the block has what was written to it
 *	free N		frees it; it lies idle then
 *	whole MIB	a contiguous one, which wants the driver
 *	fill N SEED	writes to it; and "is N SEED" says whether that is there
 *	publish N KEY STAMP
 *	attach KEY STAMP CLAIM, whose answer is a block and its bytes
 *	together KEY COUNT STAMP	attaches KEY0, KEY1, ...: the first block, or "refused"
 *	unseal N, detach N, end N (of an import), drop KEY (of what was claimed)
 *	pages KINDS	an elastic block with a page for each letter, which is all that says what it has
 *	seal N		its pages that are saved, shared before, left, and differ
 *	has N KINDS	whether it has them; and "page N I KIND" writes one
 *	twist N I	a page gets other contents of the same number (share/alike.h)
 *	storm N SEED	threads that seal, unseal and free blocks with N rounds each: "right", or what is wrong
 *	live		pages that are live, of GPU 0, and reserved
 *	suspend, resume	GPU 0; and "books" is what glake_check says
 *	lease		what glake_lease_get says
 *	quota		what glake_quota_get says of GPU 0: limit, used, held, beside in MiB, processes, measured, alone
 *	other		the same of a GPU that nobody has met
 *	pass MIB	glake_quota_pass; and "back MIB" with less than 0
 *	limit TEXT	sets share.quota
 *	trim		gives back what lies idle
 *	room N		frees a block when it is asked for room; and "asked" says how often, the bytes, and whether until a time
 *	cold N		has it be cold; and "fetch N"
 *	capture MIB	a block for a stream that captures a graph
 *	tag NAME	is that of all blocks from now on; "away" drops them, and "again" has their memory back
 *	fork		a child that has all descriptors and does nothing
 *	write N		a copy of a byte to it
 *	lose		closes all sockets and has others of their numbers; and "kept" says how many bytes lie there
 *	close		closes the context, and waits for the end
 *	quit		closes the context, and ends
 *
 * Settings are its arguments.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glake/glake.h>

#define BLOCKS 256
#define STEP   65536

static struct glake *ctx;
static struct block {
	unsigned char *at;
	size_t size;
} blocks[BLOCKS];

static unsigned char value(int n, size_t at)
{
	return (unsigned char)(n * 31 + (int)(at / STEP) * 7 + getpid());
}

static void say_error(int err)
{
	struct glake_error why = {.sz = sizeof(why)};

	glake_last_error(&why);
	printf("refused %d %s\n", err, why.text);
}

static int place(void)
{
	int n = 0;

	while (n < BLOCKS && blocks[n].at)
		n++;
	if (n == BLOCKS)
		exit(3);
	return n;
}

static void say(int err)
{
	if (err)
		say_error(err);
	else
		puts("0");
}

static void do_fill(int n, int seed)
{
	for (size_t i = 0; i < blocks[n].size; i += STEP)
		blocks[n].at[i] = (unsigned char)(seed + (int)(i / STEP) * 13);
	puts("0");
}

static void do_is(int n, int seed)
{
	for (size_t i = 0; i < blocks[n].size; i += STEP) {
		if (blocks[n].at[i] != (unsigned char)(seed + (int)(i / STEP) * 13)) {
			printf("wrong at %zu\n", i);
			return;
		}
	}
	puts("right");
}

static void do_attach(const char *key, uint64_t stamp, uint32_t flags)
{
	size_t size;
	void *ptr;
	int n = place(), err;

	err = glake_attach(ctx, 0, key, stamp, flags, &size, &ptr);
	if (err) {
		say_error(err);
		return;
	}
	blocks[n] = (struct block){ptr, size};
	printf("%d %zu\n", n, size);
}

static void do_together(const char *key, unsigned count, uint64_t stamp)
{
	static char keys[BLOCKS][208];
	const char *names[BLOCKS];
	uint64_t stamps[BLOCKS];
	size_t sizes[BLOCKS];
	void *ptrs[BLOCKS];
	int err, n = place();

	for (unsigned i = 0; i < count; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%s%u", key, i);
		names[i] = keys[i];
		stamps[i] = stamp;
	}
	err = glake_attach_all(ctx, 0, names, stamp ? stamps : NULL, count, sizes, ptrs);
	if (err) {
		say_error(err);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		blocks[place()] = (struct block){ptrs[i], sizes[i]};
	printf("%d\n", n);
}

static void do_alloc(size_t mib, uint32_t flags)
{
	void *ptr;
	int n = place(), err;

	err = glake_alloc(ctx, 0, mib << 20, NULL, flags, &ptr);
	if (err) {
		say_error(err);
		return;
	}
	blocks[n] = (struct block){ptr, mib << 20};
	for (size_t i = 0; i < blocks[n].size; i += STEP)
		blocks[n].at[i] = value(n, i);
	printf("%d\n", n);
}

#define PAGE ((size_t)2 << 20)

static uint64_t word(char kind, size_t i)
{
	return ((uint64_t)kind + 1) * 0x9e3779b97f4a7c15u * (i * 8 + 8);
}

static void do_page(int n, size_t i, char kind)
{
	uint64_t *at = (uint64_t *)(void *)(blocks[n].at + i * PAGE);

	for (size_t w = 0; w < PAGE / 8; w++)
		at[w] = word(kind, w);
}

static void do_pages(const char *kinds)
{
	size_t size = strlen(kinds) * PAGE;
	void *ptr;
	int n = place(), err;

	err = glake_alloc(ctx, 0, size, NULL, GLAKE_ALLOC_ELASTIC, &ptr);
	if (!err)
		err = glake_commit(ctx, ptr, 0, size, NULL, NULL);
	if (err) {
		say_error(err);
		return;
	}
	blocks[n] = (struct block){ptr, size};
	for (size_t i = 0; kinds[i]; i++)
		do_page(n, i, kinds[i]);
	printf("%d\n", n);
}

static uint32_t step(uint32_t chain, uint32_t word)
{
	chain ^= word;
	chain = chain << 13 | chain >> 19;
	return chain * 0x9e3779b1u + 0x85ebca77u;
}

/* The first two words of the first chain are others, and the chain behind them is as it was. */
static void do_twist(int n, size_t i)
{
	uint32_t *at = (uint32_t *)(void *)(blocks[n].at + i * PAGE), was = at[0];

	at[0] ^= 1;
	at[512] ^= step(1, was) ^ step(1, at[0]);
	puts("0");
}

static void do_seal(int n)
{
	struct glake_sealed s = {.sz = sizeof(s)};
	int err = glake_seal(ctx, blocks[n].at, NULL, 0, &s);

	if (err)
		say_error(err);
	else
		printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
			s.saved / PAGE, s.shared / PAGE, s.left / PAGE, s.differ);
}

static void do_has(int n, const char *kinds)
{
	for (size_t i = 0; kinds[i]; i++) {
		const uint64_t *at = (const uint64_t *)(void *)(blocks[n].at + i * PAGE);

		for (size_t w = 0; w < PAGE / 8; w++) {
			if (at[w] == word(kinds[i], w))
				continue;
			printf("wrong at page %zu\n", i);
			return;
		}
	}
	puts("right");
}

#define STORMERS     3
#define STORM_BLOCKS 3
#define STORM_PAGES  6

struct stormer {
	unsigned rounds, seed;
	const char *wrong;
};

static unsigned draw(unsigned *seed, unsigned below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) % below;
}

struct storm_block {
	unsigned char *at;
	char kinds[STORM_PAGES];
	bool sealed;
};

static void fill_page(struct storm_block *b, size_t i, char kind)
{
	uint64_t *at = (uint64_t *)(void *)(b->at + i * PAGE);

	b->kinds[i] = kind;
	for (size_t w = 0; w < PAGE / 8; w += 8)
		at[w] = word(kind, w);
}

static bool is_right(const struct storm_block *b)
{
	for (size_t i = 0; i < STORM_PAGES; i++) {
		const uint64_t *at = (const uint64_t *)(void *)(b->at + i * PAGE);

		for (size_t w = 0; w < PAGE / 8; w += 8) {
			if (at[w] != word(b->kinds[i], w))
				return false;
		}
	}
	return true;
}

/* Others of the process hold a block for a moment. */
static bool is_done(int err)
{
	return !err || err == -EBUSY;
}

static bool storm_step(struct storm_block *b, unsigned *seed)
{
	int err = 0;
	void *ptr;

	if (!b->at) {
		err = glake_alloc(
			ctx, 0, STORM_PAGES * PAGE, NULL, GLAKE_ALLOC_ELASTIC, &ptr);
		if (!err)
			err = glake_commit(ctx, ptr, 0, STORM_PAGES * PAGE, NULL, NULL);
		if (err)
			return false;
		b->at = ptr;
		b->sealed = false;
		for (size_t i = 0; i < STORM_PAGES; i++)
			fill_page(b, i, (char)('a' + draw(seed, 8)));
	} else if (!b->sealed || !draw(seed, 4)) {
		err = glake_seal(ctx, b->at, NULL, 0, NULL);
		b->sealed |= !err;
	} else if (draw(seed, 2)) {
		err = glake_unseal(ctx, b->at, NULL);
		b->sealed = err;
		if (!err)
			fill_page(
				b, draw(seed, STORM_PAGES), (char)('a' + draw(seed, 8)));
	} else {
		err = glake_free(ctx, b->at, NULL);
		b->at = NULL;
	}
	return is_done(err) && (!b->at || is_right(b));
}

static void *do_stormer(void *arg)
{
	struct storm_block own[STORM_BLOCKS] = {0};
	struct stormer *s = arg;

	for (unsigned i = 0; i < s->rounds && !s->wrong; i++) {
		if (!storm_step(&own[draw(&s->seed, STORM_BLOCKS)], &s->seed))
			s->wrong = "a step";
		for (int b = 0; b < STORM_BLOCKS && !s->wrong; b++) {
			if (own[b].at && !is_right(&own[b]))
				s->wrong = "contents";
		}
	}
	for (int b = 0; b < STORM_BLOCKS; b++) {
		if (own[b].at && glake_free(ctx, own[b].at, NULL))
			s->wrong = "a free";
	}
	return NULL;
}

static void do_storm(unsigned rounds, unsigned seed)
{
	struct stormer s[STORMERS];
	const char *wrong = NULL;
	pthread_t thread[STORMERS];

	for (unsigned i = 0; i < STORMERS; i++) {
		s[i] = (struct stormer){.rounds = rounds, .seed = seed + i};
		if (pthread_create(&thread[i], NULL, do_stormer, &s[i]))
			exit(3);
	}
	for (int i = 0; i < STORMERS; i++) {
		pthread_join(thread[i], NULL);
		wrong = s[i].wrong ? s[i].wrong : wrong;
	}
	printf("%s\n", wrong ? wrong : "right");
}

static void do_live(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	glake_stats_get(ctx, 0, &s);
	printf("%" PRIu64 " %" PRIu64 "\n", s.live / PAGE, s.reserved / PAGE);
}

static void do_check(int n)
{
	for (size_t i = 0; i < blocks[n].size; i += STEP) {
		if (blocks[n].at[i] != value(n, i)) {
			printf("wrong at %zu\n", i);
			return;
		}
	}
	puts("right");
}

static void do_free(int n)
{
	printf("%d\n", glake_free(ctx, blocks[n].at, NULL));
	blocks[n].at = NULL;
}

static void do_write(int n)
{
	struct glake_copy_job *job;
	const char byte = 1;
	int err = glake_copy(ctx, blocks[n].at, &byte, 1, NULL, 0, &job);

	if (!err) {
		err = glake_copy_wait(job, -1);
		glake_copy_close(job);
	}
	say(err);
}

static void do_close(void)
{
	printf("closed %d\n", glake_close(ctx, NULL));
	while (getchar() != EOF)
		;
	exit(0);
}

static int lost = -1;

static void do_lose(void)
{
	struct stat s;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) || send(ends[1], "", 1, 0) != 1)
		exit(3);
	for (int fd = 3; fd < 256; fd++) {
		if (fd != ends[0] && fd != ends[1] && !fstat(fd, &s) &&
			S_ISSOCK(s.st_mode) && dup2(ends[0], fd) < 0)
			exit(3);
	}
	lost = ends[0];
	puts("0");
}

static void do_kept(void)
{
	int bytes = -1;

	ioctl(lost, FIONREAD, &bytes);
	printf("%d\n", bytes);
}

static void do_fork(void)
{
	pid_t child = fork();

	while (!child)
		pause();
	printf("%d\n", child);
}

static void do_lease(void)
{
	struct glake_lease l = {.sz = sizeof(l)};
	int err = glake_lease_get(ctx, 0, &l);

	printf("%d %d %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
	       " %" PRIu64 " %" PRIu64 "\n",
		err, l.state, l.helper, l.leased >> 20, l.left >> 20, l.least >> 20,
		l.most >> 20, l.asked, l.given >> 20, l.refused);
}

static void do_quota(bool other)
{
	struct glake_quota q = {.sz = sizeof(q)};
	struct glake_device gpu = {.sz = sizeof(gpu)};
	int err = glake_device_get(ctx, 0, &gpu);

	if (other)
		strcpy(gpu.uuid, "GPU-other");
	if (!err)
		err = glake_quota_get(gpu.uuid, gpu.memory, &q);
	if (err)
		say_error(err);
	else
		printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %d %d\n",
			q.limit >> 20, q.used >> 20, q.held >> 20, q.beside >> 20,
			q.processes, q.measured, q.alone);
}

static void do_pass(int64_t mib)
{
	struct glake_device gpu = {.sz = sizeof(gpu)};
	int err = glake_device_get(ctx, 0, &gpu);

	say(err ? err : glake_quota_pass(gpu.uuid, gpu.memory, mib * (1 << 20)));
}

static struct {
	int block, times, timed;
	size_t want;
} room = {.block = -1};

static size_t make_room(
	void *user, int device, size_t want, struct CUstream_st *stream, int64_t deadline)
{
	room.times++;
	room.want = want;
	room.timed = !stream && deadline > 0;
	if (room.block < 0)
		return 0;
	glake_free(ctx, blocks[room.block].at, stream);
	blocks[room.block].at = NULL;
	room.block = -1;
	return want;
}

static void do_room(int n)
{
	room.block = n;
	say(glake_shortage_set(ctx, make_room, NULL));
}

static void do_capture(size_t mib)
{
	struct CUstream_st *stream;
	uint32_t graph;
	void *ptr;
	int err = glake_stream_new(ctx, 0, &stream);

	if (!err)
		err = glake_soft_capture_begin(ctx, 0, stream);
	if (!err)
		err = glake_alloc(ctx, 0, mib << 20, stream, 0, &ptr);
	if (!err)
		err = glake_free(ctx, ptr, stream);
	if (!err)
		err = glake_soft_capture_end(ctx, 0, stream, &graph);
	if (!err)
		err = glake_soft_graph_free(ctx, graph);
	say(err ? err : glake_stream_free(ctx, 0, stream));
}

static uint32_t tag;

static void do_tag(const char *name)
{
	int err = glake_tag_open(ctx, name, &tag);

	say(err ? err : glake_tag_set(ctx, tag, NULL));
}

static void do_limit(const char *text)
{
	say(glake_conf_set(ctx, "share.quota", text));
}

int main(int argc, char **argv)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.settings = (const char *const *)argv + 1};
	char line[256], said[16], key[200];
	int seed;
	unsigned n;
	size_t leaked;
	int err;

	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0);
	err = glake_open(&options, &ctx);
	if (err)
		say_error(err);
	else
		puts("open");
	while (!err && fgets(line, sizeof(line), stdin)) {
		n = 0;
		if (sscanf(line, "%15s %u", said, &n) < 1 || n >= 1u << 20)
			return 3;
		if (!strcmp(said, "alloc"))
			do_alloc(n, 0);
		else if (!strcmp(said, "whole"))
			do_alloc(n, GLAKE_ALLOC_CONTIGUOUS);
		else if (sscanf(line, "fill %u %d", &n, &seed) == 2)
			do_fill((int)n, seed);
		else if (sscanf(line, "is %u %d", &n, &seed) == 2)
			do_is((int)n, seed);
		else if (sscanf(line, "publish %u %199s %d", &n, key, &seed) == 3)
			say(glake_publish(ctx, blocks[n].at, key, (uint64_t)seed));
		else if (sscanf(line, "attach %199s %d %u", key, &seed, &n) == 3)
			do_attach(key, (uint64_t)seed, n);
		else if (sscanf(line, "together %199s %u %d", key, &n, &seed) == 3 &&
			n <= BLOCKS)
			do_together(key, n, (uint64_t)seed);
		else if (sscanf(line, "drop %199s", key) == 1)
			say(glake_publish_not(ctx, 0, key));
		else if (sscanf(line, "pages %199s", key) == 1)
			do_pages(key);
		else if (!strcmp(said, "seal"))
			do_seal((int)n);
		else if (sscanf(line, "has %u %199s", &n, key) == 2)
			do_has((int)n, key);
		else if (sscanf(line, "page %u %d %199s", &n, &seed, key) == 3)
			do_page((int)n, (size_t)seed, *key), puts("0");
		else if (sscanf(line, "storm %u %d", &n, &seed) == 2)
			do_storm(n, (unsigned)seed);
		else if (!strcmp(said, "live"))
			do_live();
		else if (sscanf(line, "twist %u %d", &n, &seed) == 2)
			do_twist((int)n, (size_t)seed);
		else if (!strcmp(said, "suspend"))
			say(glake_suspend(ctx, 0, NULL));
		else if (!strcmp(said, "resume"))
			say(glake_resume(ctx, 0, NULL));
		else if (!strcmp(said, "books"))
			say(glake_check(ctx, NULL));
		else if (!strcmp(said, "unseal"))
			say(glake_unseal(ctx, blocks[n].at, NULL));
		else if (!strcmp(said, "detach"))
			say(glake_detach(ctx, blocks[n].at, NULL));
		else if (!strcmp(said, "end"))
			say(glake_import_end(ctx, blocks[n].at, NULL));
		else if (!strcmp(said, "check"))
			do_check((int)n);
		else if (!strcmp(said, "free"))
			do_free((int)n);
		else if (!strcmp(said, "lease"))
			do_lease();
		else if (!strcmp(said, "close"))
			do_close();
		else if (!strcmp(said, "write"))
			do_write((int)n);
		else if (!strcmp(said, "lose"))
			do_lose();
		else if (!strcmp(said, "kept"))
			do_kept();
		else if (!strcmp(said, "quota"))
			do_quota(false);
		else if (!strcmp(said, "other"))
			do_quota(true);
		else if (!strcmp(said, "pass"))
			do_pass(n);
		else if (!strcmp(said, "back"))
			do_pass(-(int64_t)n);
		else if (sscanf(line, "limit %199s", key) == 1)
			do_limit(key);
		else if (!strcmp(said, "trim"))
			say(glake_trim(ctx, 0, 0, NULL));
		else if (!strcmp(said, "room"))
			do_room((int)n);
		else if (!strcmp(said, "asked"))
			printf("%d %zu %d\n", room.times, room.want >> 20, room.timed);
		else if (!strcmp(said, "cold"))
			say(glake_advise(ctx, blocks[n].at, GLAKE_ADVICE_COLD));
		else if (!strcmp(said, "fetch"))
			say(glake_fetch(ctx, blocks[n].at, NULL));
		else if (!strcmp(said, "capture"))
			do_capture((size_t)n);
		else if (sscanf(line, "tag %199s", key) == 1)
			do_tag(key);
		else if (!strcmp(said, "away"))
			say(glake_tag_suspend(ctx, 0, tag, GLAKE_TAG_DROP, NULL));
		else if (!strcmp(said, "again"))
			say(glake_tag_resume(ctx, 0, tag, NULL));
		else if (!strcmp(said, "fork"))
			do_fork();
		else
			break;
	}
	if (err)
		return 1;
	err = glake_close(ctx, &leaked);
	printf("closed %d\n", err);
	return err != 0;
}
