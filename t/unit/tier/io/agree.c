/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Processes agree on links: no share is anybody's twice, whoever is killed, and whatever lies in the way. */
#include "tier/io/agree.h"

#include "base/atomic.h"
#include "seed.h"
#include "tap.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOMEBODY 12345
#define FIRST	 "GPU-50f70000-0000-0000-0000-000000000000"
#define SECOND	 "GPU-50f70000-0000-0000-0000-000000000001"

static char parent[64], path[128];
static struct glk_agree a, b, c;

static void start(struct glk_agree *agree, uint64_t lent)
{
	glk_agree_init(agree, true, true, lent);
}

/* Shares of the first GPU for one way. */
static int64_t borrow(struct glk_agree *agree)
{
	return glk_agree_borrow(agree, 0, 0, FIRST);
}

static void end_all(void)
{
	glk_agree_fini(&a);
	glk_agree_fini(&b);
	glk_agree_fini(&c);
}

static void shares(void)
{
	start(&a, 0);
	start(&b, 0);
	start(&c, 0);
	is_int(borrow(&a), 4, "a link that nobody uses is borrowed whole");
	is_int(borrow(&a), 4, "and stays so");
	is_int(borrow(&b), 0, "by one at a time");
	is_int(glk_agree_borrow(&b, 0, 1, FIRST), 4, "the other way is another one's");
	is_int(glk_agree_borrow(&b, 1, 0, SECOND), 4, "so is another GPU");
	glk_agree_give(&a, 0, 0);
	is_int(borrow(&b), 4, "what was given back is had");
	is_int(borrow(&a), 0, "by the next");
	glk_agree_fini(&b);
	is_int(borrow(&a), 4, "what ends gives all back");
	end_all();
}

static void use(void)
{
	start(&a, 1);
	start(&b, 0);
	start(&c, 0);
	glk_agree_use(&b, 0, FIRST);
	is_int(borrow(&a), 0, "the link of a GPU that another one uses is not borrowed");
	is_int(borrow(&b), 4, "but by that one");
	is_int(glk_agree_borrow(&a, 1, 0, SECOND), 4, "others are");
	glk_agree_fini(&b);
	is_int(borrow(&a), 4, "once it has ended, it is");
	glk_agree_give(&a, 0, 0);
	glk_agree_use(&a, 0, FIRST);
	start(&b, 0);
	is_int(borrow(&b), 2, "one that is used and lent is borrowed by half");
	is_int(borrow(&c), 0, "by all others together");
	is_int(borrow(&a), 2, "the other half is its user's");
	glk_agree_use(&c, 0, FIRST);
	is_int(borrow(&b), 0, "one that does not lend takes what was borrowed back");
	end_all();
	start(&a, 1);
	start(&b, 0);
	is_int(borrow(&b), 4, "one that is borrowed whole");
	glk_agree_use(&a, 0, FIRST);
	is_int(borrow(&b), 2, "is by half, when it is used");
	end_all();
}

/* ---- What may lie in the way ---- */

static void none(const char *word)
{
	start(&a, 0);
	start(&b, 0);
	tap_expect_log(2);
	ok(borrow(&a) == 4 && borrow(&b) == 4, "%s: each has all", word);
	glk_agree_use(&a, 0, FIRST);
	is_int(borrow(&b), 4, "  whoever uses it");
	glk_agree_give(&b, 0, 0);
	end_all();
}

static void put(const char *content, mode_t mode)
{
	int fd;

	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, content, strlen(content)) < 0 || fchmod(fd, mode) ||
		close(fd))
		tap_bail("no file");
}

/* The descriptor that a file would get now. */
static int lowest(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	close(fd);
	return fd;
}

static void files(void)
{
	int fd = lowest();

	put("nonsense, and more of it", 0600);
	start(&a, 0);
	start(&b, 0);
	ok(borrow(&a) == 4 && borrow(&b) == 0, "what the file holds does not matter");
	if (truncate(path, 0) || truncate(path, 1 << 20))
		tap_bail("truncate");
	is_int(borrow(&b), 0, "nor how long it is");
	end_all();
	put("", 0660);
	none("open to others");
	is_int(lowest(), fd, "  and is closed");
	unlink(path);
	if (symlink("/dev/null", path))
		tap_bail("symlink");
	none("a link");
	unlink(path);
	if (mkdir(path, 0700))
		tap_bail("mkdir");
	none("a folder");
	rmdir(path);
	if (mkfifo(path, 0600))
		tap_bail("mkfifo");
	none("a pipe");
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
	if (close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)))
		tap_bail("no file");
	none("no folder");
	unlink(path);
	path[strlen(path)] = '/';
	chmod(parent, 0777);
	none("a folder that all may write");
	chmod(parent, 0700);
	start(&a, 0);
	start(&b, 0);
	ok(borrow(&a) == 4 && borrow(&b) == 0, "and with all in its place they agree");
	end_all();
}

static void another_user(void)
{
	if (geteuid()) {
		tap_skip("a file of another user", "only root can make one");
		return;
	}
	put("", 0600);
	if (chown(path, SOMEBODY, (gid_t)-1))
		tap_bail("chown");
	none("a file of another user");
	unlink(path);
	*strrchr(path, '/') = '\0';
	if (chown(path, SOMEBODY, (gid_t)-1))
		tap_bail("chown");
	none("a folder of another user");
	if (chown(path, 0, (gid_t)-1))
		tap_bail("chown");
	path[strlen(path)] = '/';
}

/* A program that closes what it does not know: another file of that number is left alone. */
static void closed(void)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char name[128];
	int fd, other;

	start(&a, 0);
	start(&b, 0);
	is_int(borrow(&a), 4, "a link");
	close(a.fd);
	snprintf(name, sizeof(name), "%s/other", parent);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	is_int(fd, a.fd, "its descriptor is another file's");
	tap_expect_log(1);
	is_int(borrow(&a), 4, "nothing is agreed on then");
	is_int(borrow(&b), 4, "by others it is");
	other = open(name, O_RDWR | O_CLOEXEC);
	is_int(fcntl(other, F_OFD_SETLK, &all), 0, "that file has no lock");
	end_all();
	is_int(fcntl(fd, F_GETFD), FD_CLOEXEC, "and is open");
	close(fd);
	close(other);
	unlink(name);
}

static void forked(void)
{
	int pipes[2], ready[2], status;
	char byte = 0;
	pid_t pid;

	start(&a, 0);
	start(&b, 0);
	is_int(borrow(&a), 4, "one that forks");
	if (pipe(pipes) || pipe(ready))
		tap_bail("pipe");
	pid = fork();
	if (!pid) {
		glk_agree_fini(&a);
		close(pipes[1]);
		_exit(write(ready[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 0);
	}
	close(pipes[0]);
	is_int(read(ready[0], &byte, 1), 1, "into a child");
	close(ready[0]);
	close(ready[1]);
	is_int(borrow(&b), 0, "has what it had");
	glk_agree_fini(&a);
	is_int(borrow(&b), 4,
		"and has it no longer than itself, though its child is there");
	close(pipes[1]);
	waitpid(pid, &status, 0);
	is_int(status, 0, "which goes on");
	end_all();
}

/* ---- Many processes ---- */

#define MOST 8

struct table {
	glk_atomic(unsigned) holder[GLK_AGREE_WAYS][GLK_AGREE_SHARES];
	glk_atomic(unsigned) wrong, rounds[MOST];
};

static struct table *table;

/* Marks the shares it has as its own while it has them. */
static void work(unsigned number, int way)
{
	unsigned mask, none_yet;

	glk_agree_borrow(&a, 0, way, FIRST);
	mask = a.gpu[0].shares[way];
	for (unsigned s = 0; s < GLK_AGREE_SHARES; s++) {
		none_yet = 0;
		if (mask >> s & 1 &&
			!glk_cas_acq_rel(&table->holder[way][s], &none_yet, number + 1))
			glk_add_relaxed(&table->wrong, 1);
	}
	if (number % 2)
		sched_yield();
	for (unsigned s = 0; s < GLK_AGREE_SHARES; s++)
		if (mask >> s & 1)
			glk_store_release(&table->holder[way][s], 0);
	glk_agree_give(&a, 0, way);
	glk_store_relaxed(
		&table->rounds[number], glk_load_relaxed(&table->rounds[number]) + 1);
}

static void child(unsigned number, unsigned rounds)
{
	glk_agree_init(&a, true, false, number & 1);
	if (number == 1)
		glk_agree_use(&a, 0, FIRST);
	for (unsigned i = 0; !rounds || i < rounds; i++)
		work(number, (int)(i & 1));
	glk_agree_fini(&a);
	_exit(0);
}

static void many(unsigned count, unsigned rounds)
{
	unsigned wrong = 0;
	pid_t pid[MOST];
	int status;

	memset((void *)table, 0, sizeof(*table));
	for (unsigned i = 0; i < count; i++) {
		pid[i] = fork();
		if (!pid[i])
			child(i, rounds);
	}
	for (unsigned i = 0; i < count; i++) {
		waitpid(pid[i], &status, 0);
		wrong += status != 0;
	}
	is_int(wrong, 0, "processes borrow and give back");
	is_int(glk_load_relaxed(&table->wrong), 0, "none had what another one had");
	start(&a, 0);
	is_int(borrow(&a), 4, "nothing is left of them");
	glk_agree_fini(&a);
}

/* Killed and stopped in whatever they did. */
static void killed(void)
{
	pid_t pid[MOST], stopped;
	uint64_t rolled = seed_thread(seed_start(), 1);
	int status;

	memset((void *)table, 0, sizeof(*table));
	for (unsigned i = 0; i < MOST; i++) {
		pid[i] = fork();
		if (!pid[i])
			child(i, 0);
	}
	for (unsigned i = 0; i < MOST; i++) {
		unsigned until = (unsigned)(seed_next(&rolled) % 300) + 1;

		while (glk_load_relaxed(&table->rounds[i]) < until)
			sched_yield();
		kill(pid[i], i == 5 ? SIGSTOP : SIGKILL);
		if (i != 5)
			waitpid(pid[i], &status, 0);
	}
	stopped = pid[5];
	waitpid(stopped, &status, WUNTRACED);
	start(&a, 0);
	ok(borrow(&a) + glk_agree_borrow(&a, 0, 1, FIRST) >= 4,
		"one that is stopped keeps what it has, and holds up nobody");
	kill(stopped, SIGKILL);
	waitpid(stopped, &status, 0);
	glk_agree_give(&a, 0, 0);
	glk_agree_give(&a, 0, 1);
	is_int(borrow(&a), 4, "those that were killed have nothing");
	is_int(glk_agree_borrow(&a, 0, 1, FIRST), 4, "either way");
	glk_agree_fini(&a);
}

int main(void)
{
	tap_plan_later();
	if (!mkdtemp(tap_template(parent, sizeof(parent), "agree")))
		tap_bail("no folder");
	setenv("XDG_RUNTIME_DIR", parent, 1);
	snprintf(path, sizeof(path), "%s/glake/links", parent);
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (table == MAP_FAILED)
		tap_bail("no memory");
	shares();
	use();
	files();
	another_user();
	closed();
	forked();
	many(2, 4000);
	many(MOST, 2000);
	killed();
	unlink(path);
	snprintf(path, sizeof(path), "%s/glake", parent);
	rmdir(path);
	ok(!rmdir(parent), "nothing else lies there");
	return tap_done();
}
