/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file of a trace: its name, its size, who may not have one, and what is left of it. */
#include "rig.h"

#include <glake/version.h>

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static void test_header(void)
{
	struct glk_trace *trace = rig_open(MIB);
	struct rig_file file = rig_read();
	const struct glake_trace_header *h = &file.header;
	char exe[256] = "";
	struct stat stat;

	is_int(lstat(rig_path, &stat), 0, "the file is there at once");
	is_int(stat.st_mode & 07777, 0600, "for its owner alone");
	is_int((int64_t)file.size, 65536, "with its header alone");
	ok(stat.st_blocks * 512 <= 64 << 10, "but sparse: %ld blocks",
		(long)stat.st_blocks);
	ok(!memcmp(h->magic, GLAKE_TRACE_MAGIC, 8), "its first bytes say what it is");
	is_int(h->version, GLAKE_TRACE_VERSION, "version");
	is_int(h->event_size, 32, "bytes of an event");
	is_int(h->chunk_size, 65536, "bytes of a chunk");
	is_int(h->header_size % 65536, 0, "chunks lie at pages of any size");
	is_int((int64_t)h->chunks, 0, "no chunk yet");
	ok(h->end_ns == GLAKE_TRACE_NEVER && !h->dropped && !h->closed_ns,
		"nothing is missing, and it is not closed");
	is_int(h->start_ns, START, "the clock");
	is_int(h->start_realtime_ns, INT64_C(1700000000000000000), "the time of day");
	is_int((int64_t)h->pid, getpid(), "the process");
	is_int(h->devices, 2, "GPUs");
	is_str(h->backend, "soft", "driver");
	is_str(h->library, GLAKE_VERSION_STRING, "library");
	if (!ok(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0 &&
			    !strcmp(h->program, exe),
		    "the program"))
		tap_note("%s", h->program);
	free(file.bytes);
	glk_trace_close(trace, START + 77);
	file = rig_read();
	is_int((int64_t)file.size, 65536,
		"closed without an event it is the header alone");
	is_int(file.header.closed_ns, 77, "with its end");
	free(file.bytes);
	unlink(rig_path);
	glk_trace_close(NULL, 0);
}

static bool opens_as(const char *pattern, const char *name)
{
	struct glk_trace *trace = NULL;
	char file[512], path[512];
	bool good;

	snprintf(file, sizeof(file), "%s/%s", rig_folder, pattern);
	snprintf(path, sizeof(path), "%s/%s", rig_folder, name);
	if (rig_open_at(file, MIB, &trace))
		return false;
	good = !access(path, F_OK);
	glk_trace_close(trace, START);
	unlink(path);
	return good;
}

static void test_names(void)
{
	static const char *const launchers[] = {"RANK", "OMPI_COMM_WORLD_RANK",
		"PMIX_RANK", "PMI_RANK", "PBS_JOBID", "LSB_JOBID", "JOB_ID"};
	struct glk_trace *trace = NULL;
	char name[64], much[300], host[65] = "";

	snprintf(name, sizeof(name), "%ld.trace", (long)getpid());
	ok(opens_as("%p.trace", name), "%%p is the process");
	snprintf(name, sizeof(name), "x%ld-%%", (long)getpid());
	ok(opens_as("x%p-%%", name), "%%%% a %%");
	ok(opens_as("%n", "1") && opens_as("a%nb", "a2b"), "%%n counts");
	for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++)
		unsetenv(launchers[i]);
	setenv("SLURM_PROCID", "7", 1);
	setenv("SLURM_JOB_ID", "../4 2", 1);
	ok(opens_as("%r", "7"), "%%r is the rank");
	setenv("RANK", "31", 1);
	ok(opens_as("r%r", "r31"), "  of the launcher that is nearest");
	ok(opens_as("%j", "_._4_2"), "%%j is the job, and leads nowhere else");
	setenv("SLURM_JOB_ID", "..", 1);
	ok(opens_as("%j", "_."), "  nor to the folder above");
	unsetenv("RANK");
	unsetenv("SLURM_PROCID");
	unsetenv("SLURM_JOB_ID");
	ok(opens_as("%r-%j", "0-0"), "  0 where there is none");
	gethostname(host, sizeof(host) - 1);
	ok(opens_as("%h", host), "%%h is the host");
	tap_expect_log(3);
	ok(!opens_as("a%q", "aq"), "nothing else");
	has_str(tap.last_log, "behind % there may be h, j, n, p, r or another %",
		"says so");
	ok(!opens_as("a%", "a%"), "nor nothing");
	memset(much, 'a', sizeof(much) - 1);
	much[sizeof(much) - 1] = '\0';
	is_int(rig_open_at(much, MIB, &trace), -EINVAL, "a name that is too long");
}

static void test_refused(void)
{
	uint64_t bytes = glk_region_bytes();
	struct glk_trace *trace = NULL;
	int files = rig_count_files();
	char link[300], away[300], text[8] = "";
	struct stat stat;
	int fd;

	fd = open(rig_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, "before", 6) != 6 || close(fd))
		tap_bail("no file");
	tap_expect_log(5);
	is_int(rig_open_at(rig_path, MIB, &trace), -EEXIST, "a file that is there");
	has_str(tap.last_log, "that file is there already", "says so");
	fd = open(rig_path, O_RDONLY | O_CLOEXEC);
	ok(read(fd, text, 8) == 6 && !strcmp(text, "before"), "and is left as it was");
	close(fd);
	unlink(rig_path);
	snprintf(link, sizeof(link), "%s/link", rig_folder);
	snprintf(away, sizeof(away), "%s/away", rig_folder);
	if (symlink(away, link))
		tap_bail("no link");
	is_int(rig_open_at(link, MIB, &trace), -EEXIST, "a link to nowhere");
	ok(lstat(away, &stat) && errno == ENOENT, "is not followed");
	unlink(link);
	snprintf(away, sizeof(away), "%s/no/such", rig_folder);
	is_int(rig_open_at(away, MIB, &trace), -ENOENT, "a folder that is not there");
	is_int(rig_open_at("/dev/null", MIB, &trace), -EEXIST, "a device");
	is_int(rig_open_at("/proc/glake", MIB, &trace), -ENOENT,
		"a place where none can be made");
	ok(!trace && files == rig_count_files() && bytes == glk_region_bytes(),
		"nothing was kept");
}

static void test_memory(void)
{
	uint64_t bytes = glk_region_bytes();
	struct glk_trace *trace = NULL;
	int files = rig_count_files(), err = -1;
	bool same = true;
	uint32_t n;

	for (n = 1; n < 20; n++) {
		glk_region_fail_after(n);
		tap_expect_log(1);
		err = rig_open_at(rig_path, MIB, &trace);
		glk_region_fail_after(0);
		if (!err)
			break;
		same &= err == -ENOMEM && !trace && access(rig_path, F_OK) &&
			files == rig_count_files() && bytes == glk_region_bytes();
	}
	tap_expect_log(-1);
	ok(n > 2 && !err, "opening wants %u tables", n - 1);
	ok(same, "without any one of them there is no file either");
	glk_trace_close(trace, START);
	ok(bytes == glk_region_bytes() && files == rig_count_files(),
		"closed, nothing is kept");
	unlink(rig_path);
}

/* In a child, since the limits cannot be lifted again. 0: as it should be. */
static int limited(int resource, rlim_t limit, size_t want)
{
	struct rlimit rlimit = {limit, limit};
	struct glk_trace *trace = NULL;
	struct stat stat;
	pid_t pid = fork();
	int status, err;

	if (pid < 0)
		tap_bail("no child");
	if (pid) {
		waitpid(pid, &status, 0);
		unlink(rig_path);
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
	}
	glake_log_hook(NULL, NULL, 0);
	if (setrlimit(resource, &rlimit))
		_exit(9);
	err = rig_open_at(rig_path, 64 * MIB, &trace);
	if (!want)
		_exit(err != -EFBIG || !access(rig_path, F_OK));
	if (err || lstat(rig_path, &stat) || stat.st_size != 65536 || trace->size != want)
		_exit(2);
	if (!rig_put(trace, 1, 1))
		_exit(3);
	glk_trace_close(trace, START);
	_exit(lstat(rig_path, &stat) || stat.st_size != 2 * 65536);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Bytes of addresses this process has. */
static size_t addresses(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	size_t pages = 0;

	if (!file || fscanf(file, "%zu", &pages) != 1)
		tap_bail("no /proc/self/statm");
	fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}
#endif

static void test_limits(void)
{
	is_int(limited(RLIMIT_FSIZE, 10 * MIB + 77, 10 * MIB), 0,
		"no more than the process may write, and no signal");
	is_int(limited(RLIMIT_FSIZE, MIB / 2, 0), 0, "too little is none");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	tap_skip("few addresses: half as much", "a sanitizer needs all there are");
#else
	if (tap_on_valgrind())
		tap_skip("few addresses: half as much", "valgrind needs many");
	else
		is_int(limited(RLIMIT_AS, addresses() + 50 * MIB, 32 * MIB), 0,
			"few addresses: half as much");
#endif
}

static int64_t size_now(void)
{
	struct stat stat;

	return lstat(rig_path, &stat) ? -1 : stat.st_size;
}

/* A process that is killed leaves as much as it has written, to a chunk. */
static void test_growth(void)
{
	struct glk_trace *trace = rig_open(64 * MIB);
	struct rlimit limit;
	uint64_t put = 0;
	int status;
	pid_t pid;

	for (; put < 3 * 2047; put++)
		rig_put(trace, (int64_t)put, put);
	is_int(size_now(), 4 * 65536,
		"the file grows with what is written, a chunk at a time");
	glk_trace_close(trace, START);
	unlink(rig_path);
	pid = fork();
	if (!pid) {
		trace = rig_open(64 * MIB);
		for (put = 0; put < 2047 + 1; put++)
			rig_put(trace, (int64_t)put, put);
		kill(getpid(), SIGKILL);
	}
	waitpid(pid, &status, 0);
	ok(WIFSIGNALED(status), "one that is killed");
	is_int(size_now(), 3 * 65536, "leaves a file as large as what is in it");
	unlink(rig_path);
	pid = fork();
	if (!pid) {
		glake_log_hook(NULL, NULL, 0);
		trace = rig_open(64 * MIB);
		getrlimit(RLIMIT_FSIZE, &limit);
		limit.rlim_cur = 3 * 65536;
		setrlimit(RLIMIT_FSIZE, &limit);
		for (put = 0; rig_put(trace, (int64_t)put, put); put++)
			;
		_exit(put != 2 * 2047 || size_now() != 3 * 65536);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0,
		"a limit that comes later ends the recording, without a signal");
	unlink(rig_path);
}

static bool write_line(const char *file, const char *line)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	ssize_t length = (ssize_t)strlen(line);

	return fd >= 0 && write(fd, line, (size_t)length) == length && !close(fd);
}

/* Name spaces of our own, in which our user and our group have names: else no file can be made. */
static bool own_spaces(void)
{
	char user[64], group[64];

	snprintf(user, sizeof(user), "0 %d 1", (int)geteuid());
	snprintf(group, sizeof(group), "0 %d 1", (int)getegid());
	return !unshare(CLONE_NEWUSER | CLONE_NEWNS) &&
		write_line("/proc/self/uid_map", user) &&
		write_line("/proc/self/setgroups", "deny") &&
		write_line("/proc/self/gid_map", group);
}

/* A file system of 512 KiB, for this process alone. */
static bool small_disk(void)
{
	if (unshare(CLONE_NEWNS) && !own_spaces())
		return false;
	return !mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) &&
		!mount("none", rig_folder, "tmpfs", 0, "size=512k");
}

/* 0: as it should be; 77: no such file system can be had. */
static int on_small_disk(void)
{
	struct glk_trace *trace = NULL;
	struct rig_file file;
	uint64_t put = 0;

	if (!small_disk())
		return 77;
	if (rig_open_at(rig_path, 16 * MIB, &trace))
		return 1;
	while (rig_put(trace, (int64_t)put, put))
		put++;
	for (int i = 0; i < 10000; i++)
		rig_put(trace, (int64_t)put + i, put);
	if (put < 5 * 2047 || put > 8 * 2047)
		return 2;
	glk_trace_close(trace, START);
	file = rig_read();
	if (file.header.dropped != 10001 || file.header.end_ns != (int64_t)put)
		return 3;
	for (uint64_t i = 0; i < put; i++) {
		if (rig_event(&file, i / 2047, 1 + i % 2047)->address != i)
			return 4;
	}
	return 0;
}

static void test_full_disk(void)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		tap_bail("no child");
	if (!pid) {
		glake_log_hook(NULL, NULL, 0);
		_exit(on_small_disk());
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		tap_skip("a full disk", "no file system can be mounted here");
	else
		is_int(status, 0, "a full disk ends the recording and not the program");
}

int main(void)
{
	tap_plan_later();
	rig_start();
	test_header();
	test_names();
	test_refused();
	test_memory();
	test_limits();
	test_growth();
	test_full_disk();
	rig_end();
	return tap_done();
}
