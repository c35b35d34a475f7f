/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What links carry is kept in a file: what is read of it, when it is not, and who uses it. */
#include "tier/io/rates.h"
#include "unit/api/copy_rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "glake-rates 1\n"
#define A    "GPU-aaaa"
#define B    "GPU-bbbb"

static char folder[64], file[128];

static void put(const char *text, size_t size, mode_t mode)
{
	int fd;

	unlink(file);
	fd = open(file, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || write(fd, text, size) != (ssize_t)size || fchmod(fd, mode) ||
		close(fd))
		tap_bail("no file");
}

static const char *got(void)
{
	static char text[4096];
	int fd = open(file, O_RDONLY | O_NONBLOCK);
	ssize_t size = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[size > 0 ? size : 0] = '\0';
	return text;
}

/* What the file says of A at version 13: host and peer. */
static bool says(uint32_t to_host, uint32_t peer)
{
	struct glk_rate rates[2] = {{.version = 13, .uuid = B, .host = 7, .peer = 7},
		{.version = 13, .uuid = A, .host = 7, .peer = 7}};

	glk_rates_read(file, rates, 2);
	return rates[1].host == to_host && rates[1].peer == peer && !rates[0].host &&
		!rates[0].peer;
}

static void write_a(void)
{
	struct glk_rate a = {.version = 13, .uuid = A, .host = 55500, .peer = 390000};

	glk_rates_write(file, &a, 1);
}

static void kept(void)
{
	static const char several[] = HEAD "12 " A " 100 200\n13 " A " 300 400\n"
					   "13 GPU-c 900 600\n";
	static const char edges[] = HEAD "13 " A " 100 100000000\n";
	struct stat st;

	ok(says(0, 0), "no file knows nothing");
	write_a();
	ok(says(55500, 390000), "what is written is read");
	ok(!stat(file, &st) && (st.st_mode & 0777) == 0600, "nobody else can read it");
	put(several, sizeof(several) - 1, 0644);
	ok(says(300, 400), "one of several lines");
	put(edges, sizeof(edges) - 1, 0600);
	ok(says(100, 100000000), "the lowest there may be, and the highest");
	put(several, sizeof(several) - 1, 0644);
	write_a();
	is_str(got(), HEAD "13 " A " 55500 390000\n12 " A " 100 200\n13 GPU-c 900 600\n",
		"what it says of others stays");
	ok(says(55500, 390000), "and this is new");
}

static void bad(const char *what, const char *text, size_t size)
{
	put(text, size, 0600);
	tap_expect_log(1);
	ok(says(0, 0), "%s is not used, which is told once", what);
	write_a();
	ok(says(55500, 390000), "  and replaced");
}

#define BAD(what, text) bad(what, text, sizeof(text) - 1)

/* Whole lines of another version, beyond so many bytes. */
static size_t fill_up(char *text, size_t least)
{
	size_t size = (size_t)sprintf(text, HEAD);

	while (size <= least)
		size += (size_t)sprintf(text + size, "12 " A " 300 400\n");
	return size;
}

/* As long as a name may be. */
#define LONGEST "01234567890123456789012345678901234567890123456"

_Static_assert(sizeof(LONGEST) == GLK_RATES_UUID, "the longest there may be");

static void bad_texts(void)
{
	static char large[(64 << 10) + 30];

	BAD("an empty file", "");
	BAD("another one", "[soft]\ngpus = 2\n");
	BAD("a later form", "glake-rates 2\n13 " A " 300 400\n");
	BAD("a line without an end", HEAD "13 " A " 300 400");
	BAD("a line of too few", HEAD "13 " A " 300\n");
	BAD("a line of too many", HEAD "13 " A " 300 400 500\n");
	BAD("no number", HEAD "13 " A " x 400\n");
	BAD("a number below zero", HEAD "-13 " A " 300 400\n");
	BAD("a number that is too large", HEAD "13 " A " 99999999999999999999 400\n");
	BAD("no rate", HEAD "13 " A " 0 400\n");
	BAD("one that is too low", HEAD "13 " A " 99 400\n");
	BAD("one that is too high", HEAD "13 " A " 100 100000001\n");
	BAD("a rate that there is not", HEAD "13 " A " 300 100000001\n");
	BAD("a name that is too long",
		HEAD "13 GPU-0123456789012345678901234567890123456789012345678 3 4\n");
	BAD("a name that is too long by one", HEAD "13 " LONGEST "x 300 400\n");
	BAD("no name", HEAD "13  300 400\n");
	BAD("a zero", HEAD "13 " A " 300 400\n\0");
	bad("a file that is too large", large, fill_up(large, 64 << 10));
	put(large, fill_up(large, (64 << 10) - 28), 0600);
	write_a();
	ok(says(55500, 390000), "one that is full has room for what is new");
}

static void stays(const char *what)
{
	tap_expect_log(1);
	ok(says(0, 0), "%s is not used, which is told once", what);
	write_a();
}

static void bad_files(void)
{
	static const char good[] = HEAD "13 " A " 300 400\n";
	struct rlimit limit, none;
	static char large[(64 << 10) + 30];
	char other_file[160];
	struct stat st;
	size_t size;
	int in;

	put(good, sizeof(good) - 1, 0620);
	stays("one that a group can write");
	is_str(got(), good, "  and stays as it is");
	put(good, sizeof(good) - 1, 0602);
	stays("one that all can write");
	is_str(got(), good, "  and stays as it is");
	put(good, sizeof(good) - 1, 0600);
	if (!geteuid() && !chown(file, 4711, 4711)) {
		stays("one of somebody else");
		is_str(got(), good, "  and stays as it is");
	}
	snprintf(other_file, sizeof(other_file), "%s/else", folder);
	put(good, sizeof(good) - 1, 0600);
	ok(!rename(file, other_file) && !symlink(other_file, file),
		"a link to a good one");
	stays("a link");
	ok(!lstat(file, &st) && S_ISLNK(st.st_mode), "  and stays one");
	unlink(file);
	unlink(other_file);
	in = fcntl(0, F_DUPFD_CLOEXEC, 3);
	close(0);
	put(good, sizeof(good) - 1, 0602);
	stays("one that has the lowest descriptor");
	put(good, sizeof(good) - 1, 0600);
	ok(says(300, 400), "and one that is used");
	is_int(open("/dev/null", O_RDONLY | O_CLOEXEC), 0, "  which are closed");
	if (in >= 0)
		dup2(in, 0);
	close(in);
	unlink(file);
	ok(!mkfifo(file, 0600), "a fifo");
	stays("which");
	ok(!lstat(file, &st) && S_ISFIFO(st.st_mode), "  and stays one");
	/* more than the output of this test, which may be a file too */
	size = fill_up(large, 50000);
	put(large, size, 0600);
	getrlimit(RLIMIT_FSIZE, &limit);
	none = limit;
	none.rlim_cur = 40000;
	setrlimit(RLIMIT_FSIZE, &none);
	tap_expect_log(1);
	write_a();
	setrlimit(RLIMIT_FSIZE, &limit);
	ok(says(0, 0), "a process that may not write that much leaves it alone");
	write_a();
	ok(says(55500, 390000), "another one does not");
	unlink(file);
}

static void names(void)
{
	char path[GLK_RATES_PATH];

	ok(!glk_rates_check("") && !glk_rates_check("/a") && !glk_rates_check("auto"),
		"names of files");
	is_int(glk_rates_check("a"), -EINVAL, "and none");
	is_int(glk_rates_check("AUTO"), -EINVAL, "and none");
	ok(glk_rates_path("/a/b", path, sizeof(path)) && !strcmp(path, "/a/b"), "a name");
	setenv("XDG_CACHE_HOME", "/x", 1);
	setenv("HOME", "/h", 1);
	ok(glk_rates_path("auto", path, sizeof(path)), "or where such files are");
	is_str(path, geteuid() ? "/x/glake/rates" : "/var/cache/glake/rates", "there");
	ok(!glk_rates_path("/a/b", path, 4), "one that is too long is none");
	ok(!glk_rates_path("", path, sizeof(path)), "nor is nothing");
	snprintf(file, sizeof(file), "%s/a/b/rates", folder);
	write_a();
	ok(says(55500, 390000), "folders are made");
	unlink(file);
	snprintf(path, sizeof(path), "%s/a/b", folder);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/a", folder);
	rmdir(path);
	snprintf(file, sizeof(file), "%s/rates", folder);
}

/* A clock that goes on a us when it is read, or more: what links carry does not depend on the machine. */
static double tick = 1000;

static double ticking(struct glk_io *io)
{
	static double now;

	(void)io;
	return now += tick;
}

/* Copies with links that the driver does not tell of: how often the driver was waited for. */
static uint64_t used(double *ret_rate, double *ret_peer)
{
	static char rates[160];
	const char *const settings[] = {MANY, rates, NULL};
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	uint64_t before;
	int found = 0;

	snprintf(rates, sizeof(rates), "io.rates=%s", file);
	begin(settings);
	context->io.now = ticking;
	glk_fault_set(context->drv, "link_get:from=1:err=EOPNOTSUPP");
	glake_driver_stats_get(ctx, &stats);
	before = stats.calls[GLAKE_CALL_SYNC];
	fill(host, ROOM);
	if (glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, NULL))
		tap_bail("no copy");
	glake_driver_stats_get(ctx, &stats);
	before = stats.calls[GLAKE_CALL_SYNC] - before;
	sync_stream();
	ok(!memcmp(gpu, host, 3 * MIB), "all bytes arrive");
	*ret_rate = context->io.gpu[1].down.rate;
	ok(context->io.gpu[1].measured && context->io.gpu[0].down.rate > 0.1,
		"all links are known");
	*ret_peer = context->io.gpu[1].leave.rate;
	for (int i = 1; i < 4; i++)
		found += context->io.gpu[i].certain;
	is_int(found, before ? 3 : 0, "  by what was found out, or by the file");
	end();
	return before;
}

/* Slow links are as certain as others. */
static void slow(void)
{
	double rate, peer;

	tick = 20e6;
	ok(used(&rate, &peer) > 0, "slow links are measured");
	ok(rate < 1 && peer < 1, "%.2f and %.2f bytes a ns", rate, peer);
	tick = 1000;
	unlink(file);
}

static void whole(void)
{
	char expected[64];
	double rate, again, peer;

	ok(used(&rate, &peer) > 0, "the first time links are measured");
	snprintf(expected, sizeof(expected), "0 GPU-50f70000-0000-0000-0000-%012x %d ", 1,
		(int)(rate * 1000));
	ok(strstr(got(), expected) != NULL, "what they carry is kept");
	is_int((int64_t)used(&again, &peer), 0, "later they are not");
	ok(again > rate * 0.99 && again <= rate, "but known: %.2f and %.2f", rate, again);
	put("", 0, 0600);
	tap_expect_log(1);
	ok(used(&again, &peer) > 0, "a bad file is no reason to know nothing");
	ok(!strncmp(got(), HEAD, strlen(HEAD)), "and a good one again");
	unlink(file);
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	if (!mkdtemp(tap_template(folder, sizeof(folder), "rates")))
		tap_bail("no folder for the test");
	snprintf(file, sizeof(file), "%s/rates", folder);
	kept();
	bad_texts();
	bad_files();
	names();
	slow();
	whole();
	rmdir(folder);
	return tap_done();
}
