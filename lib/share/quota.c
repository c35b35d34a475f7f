/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A quota: the most memory of a GPU that all processes of a user (share.quota_name tells groups of them apart) hold
 * together, with what the driver gives them beside glake. They share a file in the directory of the user's sockets,
 * mapped by each: for each process and GPU the bytes that glake holds, and those beside.
 *
 * Who takes	adds to its own figure first and sums all of them afterwards; past the limit it subtracts again and is
 *		refused. Both are sequentially consistent, so of two at once the later sees the earlier, and together
 *		they are never above; both may be refused where one would fit. There is no lock that a process could end
 *		or be stopped with
 * Who is there	has an open file description lock on the byte of its entry. The mapping keeps that description, and no
 *		child has the mapping, so the lock ends with the process, whatever closes descriptors, and is seen over
 *		the walls of process ids. An entry that can be locked is nobody's: its figures are swept
 * Beside	is what NVML says that the process has, less what glake holds: measured while it grows, at every
 *		question, and before a refusal. Where NVML does not know the process, it is what was let pass
 *		(glake_quota_pass). A page that another thread is just making or giving back may be missing from it
 *		until the next time
 * Alone	a process that cannot have the file keeps to the limit by itself, and says so once
 * Removed	whoever has the file mapped goes on with it, and nobody is swept from it; who comes later makes another
 *		one, with the same limit. A question or a refusal finds that out, and says so once
 */
#include "share/share.h"

#include "base/conf.h"
#include "base/conf_reader.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/parse.h"
#include "driver/driver.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define UUID_MAX sizeof(((struct glake_device *)NULL)->uuid)
#define GPUS	 64
#define ENTRIES	 512
#define MAGIC	 "glakequ1"
/* Bytes that are locked: one for each entry, and one for the table of GPUs. */
#define TABLE ENTRIES
/* Tries to lock the table, a millisecond each: it is held for a few microseconds. */
#define TRIES 1000
/* What is beside is measured after each such part of the limit. */
#define MEASURES  64
#define FILE_MOST 65536

struct sum {
	glk_atomic(uint64_t) held, beside;
};

struct page {
	char magic[8];
	glk_atomic(uint32_t) entries; /* one more than the last that was used */
	uint32_t unused;
	char uuid[GPUS][UUID_MAX];
	glk_atomic(uint32_t) pid[ENTRIES]; /* as it is for itself; 0: nobody */
	struct sum sum[GPUS][ENTRIES];
};

struct gpu {
	struct glk_quota quota; /* the first */
	unsigned row;
	bool known; /* below is set */
	char uuid[UUID_MAX];
	uint64_t memory;
	glk_atomic(uint64_t) limit; /* UINT64_MAX: none */
	glk_atomic(uint64_t) grown; /* since what is beside was measured */
	glk_atomic(bool) measured;  /* NVML tells */
};

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_NODE); /* of all below */
static struct {
	struct page *page;
	unsigned entry, users, forks;
	bool alone, read; /* the configuration was */
	bool removed;	  /* the file is, or another one is there */
	dev_t dev;
	ino_t ino;
	struct glk_quota_rules rules;
	struct stat seen;     /* that file, as it was read; of no number: it was not */
	bool told, told_line; /* that it cannot be read, and that a line of it is none */
	char text[FILE_MOST];
	struct gpu gpu[GPUS];
} own;

static struct sum *mine(const struct gpu *g)
{
	return &own.page->sum[g->row][own.entry];
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t total(const struct gpu *g)
{
	uint32_t entries = glk_load_relaxed(&own.page->entries);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < entries && i < ENTRIES; i++) {
		struct sum *s = &own.page->sum[g->row][i];

		bytes = plus(bytes, glk_load_seq_cst(&s->held));
		bytes = plus(bytes, glk_load_seq_cst(&s->beside));
	}
	return bytes;
}

/* ---- The file ---- */

static bool lock_byte(int fd, unsigned at, bool on)
{
	struct flock l = {.l_type = on ? F_WRLCK : F_UNLCK,
		.l_whence = SEEK_SET,
		.l_start = at,
		.l_len = 1};

	return !fcntl(fd, F_OFD_SETLK, &l);
}

static bool lock_table(int fd)
{
	const struct timespec step = {.tv_nsec = 1000000};

	for (int i = 0; i < TRIES; i++) {
		if (lock_byte(fd, TABLE, true))
			return true;
		if (errno != EAGAIN && errno != EACCES)
			return false;
		nanosleep(&step, NULL);
	}
	return false;
}

static unsigned processes(void)
{
	uint32_t entries = glk_load_relaxed(&own.page->entries);
	unsigned count = 0;

	for (uint32_t i = 0; i < entries && i < ENTRIES; i++)
		count += glk_load_relaxed(&own.page->pid[i]) != 0;
	return count;
}

/* Once. */
static void note_removed(bool is, const char *why)
{
	if (is && !own.removed)
		glk_warn(
			"the file of the quota is gone (%s): the processes that have it, %u, go on together, "
			"and those to come count anew",
			why, processes());
	own.removed |= is;
}

/* A description of the file of its own; -1: it cannot be had, or is another one by now. */
static int open_file(bool first, char *why)
{
	char name[sizeof(own.rules.name) + 8];
	struct stat s;
	int fd, room, err = glk_wire_room_open(first, &room, why);

	if (err && !first)
		note_removed(err == -ENOENT, why);
	if (err)
		return -1;
	snprintf(name, sizeof(name), *own.rules.name ? "quota-%s" : "quota%s",
		own.rules.name);
	fd = openat(room, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (first ? O_CREAT : 0),
		0600);
	close(room);
	if (fd < 0 || fstat(fd, &s)) {
		err = errno;
		snprintf(why, GLK_WIRE_WHY_MAX, "%s: %s", name, strerror(err));
		note_removed(!first && fd < 0 && err == ENOENT, why);
	} else if (!S_ISREG(s.st_mode) || s.st_uid != geteuid() || s.st_mode & 077) {
		snprintf(why, GLK_WIRE_WHY_MAX, "%s is another user's, or open to others",
			name);
	} else if (!first && (s.st_dev != own.dev || s.st_ino != own.ino)) {
		snprintf(why, GLK_WIRE_WHY_MAX, "%s is another one by now", name);
		note_removed(true, why);
	} else {
		own.dev = s.st_dev;
		own.ino = s.st_ino;
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Under the lock of the table. */
static bool map_file(int fd, char *why)
{
	struct stat s;
	void *at;

	snprintf(why, GLK_WIRE_WHY_MAX, "it is of another version of glake");
	if (fstat(fd, &s) || (s.st_size && s.st_size != sizeof(struct page)))
		return false;
	if (!s.st_size && ftruncate(fd, sizeof(struct page)))
		goto failed;
	at = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		goto failed;
	own.page = at;
	/* new, or its maker ended before it wrote that */
	if (!own.page->magic[0])
		memcpy(own.page->magic, MAGIC, sizeof(own.page->magic));
	if (!memcmp(own.page->magic, MAGIC, sizeof(own.page->magic)) &&
		!madvise(at, sizeof(struct page), MADV_DONTFORK))
		return true;
	munmap(at, sizeof(struct page));
	own.page = NULL;
	return false;
failed:
	snprintf(why, GLK_WIRE_WHY_MAX, "%s", strerror(errno));
	return false;
}

static void clear_entry(unsigned at)
{
	for (int g = 0; g < GPUS; g++) {
		glk_store_relaxed(&own.page->sum[g][at].held, 0);
		glk_store_relaxed(&own.page->sum[g][at].beside, 0);
	}
	glk_store_relaxed(&own.page->pid[at], 0);
}

static bool take_entry(int fd, char *why)
{
	uint32_t entries;

	for (unsigned i = 0; i < ENTRIES; i++) {
		if (!lock_byte(fd, i, true))
			continue;
		own.entry = i;
		clear_entry(i);
		glk_store_relaxed(&own.page->pid[i], (uint32_t)getpid());
		entries = glk_load_relaxed(&own.page->entries);
		if (entries <= i)
			glk_store_relaxed(&own.page->entries, i + 1);
		return true;
	}
	snprintf(why, GLK_WIRE_WHY_MAX, "it has %d processes already", ENTRIES);
	return false;
}

static bool attach_file(char *why)
{
	bool done = false;
	int fd = open_file(true, why);

	if (fd < 0)
		return false;
	if (!lock_table(fd)) {
		snprintf(why, GLK_WIRE_WHY_MAX, "it cannot be locked");
	} else {
		done = map_file(fd, why) && take_entry(fd, why);
		lock_byte(fd, TABLE, false);
	}
	if (!done && own.page) {
		munmap(own.page, sizeof(struct page));
		own.page = NULL;
	}
	/* the mapping keeps the description, and with it the lock */
	close(fd);
	return done;
}

static void forget(void)
{
	own.page = NULL;
	own.alone = own.removed = false;
	for (int g = 0; g < GPUS; g++)
		own.gpu[g].known = false;
}

/* Under the lock, as all below. In a child of a process that had one it is made anew: the mapping is not there. */
static int attach(void)
{
	char why[GLK_WIRE_WHY_MAX] = "";

	if (own.page && own.forks != glk_fork_generation())
		forget();
	if (own.page)
		return 0;
	own.forks = glk_fork_generation();
	if (attach_file(why))
		return 0;
	own.page = glk_region_new(sizeof(struct page));
	if (!own.page)
		return -ENOMEM;
	own.alone = true;
	own.entry = 0;
	glk_store_relaxed(&own.page->entries, 1);
	glk_store_relaxed(&own.page->pid[0], (uint32_t)getpid());
	glk_warn(
		"the quota holds for this process alone, since its file cannot be had: %s",
		why);
	return 0;
}

static void detach(void)
{
	if (!own.page)
		return;
	clear_entry(own.entry);
	if (own.alone)
		glk_region_free(own.page, sizeof(struct page));
	else
		munmap(own.page, sizeof(struct page));
	forget();
}

/* Figures of processes that have ended. */
static void sweep(void)
{
	uint32_t entries = glk_load_relaxed(&own.page->entries);
	char why[GLK_WIRE_WHY_MAX];
	int fd = own.alone || own.removed ? -1 : open_file(false, why);

	if (fd < 0)
		return;
	for (unsigned i = 0; i < entries && i < ENTRIES; i++) {
		if (i == own.entry || !glk_load_relaxed(&own.page->pid[i]) ||
			!lock_byte(fd, i, true))
			continue;
		clear_entry(i);
		lock_byte(fd, i, false);
	}
	close(fd);
}

/* The first bytes of a row's name: who puts those there has the row, and puts the rest there. */
static glk_atomic(uint64_t) * head_of(unsigned row)
{
	return (glk_atomic(uint64_t) *)(void *)own.page->uuid[row];
}

/* A row that has all of the name, or else one that is taken. GPUS: there are too many; with `waits` LATER: one may be
 * about to have it. */
#define LATER (GPUS + 1)

static unsigned take_row(const char name[UUID_MAX], bool waits)
{
	uint64_t first;

	memcpy(&first, name, sizeof(first));
	for (unsigned row = 0; row < GPUS; row++) {
		if (!memcmp(own.page->uuid[row], name, UUID_MAX))
			return row;
	}
	for (unsigned row = 0; row < GPUS; row++) {
		uint64_t was = 0;

		if (glk_cas_seq_cst(head_of(row), &was, first)) {
			memcpy(own.page->uuid[row] + sizeof(first), name + sizeof(first),
				UUID_MAX - sizeof(first));
			return row;
		}
		if (waits && was == first && !own.page->uuid[row][sizeof(first)])
			return LATER;
	}
	return GPUS;
}

/* The row of a GPU; GPUS: there are too many. One whose process ended before it had named it is nobody's. */
static unsigned row_of(const char *uuid)
{
	const struct timespec step = {.tv_nsec = 1000000};
	char name[UUID_MAX] = "";
	unsigned row;

	memcpy(name, uuid, strlen(uuid));
	row = take_row(name, true);
	for (int i = 0; i < TRIES && row == LATER; i++) {
		nanosleep(&step, NULL);
		row = take_row(name, true);
	}
	return row == LATER ? take_row(name, false) : row;
}

/* ---- Limits ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_size == b->st_size &&
		a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
		a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The file of limits, where it has changed: who could write it could give himself more, or others less. */
static void read_limits(void)
{
	struct stat s;
	ssize_t length;
	int fd;

	if (!*own.rules.path)
		return;
	fd = open(own.rules.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &s) || !S_ISREG(s.st_mode) || s.st_mode & 022 ||
		(s.st_uid && s.st_uid != geteuid()) || s.st_size >= FILE_MOST) {
		if (!own.told)
			glk_warn(
				"share.quota_file: %s cannot be read, has 64KiB, or others may write it; what held before holds",
				own.rules.path);
		own.told = true;
		if (fd >= 0)
			close(fd);
		return;
	}
	if (!same_file(&s, &own.seen)) {
		length = read(fd, own.text, sizeof(own.text) - 1);
		if (length >= 0) {
			own.text[length] = '\0';
			own.seen = s;
			own.told = own.told_line = false;
		}
	}
	close(fd);
}

/* What a line says: a limit for all GPUs, or a UUID and one. False: nothing about this one. */
static bool read_line(const char *line, const char *uuid, size_t *ret_share)
{
	char word[3][GLK_CONF_TEXT_MAX], text[GLK_CONF_TEXT_MAX];
	char why[GLK_WIRE_WHY_MAX] = "a line has a limit, or the UUID of a GPU and one";
	static struct glk_conf conf; /* it is large */
	int words;

	snprintf(text, sizeof(text), "%.*s", (int)strcspn(line, "#\r\n"), line);
	words = sscanf(text, "%127s %127s %127s", word[0], word[1], word[2]);
	if (words < 1)
		return false;
	if (words == 2 && strcmp(word[0], uuid)) {
		if (!strncmp(word[0], "GPU-", 4) || !strncmp(word[0], "MIG-", 4))
			return false;
		words = 3;
	}
	if (words < 3 &&
		!glk_conf_parse(
			&conf, GLK_CONF_share_quota, word[words - 1], why, sizeof(why))) {
		*ret_share = conf.share_quota;
		return true;
	}
	if (!own.told_line)
		glk_warn("share.quota_file: %s: %s", own.rules.path, why);
	own.told_line = true;
	return false;
}

static void set_limit(struct gpu *g)
{
	size_t share = own.rules.share, bytes;

	for (const char *line = own.text; *line; line += *line == '\n') {
		read_line(line, g->uuid, &share);
		line += strcspn(line, "\n");
	}
	bytes = glk_conf_share(share, g->memory);
	glk_store_relaxed(&g->limit,
		!share			    ? UINT64_MAX
			: bytes < g->memory ? bytes
					    : g->memory);
}

/* ---- What is beside ---- */

static void measure(struct gpu *g)
{
	struct sum *s = mine(g);
	uint64_t held = glk_load_seq_cst(&s->held), used = 0;
	int err = glk_nvml_used(g->uuid, &used);

	glk_store_relaxed(&g->grown, 0);
	glk_store_relaxed(&g->measured, !err);
	if (!err)
		glk_xchg_seq_cst(&s->beside, used > held ? used - held : 0);
}

static void look(struct gpu *g, bool sweeps)
{
	read_limits();
	set_limit(g);
	measure(g);
	if (sweeps)
		sweep();
}

/* ---- For the nodes ---- */

static bool add(struct gpu *g, glk_atomic(uint64_t) * figure, uint64_t bytes)
{
	glk_add_seq_cst(figure, bytes);
	if (total(g) <= glk_load_relaxed(&g->limit)) {
		glk_add_relaxed(&g->grown, bytes);
		return true;
	}
	glk_sub_acq_rel(figure, bytes);
	return false;
}

/* Whether what is beside is to be measured before so much more. */
static bool is_due(struct gpu *g, uint64_t bytes)
{
	uint64_t grown = glk_load_relaxed(&g->grown);

	return !grown || grown + bytes > glk_load_relaxed(&g->limit) / MEASURES;
}

static int take(struct glk_quota *quota, uint64_t bytes, bool may_call)
{
	struct gpu *g = (struct gpu *)quota;
	bool fits;

	if (may_call && is_due(g, bytes)) {
		glk_lock(&lock);
		look(g, false);
		glk_unlock(&lock);
	}
	fits = add(g, &mine(g)->held, bytes);
	if (!fits && may_call) {
		glk_lock(&lock);
		look(g, true);
		glk_unlock(&lock);
		fits = add(g, &mine(g)->held, bytes);
	}
	return fits ? 0 : -ENOMEM;
}

static void put(struct glk_quota *quota, uint64_t bytes)
{
	glk_sub_acq_rel(&mine((struct gpu *)quota)->held, bytes);
}

static uint64_t room(const struct glk_quota *quota)
{
	const struct gpu *g = (const struct gpu *)quota;
	uint64_t held = glk_load_relaxed(&mine(g)->held);
	uint64_t limit = glk_load_relaxed(&g->limit), all;

	if (limit == UINT64_MAX)
		return limit;
	all = total(g);
	all = all > held ? all - held : 0;
	return limit > all ? limit - all : 0;
}

static void fill(struct gpu *g, struct glake_quota *quota)
{
	uint64_t limit = glk_load_relaxed(&g->limit);
	struct sum *s = mine(g);

	quota->limit = limit == UINT64_MAX ? 0 : limit;
	quota->used = total(g);
	quota->held = glk_load_relaxed(&s->held);
	quota->beside = glk_load_relaxed(&s->beside);
	quota->alone = own.alone;
	quota->measured = glk_load_relaxed(&g->measured);
	quota->processes = processes();
}

static void tell(struct glk_quota *of, char *text, size_t size)
{
	struct glake_quota q = {0};
	uint64_t others;

	fill((struct gpu *)of, &q);
	others = q.used - q.held - q.beside;
	snprintf(text, size,
		"the quota of %s (share.quota) is used up: %s by this process, with %s beside glake, %s by %u others",
		glk_say_bytes(q.limit).text, glk_say_bytes(q.held + q.beside).text,
		glk_say_bytes(q.beside).text,
		glk_say_bytes(others <= q.used ? others : 0).text, q.processes - 1);
}

/* ---- Its life ---- */

/* The place of a GPU here. Under the lock. */
static struct gpu *gpu_of(const char *uuid, uint64_t memory)
{
	struct gpu *free = NULL;
	unsigned row;

	for (int i = 0; i < GPUS; i++) {
		if (own.gpu[i].known && !strcmp(own.gpu[i].uuid, uuid))
			return &own.gpu[i];
		if (!own.gpu[i].known && !free)
			free = &own.gpu[i];
	}
	row = free && *uuid && strlen(uuid) < UUID_MAX ? row_of(uuid) : GPUS;
	if (row == GPUS)
		return NULL;
	snprintf(free->uuid, sizeof(free->uuid), "%s", uuid);
	free->row = row;
	free->memory = memory;
	free->quota = (struct glk_quota){take, put, room, tell};
	glk_store_relaxed(&free->grown, 0);
	glk_store_relaxed(&free->measured, false);
	set_limit(free);
	free->known = true;
	return free;
}

bool glk_quota_wants(const struct glk_quota_rules *rules)
{
	return rules->share || *rules->path;
}

struct glk_quota_rules glk_quota_rules(const struct glk_conf *conf)
{
	struct glk_quota_rules rules = {.share = conf->share_quota};

	memcpy(rules.path, conf->share_quota_file, sizeof(rules.path));
	memcpy(rules.name, conf->share_quota_name, sizeof(rules.name));
	return rules;
}

static void configure(const struct glk_quota_rules *rules)
{
	own.rules = *rules;
	own.seen = (struct stat){0};
	own.text[0] = '\0';
	own.told = own.told_line = false;
	own.read = true;
	read_limits();
}

static bool is_same(const struct glk_quota_rules *rules)
{
	return own.read && own.rules.share == rules->share &&
		!strcmp(own.rules.path, rules->path) &&
		!strcmp(own.rules.name, rules->name);
}

int glk_quota_begin(
	struct glk_pool *pool, const struct glk_quota_rules *rules, bool *ret_has)
{
	int err;

	*ret_has = false;
	if (!glk_quota_wants(rules))
		return 0;
	glk_lock(&lock);
	/* one that had it before its first context keeps it */
	if (!own.users && !is_same(rules)) {
		detach();
		configure(rules);
	}
	err = attach();
	own.users += !err;
	*ret_has = !err;
	for (int i = 0; i < pool->gpus && !err; i++) {
		struct glake_device info = {.sz = sizeof(info)};
		struct gpu *g;

		err = pool->drv->ops->device_info(pool->drv, i, &info);
		g = err ? NULL : gpu_of(info.uuid, info.memory);
		if (!err && !g)
			err = glk_error(-ENOSPC, GLAKE_ERROR_LIMIT,
				"share.quota: no place for GPU %s", info.uuid);
		pool->nodes[i].quota = g ? &g->quota : NULL;
	}
	glk_unlock(&lock);
	return err;
}

void glk_quota_end(void)
{
	glk_lock(&lock);
	if (!--own.users)
		detach();
	glk_unlock(&lock);
}

void glk_quota_set(size_t share)
{
	glk_lock(&lock);
	own.rules.share = share;
	for (int i = 0; i < GPUS; i++)
		if (own.gpu[i].known)
			set_limit(&own.gpu[i]);
	glk_unlock(&lock);
}

/* Under the lock. NULL: there is no quota. */
static struct gpu *find(
	const struct glk_quota_rules *rules, const char *uuid, uint64_t memory)
{
	if (!own.users && !glk_quota_wants(rules))
		return NULL;
	if (!own.users && !own.read)
		configure(rules);
	return attach() ? NULL : gpu_of(uuid, memory);
}

void glk_quota_get(const struct glk_quota_rules *rules, const char *uuid, uint64_t memory,
	struct glake_quota *ret_quota)
{
	struct gpu *g;

	glk_lock(&lock);
	g = find(rules, uuid, memory);
	if (g) {
		look(g, true);
		fill(g, ret_quota);
	}
	glk_unlock(&lock);
}

static void pass_back(struct gpu *g, uint64_t bytes)
{
	uint64_t was = glk_load_relaxed(&mine(g)->beside);

	while (!glk_cas_weak_relaxed(
		&mine(g)->beside, &was, was > bytes ? was - bytes : 0))
		;
}

/* Under the lock, so that the file stays. */
static int pass(struct gpu *g, uint64_t bytes)
{
	char why[GLK_WIRE_WHY_MAX];

	if (is_due(g, bytes))
		look(g, false);
	if (add(g, &mine(g)->beside, bytes))
		return 0;
	look(g, true);
	if (add(g, &mine(g)->beside, bytes))
		return 0;
	tell(&g->quota, why, sizeof(why));
	return glk_error(-EDQUOT, GLAKE_ERROR_LIMIT, "%s are refused: %s",
		glk_say_bytes(bytes).text, why);
}

int glk_quota_pass(const struct glk_quota_rules *rules, const char *uuid, uint64_t memory,
	int64_t bytes)
{
	struct gpu *g;
	int err = 0;

	glk_lock(&lock);
	g = find(rules, uuid, memory);
	if (g && bytes < 0) {
		pass_back(g, -(uint64_t)bytes);
		measure(g);
	} else if (g) {
		err = pass(g, (uint64_t)bytes);
	}
	glk_unlock(&lock);
	return err;
}
