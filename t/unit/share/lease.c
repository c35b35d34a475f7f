/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The client of a broker, against one that says what a list tells it to: leave that is granted, refused, given back; answers
 * that are none; a broker that is away; and what was claimed of one that has ended.
 */
#include "unit/cache/rig.h"

#include "base/slab.h"
#include "share/broker.h"
#include "share/publish.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENT 100000 /* ms */

static struct rig rig;
static struct glk_lessee *lessee;
static char folder[] = "/tmp/glake-lease-XXXXXX", path[64];
static int listener = -1;
static uint64_t trimmed;

/* What the broker hears, and says to that. */
struct line {
	uint32_t hears; /* 0: it ends the connection, and takes the next */
	uint32_t says;	/* 0: nothing */
	int err;	/* of a refusal */
	uint64_t
		bytes; /* of what is granted; least of what it hears, if `says` is none; the number of a page; descriptors */
	const char *key;
	uint32_t flags; /* of the item that it hears */
};

#define REFUSED(what, why, how)                                                          \
	{                                                                                \
		.hears = GLK_BROKER_GET, .says = GLK_BROKER_REFUSED, .err = (why),       \
		.key = (what), .flags = (how)                                            \
	}
#define GIVEN_UP(what)                                                                   \
	{                                                                                \
		.hears = GLK_BROKER_END, .says = GLK_BROKER_DONE, .key = (what),         \
		.flags = GLK_BROKER_CLAIM                                                \
	}
#define HELLO                                                                            \
	{                                                                                \
		.hears = GLK_BROKER_HELLO, .says = GLK_BROKER_WELCOME                    \
	}

static int answer(int conn, const struct line *l)
{
	struct glk_broker_welcome welcome = {.version = GLK_BROKER_VERSION, .gpus = 1};
	struct glk_broker_refused refused = {.err = l->err, .text = "by the list"};
	struct glk_broker_bytes granted = {.bytes = l->bytes};
	struct glk_broker_pages taken = {.count = 1, .id = {(uint32_t)l->bytes}};
	struct glk_broker_item found = {0};

	if (l->says == GLK_BROKER_TAKEN)
		return glk_wire_send(
			conn, l->says, &taken, sizeof(taken), NULL, 0, PATIENT);
	if (l->says == GLK_BROKER_WELCOME)
		return glk_wire_send(
			conn, l->says, &welcome, sizeof(welcome), NULL, 0, PATIENT);
	if (l->says == GLK_BROKER_REFUSED)
		return glk_wire_send(
			conn, l->says, &refused, sizeof(refused), NULL, 0, PATIENT);
	if (l->says == GLK_BROKER_FOUND) {
		snprintf(found.key, sizeof(found.key), "%s", l->key);
		return glk_wire_send(
			conn, l->says, &found, sizeof(found), &listener, 1, PATIENT);
	}
	if (l->says == GLK_BROKER_GRANTED)
		return glk_wire_send(
			conn, l->says, &granted, sizeof(granted), NULL, 0, PATIENT);
	return l->says ? glk_wire_send(conn, l->says, NULL, 0,
				 l->bytes ? &listener : NULL, (unsigned)l->bytes, PATIENT)
		       : 0;
}

static bool is_heard(const struct line *l, const struct glk_wire_frame *frame)
{
	const struct glk_broker_item *item = (const void *)frame->body;
	const struct glk_broker_bytes *bytes = (const void *)frame->body;

	return frame->kind == l->hears &&
		(!l->key || (!strcmp(item->key, l->key) && item->flags == l->flags)) &&
		(l->says || !l->bytes || bytes->bytes == l->bytes);
}

/* The number of the line that went wrong, from 1; 0: none did. */
static int follow(const struct line *lines)
{
	int conn = accept(listener, NULL, NULL);
	static struct glk_wire_frame frame;

	for (int i = 0; lines[i].hears || lines[i].says || lines[i + 1].hears; i++) {
		if (!lines[i].hears) {
			close(conn);
			conn = accept(listener, NULL, NULL);
			continue;
		}
		if (glk_wire_receive(conn, &frame, PATIENT) ||
			!is_heard(&lines[i], &frame) || answer(conn, &lines[i]))
			return i + 1;
		glk_wire_frame_close(&frame);
	}
	return 0;
}

static pid_t open_all(const struct line *lines, const char *const *settings)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	char broker[96];
	pid_t pid = 0;

	snprintf(path, sizeof(path), "%s/b.sock", folder);
	snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
	if (lines) {
		listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (bind(listener, (struct sockaddr *)&name, sizeof(name)) ||
			chmod(path, 0600) || listen(listener, 8))
			tap_bail("no socket");
		pid = fork();
		if (!pid)
			_exit(follow(lines));
		close(listener);
	}
	rig_open(&rig, settings);
	snprintf(broker, sizeof(broker), "share.broker=%s", path);
	rig_set(&rig, broker);
	rig_set(&rig, "share.helper=no");
	rig_set(&rig, "share.chunk=2MiB");
	return pid;
}

static void trim(void *of, int device, uint64_t bytes, int64_t until)
{
	trimmed += bytes;
}

static void begin(void)
{
	is_int(glk_lessee_new(&rig.pool, &rig.conf, trim, NULL, &lessee), 0,
		"a client begins");
}

static void end(pid_t pid)
{
	int status = 0;

	glk_lessee_free(lessee);
	rig.pool.nodes[0].source = &glk_source_driver;
	glk_store_relaxed(&rig.pool.nodes[0].left, 0);
	rig_close(&rig, 0);
	if (pid && waitpid(pid, &status, 0) == pid)
		is_int(WEXITSTATUS(status), 0, "the broker heard what it should");
	unlink(path);
}

static int ask(uint64_t bytes)
{
	struct glk_node *node = &rig.pool.nodes[0];

	return node->source->ask(node, bytes, false);
}

static uint64_t left(void)
{
	return glk_load_relaxed(&rig.pool.nodes[0].left) / MIB;
}

static struct glake_lease lease(void)
{
	struct glake_lease l = {.sz = sizeof(l)};

	glk_lessee_get(lessee, 0, &l);
	return l;
}

static void test_leave(void)
{
	static const struct line lines[] = {HELLO,
		{.hears = GLK_BROKER_WANT, .says = GLK_BROKER_GRANTED, .bytes = 32 * MIB},
		{.hears = GLK_BROKER_GIVE, .bytes = 30 * MIB},
		{.hears = GLK_BROKER_WANT, .says = GLK_BROKER_REFUSED, .err = -ENOMEM},
		{.hears = GLK_BROKER_BYE}, {0}, {0}};
	pid_t pid = open_all(lines, NULL);
	struct glk_node *node;

	begin();
	is_int(lease().state, GLAKE_LEASE_HERE, "the broker is here");
	is_int(ask(10 * MIB), 0, "leave is granted");
	is_int((int64_t)left(), 32, "all of it is left");
	node = &rig.pool.nodes[0];
	is_int(glk_node_claim(node, 33 * MIB), -ENOMEM, "a claim asks for no more");
	is_int((int64_t)glk_load_relaxed(&node->held), 0, "and has nothing then");
	is_int(glk_node_claim(node, 4 * MIB), 0, "or has what is left");
	is_int((int64_t)left(), 28, "which is less by that");
	glk_node_unclaim(node, 3 * MIB);
	is_int((int64_t)left(), 31, "as long as it does not give it back");
	node->source->unclaim(node, MIB, true);
	is_int((int64_t)left(), 2, "what is more than two chunks goes back to one");
	is_int(ask(100 * MIB), -ENOMEM, "more is refused");
	has_str(rig_error().text, "by the list", "in the broker's words");
	is_int((int64_t)lease().refused, 1, "which is counted");
	is_int((int64_t)(lease().leased / MIB), 2, "and so is what is leased");
	is_int((int64_t)(lease().given / MIB), 30, "and what was given");
	end(pid);
}

/* Answers that are none end the connection, and the question is asked again. */
static void test_nonsense(void)
{
	static const struct line lines[] = {HELLO,
		{.hears = GLK_BROKER_WANT, .says = GLK_BROKER_GRANTED, .bytes = MIB}, {0},
		HELLO, {.hears = GLK_BROKER_WANT, .says = GLK_BROKER_DONE}, {0}, HELLO,
		{.hears = GLK_BROKER_WANT, .says = GLK_BROKER_GRANTED, .bytes = 4 * MIB},
		{.hears = GLK_BROKER_BYE}, {0}, {0}};
	pid_t pid = open_all(lines, NULL);

	begin();
	is_int(ask(4 * MIB), 0, "asked until there is an answer");
	is_int((int64_t)left(), 4, "of which nothing counts but the last");
	end(pid);
}

static void test_away(void)
{
	static const char *const alone[] = {"share.wait=0", NULL};
	static const char *const needs[] = {"share.wait=0", "share.require=yes", NULL};

	open_all(NULL, alone);
	begin();
	tap_expect_log(1);
	is_int(ask(5 * MIB), 0, "without a broker it goes on alone");
	is_int((int64_t)left(), 5, "with what it takes");
	is_int(lease().state, GLAKE_LEASE_ALONE, "which it says");
	end(0);
	open_all(NULL, needs);
	begin();
	tap_expect_log(1);
	is_int(ask(5 * MIB), -ENOMEM, "where that is required it is refused");
	has_str(rig_error().text, "share.require", "with the reason");
	is_int((int64_t)left(), 0, "and takes nothing");
	end(0);
}

static int ask_for(const char *key, uint32_t flags)
{
	struct glk_broker_item item = {.flags = flags};
	struct glk_wire_frame *frame = malloc(sizeof(*frame));
	int err;

	snprintf(item.key, sizeof(item.key), "%s", key);
	err = glk_lessee_item(lessee, GLK_BROKER_GET, &item, NULL, frame);
	if (!err)
		glk_wire_frame_close(frame);
	free(frame);
	return err;
}

static int get(const char *key, uint32_t flags)
{
	int err;

	do
		err = ask_for(key, flags);
	while (err == -EAGAIN && strstr(rig_error().text, "is away"));
	return err;
}

static int claim(const char *key)
{
	return get(key, GLK_BROKER_CLAIM);
}

/* What was claimed and awaited of a broker that has ended. */
static void test_claims(void)
{
	static const struct line lines[] = {HELLO,
		REFUSED("mine", -ENOENT, GLK_BROKER_CLAIM),
		REFUSED("theirs", -EAGAIN, GLK_BROKER_CLAIM), {0}, HELLO,
		REFUSED("mine", -ENOENT, GLK_BROKER_CLAIM), GIVEN_UP("theirs"),
		REFUSED("theirs", -EAGAIN, GLK_BROKER_CLAIM | GLK_BROKER_AGAIN),
		REFUSED("theirs", -ENOENT, GLK_BROKER_CLAIM | GLK_BROKER_AGAIN), {0},
		HELLO, REFUSED("mine", -ENOENT, GLK_BROKER_CLAIM),
		REFUSED("theirs", -EAGAIN, GLK_BROKER_CLAIM), GIVEN_UP("other"),
		REFUSED("other", -ENOENT, GLK_BROKER_CLAIM), {0}, HELLO,
		{.hears = GLK_BROKER_GET,
			.says = GLK_BROKER_FOUND,
			.key = "mine",
			.flags = GLK_BROKER_CLAIM},
		GIVEN_UP("mine"), REFUSED("other", -ENOENT, GLK_BROKER_CLAIM),
		GIVEN_UP("last"), REFUSED("last", -ENOENT, GLK_BROKER_CLAIM),
		{.hears = GLK_BROKER_BYE}, {0}, {0}};
	pid_t pid = open_all(lines, NULL);

	begin();
	is_int(claim("mine"), -ENOENT, "one name is to be loaded here");
	is_int(claim("theirs"), -EAGAIN, "another one elsewhere");
	is_int(claim("theirs"), -EAGAIN, "so it is after the broker's end");
	is_int(claim("theirs"), -ENOENT, "until nobody came");
	tap_expect_log(1);
	is_int(claim("other"), -ENOENT,
		"a claim that another one has by then is told of, and forgotten");
	has_str(tap.last_log,
		"theirs is not for this process to publish any more: by the list",
		"in the broker's words");
	tap_expect_log(1);
	is_int(claim("last"), -ENOENT, "and so is one that was published");
	has_str(tap.last_log, "another process has published mine meanwhile",
		"which is said of it");
	end(pid);
}

static int publish(const char *key)
{
	struct glk_shared *shared = glk_region_new(sizeof(*shared));
	struct glk_wire_frame frame;
	int err;

	*shared = (struct glk_shared){.fd = dup(0)};
	snprintf(shared->item.key, sizeof(shared->item.key), "%s", key);
	err = glk_lessee_item(lessee, GLK_BROKER_PUT, &shared->item, shared, &frame);
	if (err && err != -EINPROGRESS)
		glk_shared_free(shared);
	return err;
}

/* What was claimed and said to be published is claimed no more, and told to the next broker, though the answer was lost;
 * what was refused, or answered with a descriptor, is not. */
static void test_put(void)
{
	static const struct line lines[] = {HELLO,
		REFUSED("mine", -ENOENT, GLK_BROKER_CLAIM),
		{.hears = GLK_BROKER_PUT,
			.says = GLK_BROKER_REFUSED,
			.err = -EBUSY,
			.key = "theirs"},
		{.hears = GLK_BROKER_PUT,
			.says = GLK_BROKER_DONE,
			.bytes = 1,
			.key = "odd"},
		{.hears = GLK_BROKER_PUT, .key = "mine"}, {0}, HELLO,
		{.hears = GLK_BROKER_PUT,
			.says = GLK_BROKER_DONE,
			.key = "mine",
			.flags = GLK_BROKER_AGAIN},
		REFUSED("next", -ENOENT, GLK_BROKER_CLAIM), {.hears = GLK_BROKER_BYE},
		{0}, {0}};
	pid_t pid = open_all(lines, NULL);

	begin();
	is_int(claim("mine"), -ENOENT, "a name is to be loaded here");
	is_int(publish("theirs"), -EBUSY, "one that another has is refused");
	is_int(publish("odd"), -EIO, "as is one with an answer that none has");
	is_int(publish("mine"), -EINPROGRESS,
		"it is published, and the answer does not come");
	is_int(claim("next"), -ENOENT,
		"the next broker hears of no claim of it, and that it is there");
	end(pid);
}

/* A claim of which the answer was lost is given back: nobody knows here that he is to load it. */
static void test_lost(void)
{
	static const struct line lines[] = {HELLO,
		{.hears = GLK_BROKER_GET, .key = "lost", .flags = GLK_BROKER_CLAIM}, {0},
		HELLO, GIVEN_UP("lost"), REFUSED("next", -ENOENT, GLK_BROKER_CLAIM),
		REFUSED("lost", -ENOENT, GLK_BROKER_CLAIM), {.hears = GLK_BROKER_BYE},
		{0}, {0}};
	pid_t pid = open_all(lines, NULL);

	begin();
	is_int(ask_for("lost", GLK_BROKER_CLAIM), -EAGAIN, "an answer does not come");
	is_int(claim("next"), -ENOENT, "what it may have said is undone");
	is_int(claim("lost"), -ENOENT, "before the name is asked for again");
	end(pid);
}

#define NAMES 4096

/* A line that is heard of each of many names, between a beginning and an end. */
static pid_t open_many(int names, int err, const struct line *then, char (*ret_key)[16])
{
	struct line *lines = calloc((size_t)names + 16, sizeof(*lines));
	pid_t pid;

	lines[0] = (struct line)HELLO;
	for (int i = 0; i < names; i++) {
		snprintf(ret_key[i], sizeof(ret_key[i]), "name %d", i);
		lines[i + 1] = (struct line)REFUSED(ret_key[i], err, GLK_BROKER_CLAIM);
	}
	for (int i = 0; then[i].hears || then[i].says || then[i + 1].hears; i++)
		lines[names + 1 + i] = then[i];
	pid = open_all(lines, NULL);
	free(lines);
	return pid;
}

/* Whoever waits for more names than there can be at a broker forgets the oldest. */
static void test_many(void)
{
	static const struct line then[] = {{0}, HELLO, GIVEN_UP("name 1"),
		REFUSED("name 1", -EAGAIN, GLK_BROKER_CLAIM | GLK_BROKER_AGAIN),
		REFUSED("name 0", -EAGAIN, GLK_BROKER_CLAIM), {.hears = GLK_BROKER_BYE},
		{0}, {0}};
	static char key[NAMES + 1][16];
	pid_t pid = open_many(NAMES + 1, -EAGAIN, then, key);
	int wrong = 0;

	begin();
	for (int i = 0; i <= NAMES; i++)
		wrong += claim(key[i]) != -EAGAIN;
	is_int(wrong, 0, "more names are awaited than there can be");
	is_int(claim(key[1]), -EAGAIN, "the next broker hears of what is remembered");
	is_int(claim(key[0]), -EAGAIN, "and not of the first");
	end(pid);
}

/* Whoever has claimed as many is refused one more, and may have it when he has given one up. */
static void test_all_claimed(void)
{
	static const struct line then[] = {
		{.hears = GLK_BROKER_END, .says = GLK_BROKER_DONE, .key = "name 7"},
		REFUSED("more", -ENOENT, GLK_BROKER_CLAIM), {.hears = GLK_BROKER_BYE},
		{0}, {0}};
	static char key[NAMES][16];
	pid_t pid = open_many(NAMES, -ENOENT, then, key);
	int wrong = 0;

	begin();
	for (int i = 0; i < NAMES; i++)
		wrong += claim(key[i]) != -ENOENT;
	is_int(wrong, 0, "as many names are claimed as can be");
	is_int(claim("more"), -ENOSPC, "one more is refused");
	has_str(rig_error().text, "claimed 4096 names", "with the number");
	is_int(glk_publish_not(lessee, 0, "name 7"), 0, "one is given up");
	is_int(claim("more"), -ENOENT, "and another one claimed");
	end(pid);
}

/* What was awaited, and found without a claim, is no longer: whoever loads it next is asked for the first time. */
static void test_found(void)
{
	static const struct line lines[] = {HELLO,
		REFUSED("theirs", -EAGAIN, GLK_BROKER_CLAIM),
		{.hears = GLK_BROKER_GET, .says = GLK_BROKER_FOUND, .key = "theirs"}, {0},
		HELLO, GIVEN_UP("theirs"), REFUSED("theirs", -ENOENT, GLK_BROKER_CLAIM),
		{.hears = GLK_BROKER_BYE}, {0}, {0}};
	pid_t pid = open_all(lines, NULL);

	begin();
	is_int(claim("theirs"), -EAGAIN, "a name is awaited");
	is_int(get("theirs", 0), 0, "and found");
	is_int(claim("theirs"), -ENOENT, "the next broker knows nothing of it");
	end(pid);
}

static struct glk_page *offer(uint32_t *ret_page, int expect, const char *why)
{
	struct glk_node *node = &rig.pool.nodes[0];
	struct glk_common common = {.number = {{1, 2, 3, 4}}};

	if (glk_node_grow(node, 2 * MIB, &common.page))
		tap_bail("no page");
	is_int(glk_commons_offer(lessee, node, 2 * MIB, &common, 1), expect, why);
	*ret_page = common.page;
	return glk_page_at(&rig.pool, common.page);
}

/* A page that others may have is never one's own again, also where the broker's answer was lost. */
static void test_offers(void)
{
	static const struct line lines[] = {HELLO,
		{.hears = GLK_BROKER_WANT, .says = GLK_BROKER_GRANTED, .bytes = 4 * MIB},
		{.hears = GLK_BROKER_OFFER, .says = GLK_BROKER_TAKEN, .bytes = 5},
		{.hears = GLK_BROKER_OFFER, .says = GLK_BROKER_TAKEN},
		{.hears = GLK_BROKER_LEAVE, .bytes = 2 * MIB},
		{.hears = GLK_BROKER_OFFER}, {0}, HELLO,
		REFUSED("next", -ENOENT, GLK_BROKER_CLAIM), {.hears = GLK_BROKER_BYE},
		{0}, {0}};
	pid_t pid = open_all(lines, NULL);
	struct glk_node *node;
	uint32_t page[3];

	begin();
	node = &rig.pool.nodes[0];
	ok((uint32_t)offer(&page[0], 0, "a page is offered")->common == 5,
		"and known by a number");
	ok(!offer(&page[1], 0, "another one")->common, "that is there is not known");
	is_int(glk_node_release(node, page[1]), 0, "which goes without a word");
	is_int(glk_node_release(node, page[0]), 0, "and the other with one");
	ok(offer(&page[2], -EAGAIN, "without an answer")->common,
		"a page may be known all the same");
	is_int(claim("next"), -ENOENT, "and over the next connection");
	ok(glk_page_at(&rig.pool, page[2])->common, "as ever");
	is_int(glk_node_release(node, page[2]), 0, "where it goes without a word");
	end(pid);
}

int main(void)
{
	tap_plan_later();
	if (!mkdtemp(folder))
		tap_bail("no folder");
	test_leave();
	test_nonsense();
	test_away();
	test_claims();
	test_found();
	test_put();
	test_lost();
	test_many();
	test_all_claimed();
	test_offers();
	rmdir(folder);
	return tap_done();
}
