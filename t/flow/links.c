/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Processes that lend themselves links agree on them: who uses a GPU, who borrows its link and how much of it,
 * whoever is killed, and what they do where there is nothing to agree by. */
#include "context.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST  8
#define BYTES (8 * MIB)
#define LINKS                                                                            \
	"soft.memory=64MiB", "map.span=4GiB", "io.lend=all", "io.least=0",               \
		"io.piece=64KiB", "io.staging=2MiB", "io.agree=always"

static const char *const alone[] = {LINKS, "soft.gpus=4", NULL};
static const char *const stepped[] = {LINKS, "soft.gpus=4", "soft.streams=stepped", NULL};
static const char *const lends[] = {LINKS, "soft.gpus=4", "io.lend_to=user", NULL};
static const char *const lends_stepped[] = {
	LINKS, "soft.gpus=4", "io.lend_to=user", "soft.streams=stepped", NULL};
static const char *const eight[] = {LINKS, "soft.gpus=8", "io.lend_to=user", NULL};

enum { COPY, QUEUE, FINISH, CLOSE };

struct answer {
	int err;
	uint32_t paths;
	uint64_t relayed;
	bool is_whole;
};

struct process {
	pid_t pid;
	int in, out;
};

static char folder[64], path[128];

/* ---- In each process ---- */

static struct glake *ctx;
static struct CUstream_st *stream;
static struct glake_copy_job *job;
static unsigned char *host, *block;

static int set_up(const char *const *settings, int device)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	void *ptr = NULL, *locked = NULL;

	if (glake_open(&options, &ctx) || glake_stream_new(ctx, device, &stream) ||
		glake_alloc(ctx, device, BYTES, stream, 0, &ptr) ||
		glake_host_alloc(ctx, device, BYTES, 0, &locked))
		return -1;
	block = ptr;
	host = locked;
	return 0;
}

static struct answer do_one(int what, int device, unsigned char turn)
{
	struct glake_copy_state state = {.sz = sizeof(state)};
	struct answer a = {0};

	if (what == CLOSE) {
		glake_free(ctx, block, stream);
		glake_host_free(ctx, host);
		glake_stream_free(ctx, device, stream);
		a.err = glake_close(ctx, NULL);
		return a;
	}
	if (what != FINISH) {
		for (size_t i = 0; i < BYTES; i++)
			host[i] = (unsigned char)(i * 7 + i / 4096 + turn);
		a.err = glake_copy(ctx, block, host, BYTES, stream, 0, &job);
	}
	if (what == FINISH)
		a.err = glake_soft_stream_sync(ctx, device, stream);
	if (!a.err && what != QUEUE)
		a.err = glake_copy_wait(job, -1);
	if (!a.err && (!glake_copy_get(job, &state) || what == QUEUE)) {
		a.paths = state.paths;
		a.relayed = state.relayed;
	}
	a.is_whole = what != QUEUE && !memcmp(block, host, BYTES);
	if (what != QUEUE)
		glake_copy_close(job);
	return a;
}

static void serve(const char *const *settings, int device, int in, int out)
{
	struct answer a = {.err = set_up(settings, device)};
	unsigned char turn = 0;
	char what = COPY;

	/* later processes have the pipes of earlier ones too, so that none ends with its parent's */
	while (write(out, &a, sizeof(a)) == sizeof(a) && what != CLOSE &&
		read(in, &what, 1) == 1)
		a = do_one(what, device, ++turn);
	_exit(0);
}

/* ---- In the one that starts them ---- */

static struct answer answer_of(const struct process *p)
{
	struct answer a = {.err = -1};

	if (read(p->in, &a, sizeof(a)) != sizeof(a))
		a.err = -EPIPE;
	return a;
}

static void send_to(const struct process *p, int what)
{
	char byte = (char)what;

	if (write(p->out, &byte, 1) != 1)
		tap_bail("a process is not there");
}

static struct answer ask(const struct process *p, int what)
{
	send_to(p, what);
	return answer_of(p);
}

static struct process begin(const char *const *settings, int device, uid_t user)
{
	int down[2], up[2];
	struct process p;

	if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC))
		tap_bail("no pipe");
	p.pid = fork();
	if (!p.pid) {
		close(down[1]);
		close(up[0]);
		if (user && setuid(user))
			_exit(1);
		serve(settings, device, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	p.in = up[0];
	p.out = down[1];
	if (answer_of(&p).err)
		tap_bail("a process has no context");
	return p;
}

static void end(struct process *p, int signal)
{
	int status;

	if (signal)
		kill(p->pid, signal);
	else
		ask(p, CLOSE);
	close(p->in);
	close(p->out);
	waitpid(p->pid, &status, 0);
}

static void goes(const struct process *p, unsigned paths, const char *what)
{
	struct answer a = ask(p, COPY);

	ok(!a.err && a.is_whole, "%s: all bytes arrive", what);
	is_int(a.paths, paths, "over so many paths");
}

static void used_alone(void)
{
	struct process a = begin(alone, 0, 0), b;

	goes(&a, 4, "one process");
	b = begin(alone, 1, 0);
	goes(&a, 3, "one beside another, which uses a GPU");
	goes(&b, 3, "and that one");
	end(&b, SIGKILL);
	goes(&a, 4, "when it was killed");
	b = begin(alone, 0, 0);
	goes(&b, 4, "two of the same GPU");
	goes(&a, 4, "by turns");
	end(&b, 0);
	end(&a, 0);
}

/* What one has on its way is not there for the other. */
static void borrowed(void)
{
	struct process a = begin(stepped, 0, 0), b = begin(alone, 1, 0);

	is_int(ask(&a, QUEUE).err, 0, "a copy that does not go on");
	goes(&b, 1, "has borrowed what it may, so that another one has its own link");
	is_int(ask(&a, FINISH).err, 0, "it goes on, and ends");
	goes(&b, 3, "so it has given back what it had");
	ask(&a, QUEUE);
	goes(&b, 1, "once more");
	end(&a, SIGKILL);
	goes(&b, 4, "it is killed with what it had");
	end(&b, 0);
}

static void lent(void)
{
	struct process a = begin(lends_stepped, 0, 0), b = begin(lends, 1, 0), c;
	struct answer whole, half;

	is_int(ask(&a, QUEUE).err, 0, "two that lend: the first one's copy");
	is_int(ask(&a, FINISH).paths, 4, "goes over all links");
	goes(&b, 4, "so does that of the other");
	ask(&a, QUEUE);
	c = begin(lends, 2, 0);
	goes(&b, 2,
		"while that is under way, over its own link and the lent half of the first one's");
	ask(&a, FINISH);
	half = ask(&b, COPY);
	is_int(half.paths, 4, "afterwards all");
	end(&c, SIGKILL);
	end(&a, SIGKILL);
	whole = ask(&b, COPY);
	ok(whole.relayed > half.relayed,
		"%lu bytes over links that others use, %lu over free ones",
		(unsigned long)half.relayed, (unsigned long)whole.relayed);
	end(&b, 0);
}

/* All at once, and some are killed. */
static void many(void)
{
	struct process p[MOST];
	struct answer a;
	int wrong = 0;

	for (int i = 0; i < MOST; i++)
		p[i] = begin(eight, i, 0);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MOST; i++)
			send_to(&p[i], COPY);
		for (int i = 0; i < MOST; i++) {
			a = answer_of(&p[i]);
			wrong += a.err || !a.is_whole || !a.paths || a.paths > MOST;
		}
	}
	is_int(wrong, 0, "eight processes on eight GPUs");
	for (int i = 0; i < MOST; i++)
		send_to(&p[i], COPY);
	for (int i = 1; i < MOST; i += 2)
		end(&p[i], SIGKILL);
	for (int i = 0; i < MOST; i += 2) {
		a = answer_of(&p[i]);
		wrong += a.err || !a.is_whole;
	}
	is_int(wrong, 0, "half of them are killed in the middle");
	for (int i = 2; i < MOST; i += 2)
		end(&p[i], 0);
	goes(&p[0], MOST, "the last one has all links");
	end(&p[0], 0);
}

/* Nothing to agree by: as if each were alone, and a word about it. The messages are in the processes. */
static void disagree(uid_t user, const char *what)
{
	struct process a = begin(alone, 0, user), b = begin(alone, 1, user);

	goes(&a, 4, what);
	goes(&b, 4, what);
	end(&a, 0);
	end(&b, 0);
}

static void apart(void)
{
	chmod(path, 0644);
	disagree(0, "a file that is open to others");
	chmod(path, 0600);
	if (geteuid()) {
		tap_skip("another user", "only root can be one");
		return;
	}
	disagree(12345, "another user");
}

int main(void)
{
	tap_plan_later();
	if (!mkdtemp(tap_template(folder, sizeof(folder), "links")))
		tap_bail("no folder");
	setenv("XDG_RUNTIME_DIR", folder, 1);
	snprintf(path, sizeof(path), "%s/glake/links", folder);
	used_alone();
	borrowed();
	lent();
	many();
	apart();
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
	ok(!rmdir(folder), "nothing else lies there");
	return tap_done();
}
