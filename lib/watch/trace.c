/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A trace: its file from beginning to end, and how threads write it without meeting. The file belongs
 * to who runs the program and is never one that was there before, so a name in the configuration can
 * destroy nothing.
 *
 * A thread takes a lane at its first event and keeps it until it ends or records in another trace.
 * What it writes is its own; all that threads share are the number of chunks and, when there are no
 * more, the time when recording ended, both changed by compare-and-swap.
 *
 * Order	of an event: time, address, stream; then `what`, by a release, which makes it
 *		one for who reads the file; then the lane moves on. Whoever takes over from a
 *		thread that was killed between the last two steps makes the second
 * Order	in a chunk: times never go back. A thread that takes a lane may have read the
 *		clock before the last one there did, and then begins a chunk
 */
#include "watch/trace.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"

#include <glake/version.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

_Static_assert(
	sizeof(struct glake_trace_header) <= 4096, "the header is one page at most");
_Static_assert(sizeof(struct glake_trace_event) == 32, "as the format has it");

/* Digits of a number in a name. */
#define NUMBER_MOST 20
#define WORD_MOST   64 /* bytes of a host's name, or a job's */

static glk_atomic(uint64_t) opened;
static struct glk_lock length_lock = GLK_LOCK_INIT(GLK_RANK_TRACE);

static int refuse(const struct glk_trace_options *options, const char *name, int err,
	const char *why)
{
	glk_error(err,
		err == -EACCES || err == -EPERM ? GLAKE_ERROR_PERM : GLAKE_ERROR_INVAL,
		"nothing is recorded in %s: %s", name, why);
	if (!options->midway)
		glk_warn("nothing is recorded in %s: %s", name, why);
	return err;
}

/* What tells a process apart from others of its job, as launchers have it; each of the first that is set. */
static const char *const ranks[] = {
	"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
static const char *const jobs[] = {
	"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", NULL};

int glk_trace_name_check(const char *pattern)
{
	size_t length = strlen(pattern);

	for (const char *at = strchr(pattern, '%'); at; at = strchr(at + 2, '%')) {
		if (!at[1] || !strchr("hjnpr%", at[1]))
			return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
				"'%s': behind %% there may be h, j, n, p, r or another "
				"%%",
				pattern);
		length += strchr("hj", at[1]) ? WORD_MOST : NUMBER_MOST;
	}
	if (length < GLK_TRACE_PATH_MAX)
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
		"the name may have %d bytes at most, and with its numbers has %zu",
		GLK_TRACE_PATH_MAX - 1, length);
}

/* A word of the environment or the system in a file name: what could lead elsewhere becomes '_', as a dot that begins
 * it, for two of them are the folder above. */
static int put_word(const char *word, size_t most, char *path)
{
	size_t length = strnlen(word, most);

	for (size_t i = 0; i < length; i++)
		path[i] = isalnum((unsigned char)word[i]) || word[i] == '-' ||
				(word[i] == '.' && i)
			? word[i]
			: '_';
	return (int)length;
}

static const char *first_of(const char *const *names)
{
	const char *value = NULL;

	for (; *names && (!value || !*value); names++)
		value = secure_getenv(*names);
	return value && *value ? value : "0";
}

static int put_host(char *path)
{
	char name[WORD_MOST + 1] = "";

	gethostname(name, sizeof(name) - 1);
	return put_word(*name ? name : "0", WORD_MOST, path);
}

/* The name with what its % stand for, or as it is. 0 or -EINVAL. */
static int expand(const struct glk_trace_options *options, char *path, size_t size)
{
	struct glake_error error = {.sz = sizeof(error)};
	const char *pattern = options->file;
	size_t at = 0;

	if (options->midway && *pattern != '/')
		return refuse(options, pattern, -EINVAL, "it is no absolute path");
	if (options->midway) {
		if ((size_t)snprintf(path, size, "%s", pattern) < size)
			return 0;
		return refuse(
			options, "that file", -ENAMETOOLONG, "its name is too long");
	}

	if (glk_trace_name_check(pattern)) {
		glake_last_error(&error);
		return refuse(options, pattern, -EINVAL, error.text);
	}
	for (const char *from = pattern; *from; from++) {
		int length = 1;

		if (*from != '%')
			path[at] = *from;
		else if (*++from == 'p')
			length = snprintf(path + at, size - at, "%ld", (long)getpid());
		else if (*from == 'n')
			length = snprintf(path + at, size - at, "%llu",
				(unsigned long long)glk_add_relaxed(&opened, 1) + 1);
		else if (*from == 'h')
			length = put_host(path + at);
		else if (*from == 'r')
			length = put_word(first_of(ranks), NUMBER_MOST, path + at);
		else if (*from == 'j')
			length = put_word(first_of(jobs), WORD_MOST, path + at);
		else
			path[at] = '%';
		at += (size_t)length;
	}
	path[at] = '\0';
	return 0;
}

/* As many bytes as the process may write: writing more would raise a signal. */
static size_t writable(size_t size)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < size)
		size = (size_t)limit.rlim_cur;
	return size;
}

/* Whole chunks behind the header. */
static size_t fit(size_t size)
{
	return writable(size) / GLK_TRACE_CHUNK * GLK_TRACE_CHUNK;
}

/* Where the file system cannot do it in one step. */
static int lengthen(int fd, size_t end)
{
	struct stat stat;
	int err = 0;

	glk_lock(&length_lock);
	if (fstat(fd, &stat) || ((size_t)stat.st_size < end && ftruncate(fd, (off_t)end)))
		err = -errno;
	glk_unlock(&length_lock);
	return err;
}

/* Makes the file reach over these bytes, with room on the disk, and changes nothing that
 * is there; any thread, at any time. 0; -EFBIG (more than the process may write); -errno. */
static int reach(const struct glk_trace *trace, size_t offset, size_t size)
{
	int err;

	if (writable(offset + size) < offset + size)
		return -EFBIG;
	do
		err = fallocate(trace->fd, 0, (off_t)offset, (off_t)size) ? -errno : 0;
	while (err == -EINTR);
	return err == -EOPNOTSUPP ? lengthen(trace->fd, offset + size) : err;
}

/* Makes their pages, so that writing to them cannot fail. 0 or -errno. */
static int prepare(struct glk_trace *trace, size_t offset, size_t size)
{
	if (!madvise((char *)trace->header + offset, size, MADV_POPULATE_WRITE))
		return 0;
	/* before Linux 5.14 there is room on the disk, and that is all */
	if (errno == EINVAL)
		return 0;
	return errno == EFAULT ? -ENOSPC : -errno;
}

/* Addresses for as much of the size as file system and address space grant; the file has its
 * header alone. */
static int map(struct glk_trace *trace, size_t size)
{
	void *p = MAP_FAILED;
	int err;

	for (; size >= GLK_TRACE_SIZE_MIN; size = fit(size / 2)) {
		if (ftruncate(trace->fd, (off_t)size))
			continue;
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, trace->fd, 0);
		if (p != MAP_FAILED)
			break;
	}
	if (p == MAP_FAILED)
		return errno ? -errno : -EFBIG;
	if (ftruncate(trace->fd, GLK_TRACE_HEADER)) {
		err = -errno;
		munmap(p, size);
		return err;
	}
	trace->header = p;
	trace->size = size;
	trace->chunks = (size - GLK_TRACE_HEADER) / GLK_TRACE_CHUNK;
	return 0;
}

static void describe(struct glk_trace *trace, const struct glk_trace_options *options)
{
	struct glake_trace_header *header = trace->header;
	ssize_t length;

	header->version = GLAKE_TRACE_VERSION;
	header->header_size = GLK_TRACE_HEADER;
	header->chunk_size = GLK_TRACE_CHUNK;
	header->event_size = sizeof(struct glake_trace_event);
	header->end_ns = GLAKE_TRACE_NEVER;
	header->start_ns = options->now_ns;
	header->start_realtime_ns = options->now_realtime_ns;
	header->pid = (uint64_t)getpid();
	header->devices = (uint32_t)options->devices;
	header->midway = options->midway;
	snprintf(header->backend, sizeof(header->backend), "%s", options->backend);
	snprintf(header->library, sizeof(header->library), "%s", GLAKE_VERSION_STRING);
	length = readlink("/proc/self/exe", header->program, sizeof(header->program) - 1);
	header->program[length < 0 ? 0 : length] = '\0';
	memcpy(header->magic, GLAKE_TRACE_MAGIC, sizeof(header->magic));
}

static int make(struct glk_trace *trace, const struct glk_trace_options *options)
{
	int err;

	trace->fd = open(
		trace->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (trace->fd < 0 && errno == EEXIST)
		return refuse(
			options, trace->path, -EEXIST, "that file is there already");
	if (trace->fd < 0)
		return refuse(options, trace->path, -errno, strerror(errno));
	/* for readers: as long as it is held the trace may grow */
	flock(trace->fd, LOCK_EX | LOCK_NB);
	errno = 0;
	err = map(trace, fit(options->size));
	if (err)
		goto file;
	err = reach(trace, 0, 4096);
	if (!err)
		err = prepare(trace, 0, 4096);
	if (err)
		goto mapping;
	err = glk_slab_init(&trace->lanes, sizeof(struct glk_lane), GLK_THREAD_MAX);
	if (err)
		goto mapping;
	describe(trace, options);
	return 0;
mapping:
	munmap(trace->header, trace->size);
file:
	unlink(trace->path);
	close(trace->fd);
	return refuse(options, trace->path, err, strerror(-err));
}

static struct glk_lock open_lock = GLK_LOCK_INIT(GLK_RANK_TRACE);
static struct glk_trace *open_traces;
static uint64_t last_serial;

static struct glk_trace *find_open(uint64_t serial)
{
	struct glk_trace *trace = open_traces;

	while (trace && trace->serial != serial)
		trace = trace->next_open;
	return trace;
}

/* Gives a thread's lane back, to a trace that is still open. */
static void leave(struct glk_thread *thread)
{
	struct glk_trace *trace;
	struct glk_lane *lane = thread->trace.lane;

	if (!thread->trace.serial)
		return;
	glk_lock(&open_lock);
	trace = find_open(thread->trace.serial);
	if (trace)
		glk_slab_put(&trace->lanes, lane->id);
	glk_unlock(&open_lock);
	thread->trace.serial = 0;
}

/* From now on threads may have lanes of it, until it is withdrawn. */
static void enter(struct glk_trace *trace)
{
	glk_thread_at_end(leave);
	glk_lock(&open_lock);
	trace->serial = ++last_serial;
	trace->next_open = open_traces;
	open_traces = trace;
	glk_unlock(&open_lock);
}

static void withdraw(struct glk_trace *trace)
{
	struct glk_trace **link = &open_traces;

	glk_lock(&open_lock);
	while (*link && *link != trace)
		link = &(*link)->next_open;
	if (*link)
		*link = trace->next_open;
	glk_unlock(&open_lock);
}

int glk_trace_open(const struct glk_trace_options *options, struct glk_trace **ret_trace)
{
	struct glk_trace *trace = glk_region_new(sizeof(*trace));
	int err;

	if (!trace)
		return refuse(options, options->file, -ENOMEM, "there is no memory");
	err = expand(options, trace->path, sizeof(trace->path));
	if (!err)
		err = make(trace, options);
	if (err) {
		glk_region_free(trace, sizeof(*trace));
		return err;
	}
	trace->start_ns = options->now_ns;
	enter(trace);
	glk_info("all requests are recorded in %s", trace->path);
	*ret_trace = trace;
	return 0;
}

const char *glk_trace_path(const struct glk_trace *trace)
{
	return trace->path;
}

void glk_trace_stop(struct glk_trace *trace, int64_t now_ns)
{
	glk_atomic(int64_t) *end = glk_trace_shared_ns(&trace->header->end_ns);
	int64_t ns = now_ns - trace->start_ns, old = glk_load_relaxed(end);

	while (ns < old && !glk_cas_weak_relaxed(end, &old, ns))
		;
	glk_store_relaxed(glk_trace_shared_ns(&trace->header->closed_ns), ns);
	flock(trace->fd, LOCK_UN);
	glk_info("%s is complete", trace->path);
}

void glk_trace_close(struct glk_trace *trace, int64_t now_ns)
{
	struct glake_trace_header *header;
	uint64_t chunks, dropped;

	if (!trace)
		return;
	withdraw(trace);
	header = trace->header;
	if (!header->closed_ns)
		header->closed_ns = now_ns - trace->start_ns;
	chunks = glk_load_relaxed(glk_trace_shared(&header->chunks));
	dropped = glk_load_relaxed(glk_trace_shared(&header->dropped));
	munmap(header, trace->size);
	if (chunks <= trace->chunks &&
		ftruncate(trace->fd, (off_t)((chunks + 1) * GLK_TRACE_CHUNK)))
		glk_warn("%s keeps its size: %s", trace->path, strerror(errno));
	close(trace->fd);
	glk_info("%s is complete, %llu events were dropped", trace->path,
		(unsigned long long)dropped);
	glk_slab_fini(&trace->lanes);
	glk_region_free(trace, sizeof(*trace));
}

void glk_trace_forked(void)
{
	open_traces = NULL;
}

/* Writes an event where a lane goes on; where that is. */
static inline struct glake_trace_event *write_event(struct glk_lane *lane, int64_t ns,
	uint64_t what, uint64_t address, uint64_t stream)
{
	struct glake_trace_event *at = glk_load_relaxed(&lane->at);

	at->ns = ns;
	at->address = address;
	at->stream = stream;
	/* pairs with: whoever reads the file while it grows */
	glk_store_release(glk_trace_shared(&at->what), what);
	glk_store_release(&lane->at, at + 1); /* behind the event: see above */
	return at;
}

/* Counts an event that is not recorded; recording ends at its time, if it has not before. */
static struct glk_lane *drop(struct glk_trace *trace, int64_t ns, const char *why)
{
	glk_atomic(int64_t) *end = glk_trace_shared_ns(&trace->header->end_ns);
	int64_t old = glk_load_relaxed(end);

	glk_add_relaxed(glk_trace_shared(&trace->header->dropped), 1);
	while (ns < old && !glk_cas_weak_relaxed(end, &old, ns))
		;
	if (old == GLAKE_TRACE_NEVER)
		glk_warn("recording in %s has ended: %s", trace->path, why);
	return NULL;
}

/* Says in a lane whose events follow. */
static void sign(struct glk_lane *lane, int64_t ns)
{
	uint64_t name[2] = {0}, tid = (uint64_t)gettid();

	prctl(PR_GET_NAME, name);
	write_event(lane, ns,
		glake_trace_what(GLAKE_TRACE_THREAD, 0, (uint64_t)lane->id << 24 | tid),
		name[0], name[1]);
}

/* A chunk for a lane, over which the file reaches before it is counted: so it is never shorter than
 * its header says. 0; -ENOSPC, or what the kernel says. */
static int claim(struct glk_trace *trace, struct glk_lane *lane)
{
	glk_atomic(uint64_t) *chunks = glk_trace_shared(&trace->header->chunks);
	uint64_t mine = glk_load_relaxed(chunks);
	struct glake_trace_event *first;
	size_t offset;
	int err;

	do {
		if (mine >= trace->chunks)
			return -EFBIG;
		offset = GLK_TRACE_HEADER + mine * GLK_TRACE_CHUNK;
		err = reach(trace, offset, GLK_TRACE_CHUNK);
		if (err)
			return err;
	} while (!glk_cas_weak_relaxed(chunks, &mine, mine + 1));
	err = prepare(trace, offset, GLK_TRACE_CHUNK);
	if (err)
		return err;
	first = (void *)((char *)trace->header + offset);
	lane->end = first + GLK_TRACE_EVENTS;
	glk_store_release(&lane->at, first);
	return 0;
}

/* Finds the place where the last thread of a lane has stopped. */
static void resume(struct glk_lane *lane, int64_t ns)
{
	struct glake_trace_event *at = glk_load_relaxed(&lane->at);

	while (at < lane->end && glk_load_relaxed(glk_trace_shared(&at->what)))
		at++;
	/* a chunk begins with an event, so there is one before */
	if (lane->end - at < 2 || at[-1].ns > ns)
		at = lane->end;
	glk_store_relaxed(&lane->at, at);
}

/* The lane of a thread, with room for an event of this time in it if it is not a new one. */
static struct glk_lane *take(
	struct glk_trace *trace, struct glk_thread *thread, int64_t ns, bool *ret_signed)
{
	struct glk_lane *lane;
	uint32_t id;

	*ret_signed = true;
	if (thread->trace.serial == trace->serial)
		return thread->trace.lane;
	leave(thread);
	id = glk_slab_get(&trace->lanes);
	if (!id)
		return NULL;
	lane = glk_slab_at(&trace->lanes, id);
	lane->id = id;
	if (lane->end)
		resume(lane, ns);
	thread->trace.lane = lane;
	thread->trace.serial = trace->serial;
	*ret_signed = false;
	return lane;
}

/* A lane of the calling thread with room for an event of this time; NULL: it is dropped. */
static struct glk_lane *make_room(
	struct glk_trace *trace, struct glk_thread *thread, int64_t ns)
{
	struct glk_lane *lane;
	bool is_signed;
	int err = 0;

	if (ns >= glk_load_relaxed(glk_trace_shared_ns(&trace->header->end_ns)))
		return drop(trace, ns, "");
	lane = thread ? take(trace, thread, ns, &is_signed) : NULL;
	if (!lane)
		return drop(trace, ns, "there is no memory for another thread");
	if (glk_load_relaxed(&lane->at) == lane->end) {
		err = claim(trace, lane);
		is_signed = false;
	}
	if (err)
		return drop(trace, ns,
			err == -EFBIG ? "it has the size of trace.size" : strerror(-err));
	if (!is_signed)
		sign(lane, ns);
	return lane;
}

/* The same, leaving no trace of its own: what the caller was told by a call stays what it was. */
static __attribute__((noinline)) struct glk_lane *make_room_quietly(
	struct glk_trace *trace, int64_t ns)
{
	int saved = errno, cancel = glk_cancel_off();
	struct glk_thread *thread = glk_thread_self();
	struct glake_error error = thread ? thread->error : (struct glake_error){0};
	struct glk_lane *lane = make_room(trace, thread, ns);

	if (thread)
		thread->error = error;
	glk_cancel_restore(cancel);
	errno = saved;
	return lane;
}

struct glake_trace_event *glk_trace_put(struct glk_trace *trace, int64_t now_ns,
	uint64_t what, uint64_t address, uint64_t stream)
{
	const struct glk_thread *thread = glk_thread_current;
	const glk_atomic(int64_t) *end = glk_trace_shared_ns(&trace->header->end_ns);
	struct glk_lane *lane = thread->trace.lane;
	int64_t ns = now_ns - trace->start_ns;

	if (thread->trace.serial != trace->serial ||
		glk_load_relaxed(&lane->at) == lane->end || ns >= glk_load_relaxed(end)) {
		lane = make_room_quietly(trace, ns);
		if (!lane)
			return NULL;
	}
	return write_event(lane, ns, what, address, stream);
}

void glk_trace_refuse(struct glake_trace_event *event, int err)
{
	uint64_t what;

	if (!event)
		return;
	what = glake_trace_what(
		GLAKE_TRACE_FREE_FAILED, glake_trace_device(event->what), (uint64_t)-err);
	glk_store_release(glk_trace_shared(&event->what), what);
}
