/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The system calls themselves. First one by one; then a child counts managed memory by them, whose
 * calls its parent answers: seccomp hands it those that open a node and those that ask a device. A
 * descriptor of /dev/full stands for CUDA's, and the answers are the model's.
 */
#include "unit/uvm_bridge/fake.h"

#include "tap.h"
#include "uvm_bridge/uvm.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FULL	   "/dev/full" /* which no program has open by chance */
#define FULL_MAJOR 1
#define FULL_MINOR 7
#define MOVED	   ((uint64_t)3 << 20)

static struct fake fake;

static int find_fd(int fd, void *arg)
{
	return fd == *(int *)arg;
}

static void one_by_one(void)
{
	const struct glk_uvm_ops *ops = &glk_uvm_system;
	int major = 0, minor = 0, fd, copy, status = 0, pipes[2];
	unsigned char resident;
	char terminal[256];
	char *memory;
	pid_t child;

	fd = ops->open(NULL, FULL);
	ok(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC, "opened, to be closed on exec");
	is_int(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR, "for reading and writing");
	is_int(ops->open(NULL, "/dev/none-of-that-name"), -ENOENT, "what is not there");
	is_int(ops->device(NULL, fd, &major, &minor), 0, "a device");
	ok(major == FULL_MAJOR && minor == FULL_MINOR, "its numbers");
	copy = ops->dup(NULL, fd);
	ok(copy >= 3 && copy != fd && fcntl(copy, F_GETFD) == FD_CLOEXEC, "a copy");
	is_int(ops->each(NULL, find_fd, &copy), 1, "is in the list of descriptors");
	if (pipe2(pipes, O_CLOEXEC))
		tap_bail("no pipe");
	is_int(ops->device(NULL, pipes[0], &major, &minor), -ENOTTY, "a pipe is none");
	ok(ops->same(NULL, fd, pipes[0]) != 1, "nor the same file");
	if (syscall(SYS_kcmp, getpid(), getpid(), 0, fd, fd) < 0)
		tap_skip("the copy is", "kcmp is not allowed here");
	else
		is_int(ops->same(NULL, fd, copy), 1, "the copy is");
	is_int(ops->ioctl(NULL, pipes[0], TCGETS, terminal), -ENOTTY,
		"a call that is refused");
	close(pipes[0]);
	close(pipes[1]);
	ops->close(NULL, copy);
	is_int(ops->device(NULL, copy, &major, &minor), -EBADF,
		"a closed one is of none");
	is_int(ops->dup(NULL, copy), -EBADF, "nor copied");
	is_int(ops->ioctl(NULL, copy, TCGETS, terminal), -EBADF, "nor asked");
	ops->close(NULL, fd);
	memory = ops->map(NULL, 4096);
	ok(memory && !memory[0] && !memory[4095], "memory is zero");
	child = fork();
	if (!child)
		_exit(mincore(memory, 4096, &resident) == -1 && errno == ENOMEM);
	waitpid(child, &status, 0);
	is_int(WEXITSTATUS(status), 1, "and not there in a child");
	ops->unmap(NULL, memory, 4096);
}

/* What the child has to say, in memory that both have. */
static struct said {
	int filter_errno, open_err, drain_err, left_open;
	bool done;
	size_t count;
	struct glake_uvm_event event;
	struct glake_uvm_figures figures;
	char text[GLAKE_ERROR_TEXT_MAX];
} * said;

static int count_fd(int fd, void *arg)
{
	(void)fd;
	++*(int *)arg;
	return 0;
}

static int count_fds(void)
{
	int count = 0;

	glk_uvm_system.each(NULL, count_fd, &count);
	return count;
}

/* The listener of a filter that hands over openat and ioctl. */
static int install_filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static struct msghdr message(struct iovec *iov, char *control, size_t size)
{
	return (struct msghdr){.msg_iov = iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = size};
}

static bool send_fd(int socket, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {"", 1};
	struct msghdr msg = message(&iov, control, sizeof(control));
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	*head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
		.cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	return sendmsg(socket, &msg, 0) == 1;
}

static int receive_fd(int socket)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = message(&iov, control, sizeof(control));
	struct cmsghdr *head;
	int fd = -1;

	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	head = CMSG_FIRSTHDR(&msg);
	if (head)
		memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

static void live_as_child(int socket)
{
	struct glk_uvm_setup setup = {.generation = 'D',
		.major = FULL_MAJOR,
		.minor = FULL_MINOR,
		.events = GLAKE_UVM_ALL,
		.gpus = 1};
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_uvm *uvm = NULL;
	int before, listener, stand_in = open(FULL, O_RDWR | O_CLOEXEC);

	memset(setup.uuid[0], 0x10, 16);
	listener = install_filter();
	if (listener < 0) {
		said->filter_errno = errno;
		return;
	}
	if (!send_fd(socket, listener))
		return;
	close(listener);
	close(socket);
	before = count_fds();
	said->open_err = glk_uvm_open(&setup, &uvm);
	if (said->open_err) {
		glake_last_error(&record);
		snprintf(said->text, sizeof(said->text), "%s", record.text);
		return;
	}
	said->drain_err = glk_uvm_drain(uvm, &said->event, 1, &said->count);
	glk_uvm_figures(uvm, &said->figures);
	glk_uvm_close(uvm);
	said->left_open = count_fds() - before;
	close(stand_in);
	said->done = true;
}

static bool get(pid_t pid, uint64_t from, void *to, size_t size)
{
	struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};

	return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

static bool put(pid_t pid, uint64_t to, const void *from, size_t size)
{
	struct iovec here = {(void *)(uintptr_t)from, size},
		     there = {(void *)(uintptr_t)to, size};

	return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

/* As the module would: memory moves to the GPU, which a counter and an event tell. */
static bool move(pid_t pid)
{
	const struct fake_event e = {.kind = GLK_UVM_MIGRATION,
		.cause = GLK_UVM_CAUSE_USER,
		.to = 1,
		.from_node = 1,
		.to_node = -1,
		.address = 0x7f0000000000,
		.bytes = MOVED,
		.begin = 10,
		.end = 20};
	const uint32_t one[2] = {1, 1};
	char entry[GLK_UVM_ENTRY_V2];
	bool whole = true;

	fake_encode(&e, true, entry);
	for (int i = 0; i < FAKE_FDS; i++) {
		struct fake_file *tools = &fake.files[i];
		uint64_t control = (uintptr_t)tools->control;

		if (tools->counters && tools->enabled & 1)
			whole &= put(pid, (uintptr_t)tools->counters, &e.bytes, 8);
		if (tools->queue && tools->enabled >> e.kind & 1)
			whole &=
				put(pid, (uintptr_t)tools->queue, entry, sizeof(entry)) &&
				put(pid,
					control +
						offsetof(struct glk_uvm_control,
							put_ahead),
					one, sizeof(one));
	}
	return whole;
}

/* 0 or -errno for the child; 1: the call is none of ours. */
static int answer_ioctl(const struct seccomp_notif *call)
{
	static char buffer[GLK_UVM_BUFFER];
	static uint8_t table[GLK_UVM_INDEX_V2][16];
	unsigned long number = call->data.args[1];
	struct glk_uvm_table *words = (void *)buffer;
	pid_t pid = (pid_t)call->pid;
	int fd = (int)call->data.args[0], err;
	uint64_t theirs = 0;

	if (!fake_size('D', number) || fd < 0 || fd >= FAKE_FDS)
		return 1;
	/* all that we did not give is a copy of the descriptor that stands for CUDA's */
	if (!fake.fds[fd]) {
		fake.fds[fd] = fake.fds[0];
		fake.fds[0]->refs++;
	}
	if (!get(pid, call->data.args[2], buffer, sizeof(buffer)))
		return -EFAULT;
	if (number == GLK_UVM_TOOLS_UUID_TABLE_V2) {
		theirs = words->table;
		words->table = (uintptr_t)table;
	}
	if (number == GLK_UVM_TOOLS_FLUSH_EVENTS && !move(pid))
		return -EFAULT;
	err = fake_ioctl(&fake, fd, number, buffer);
	if (theirs) {
		words->table = theirs;
		if (!put(pid, theirs, table, sizeof(table)))
			return -EFAULT;
	}
	return put(pid, call->data.args[2], buffer, sizeof(struct glk_uvm_tracker))
		? err
		: -EFAULT;
}

/* The number of a descriptor that the child is given for the node; 0: it is another file. */
static int answer_open(int listener, const struct seccomp_notif *call)
{
	static const char node[] = "/dev/nvidia-uvm-tools";
	struct seccomp_notif_addfd add = {.id = call->id,
		.srcfd = (uint32_t)eventfd(0, EFD_CLOEXEC),
		.newfd_flags = O_CLOEXEC};
	char path[sizeof(node)];
	int fd = 0;

	if (get((pid_t)call->pid, call->data.args[1], path, sizeof(path)) &&
		!memcmp(path, node, sizeof(node)) && call->data.args[2] & O_CLOEXEC) {
		fd = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
		if (fd < 0 || fd >= FAKE_FDS)
			tap_bail("no descriptor can be given to the child");
		fake.files[fd] = (struct fake_file){.kind = FAKE_TOOLS, .refs = 1};
		fake.fds[fd] = &fake.files[fd];
	}
	close((int)add.srcfd);
	return fd;
}

static void supervise(int listener)
{
	struct pollfd wait = {.fd = listener, .events = POLLIN};

	while (poll(&wait, 1, 60000) == 1 && wait.revents & POLLIN) {
		struct seccomp_notif call = {0};
		struct seccomp_notif_resp reply = {0};
		int got = 1;

		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue; /* interrupted, or the child has ended */
		if (call.data.nr == SYS_ioctl)
			got = answer_ioctl(&call);
		else
			reply.val = answer_open(listener, &call);
		reply.id = call.id;
		reply.error = got > 0 ? 0 : got;
		if (got > 0 && !reply.val)
			reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
	}
}

static void through_the_kernel(void)
{
	int sockets[2], listener, status = 0;
	pid_t child;

	fake_init(&fake, 'D');
	memset(fake.fds, 0, sizeof(fake.fds));
	fake.files[0] = (struct fake_file){.kind = FAKE_SPACE, .refs = 1};
	fake.fds[0] = &fake.files[0];
	said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (said == MAP_FAILED ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		tap_bail("nothing to talk by");
	fflush(stdout);
	child = fork();
	if (!child) {
		close(sockets[0]);
		live_as_child(sockets[1]);
		_exit(0);
	}
	close(sockets[1]);
	listener = receive_fd(sockets[0]);
	if (listener >= 0)
		supervise(listener);
	close(listener);
	waitpid(child, &status, 0);
	close(sockets[0]);
	if (listener < 0) {
		tap_skip("a child that counts by system calls",
			"seccomp hands no calls over here");
		return;
	}
	ok(WIFEXITED(status) && said->done, "a child counts by system calls %s",
		said->text);
	is_int(said->open_err, 0, "it opens");
	is_int(said->drain_err, 0, "it drains");
	is_int(said->count, 1, "an event");
	is_int(said->event.kind, GLAKE_UVM_MIGRATION, "of its kind");
	is_int(said->event.bytes, MOVED, "with its bytes");
	is_int(said->event.from, GLAKE_UVM_HOST, "from the host");
	is_int(said->event.from_node, 1, "its node");
	is_int(said->event.to, 0, "to the GPU of that name");
	is_int(said->figures.to_gpu_bytes, MOVED, "the counter has the same bytes");
	is_int(said->figures.state, GLAKE_UVM_OK, "all is well");
	is_int(said->left_open, 0, "and no descriptor is left");
	is_int(fake.dirty + fake.unknown, 0, "calls were as the module wants them");
	munmap(said, sizeof(*said));
}

int main(void)
{
	tap_plan_later();
	one_by_one();
	if (tap_on_valgrind())
		tap_skip(
			"a child that counts by system calls", "valgrind has no seccomp");
	else
		through_the_kernel();
	return tap_done();
}
