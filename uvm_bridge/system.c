/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The system calls behind the tools. A descriptor of nvidia-uvm is told by the numbers of its
 * device, whatever its node is called; it is never asked whether it is a terminal, since the
 * module writes a line to the log of the kernel for each number that it does not know.
 */
#include "uvm_bridge/ops.h"

#include "numa/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define LOWEST 3 /* descriptors below are those of programs' input and output */

struct walk {
	int (*fn)(int fd, void *to);
	void *to;
};

static int look_at(const char *name, void *arg)
{
	const struct walk *walk = arg;
	char *end;
	long fd = strtol(name, &end, 10);

	return *end || end == name || fd < 0 || fd > 0x7fffffff
		? 0
		: walk->fn((int)fd, walk->to);
}

static int each(void *arg, int (*fn)(int fd, void *to), void *to)
{
	struct walk walk = {fn, to};

	(void)arg;
	return glk_sysfs_each(NULL, "/proc/self/fd", look_at, &walk);
}

static int device(void *arg, int fd, int *ret_major, int *ret_minor)
{
	struct stat st;

	(void)arg;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISCHR(st.st_mode))
		return -ENOTTY;
	*ret_major = (int)major(st.st_rdev);
	*ret_minor = (int)minor(st.st_rdev);
	return 0;
}

static int same(void *arg, int a, int b)
{
	pid_t self = getpid();

	(void)arg;
	return !syscall(SYS_kcmp, self, self, KCMP_FILE, a, b);
}

static int open_path(void *arg, const char *path)
{
	int fd;

	(void)arg;
	do
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

static int dup_fd(void *arg, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST);

	(void)arg;
	return copy < 0 ? -errno : copy;
}

static void close_fd(void *arg, int fd)
{
	(void)arg;
	close(fd);
}

static int control(void *arg, int fd, unsigned long number, void *buffer)
{
	int err;

	(void)arg;
	do
		err = ioctl(fd, number, buffer);
	while (err < 0 && errno == EINTR);
	return err < 0 ? -errno : 0;
}

static void *map(void *arg, size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	(void)arg;
	if (memory == MAP_FAILED)
		return NULL;
	if (madvise(memory, size, MADV_DONTFORK)) {
		munmap(memory, size);
		return NULL;
	}
	return memory;
}

static void unmap(void *arg, void *memory, size_t size)
{
	(void)arg;
	munmap(memory, size);
}

const struct glk_uvm_ops glk_uvm_system = {
	.each = each,
	.device = device,
	.same = same,
	.open = open_path,
	.dup = dup_fd,
	.close = close_fd,
	.ioctl = control,
	.map = map,
	.unmap = unmap,
};
