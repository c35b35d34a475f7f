/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which descriptor is CUDA's, among those of a process, against a model of the module; and that
 * what was only looked at is closed again.
 */
#include "unit/uvm_bridge/fake.h"

#include "tap.h"
#include "uvm_bridge/uvm.h"

static struct fake fake;
static const char *const managed = (const char *)0x7f1200000000;

static int try_open(const void *named, size_t size, struct glk_uvm **ret_uvm)
{
	struct glk_uvm_setup setup = {.ops = &fake.ops,
		.generation = fake.generation,
		.major = FAKE_MAJOR,
		.managed = named,
		.managed_size = size};

	return glk_uvm_open(&setup, ret_uvm);
}

/* It opens, and looks at the address space behind this descriptor. */
static void finds(int fd, const void *named, size_t size, const char *what)
{
	struct glk_uvm *uvm = NULL;
	int before = fake_open_fds(&fake);

	if (!is_int(try_open(named, size, &uvm), 0, what))
		return;
	is_int(fake_open_fds(&fake), before + 2, "a copy and a tracker");
	for (int i = 0; i < FAKE_FDS; i++)
		if (fake.files[i].begun)
			ok(fake.files[i].space == fake.fds[fd], "of the right one");
	glk_uvm_close(uvm);
	is_int(fake_open_fds(&fake), before, "both are closed");
}

static void refuses(int err, const void *named, size_t size, const char *what)
{
	struct glake_error record = {.sz = sizeof(record)};
	int before = fake_open_fds(&fake);
	struct glk_uvm *uvm = NULL;

	is_int(try_open(named, size, &uvm), err, what);
	glake_last_error(&record);
	ok(record.err == err && *record.text, "%s", record.text);
	is_int(fake_open_fds(&fake), before, "nothing stays open");
}

static void several(void)
{
	int other;

	fake_init(&fake, 'D');
	fake.fds[5]->managed = (uintptr_t)managed;
	fake.fds[5]->managed_size = 1 << 21;
	finds(5, NULL, 0, "the one that has an address space");
	fake_new_fd(&fake, fake.fds[5]);
	finds(5, NULL, 0, "which may be there twice");
	fake.no_same = true;
	refuses(-EINVAL, NULL, 0, "unless nobody tells that they are one");
	finds(5, managed, 1 << 21, "then managed memory does");
	fake.no_same = false;
	other = fake_add(&fake, FAKE_SPACE);
	refuses(-EINVAL, NULL, 0, "another library has one too");
	finds(5, managed, 1 << 21, "managed memory tells which is meant");
	refuses(-EINVAL, managed, 1 << 20, "a part of the memory does not");
	refuses(-EINVAL, managed + 4096, 1 << 21, "nor does what is none");
	fake.fds[other]->managed = (uintptr_t)managed + (1 << 21);
	fake.fds[other]->managed_size = 4096;
	finds(other, managed + (1 << 21), 4096, "each has its own");
}

static void none(void)
{
	fake_init(&fake, 'D');
	fake_close(&fake, 5);
	refuses(-ENOENT, NULL, 0, "CUDA has not begun");
	fake_close(&fake, 4);
	refuses(-ENOENT, NULL, 0, "or not opened it at all");
	refuses(-ENOENT, managed, 4096, "with managed memory either");
	fake_add(&fake, FAKE_TOOLS);
	refuses(-ENOENT, NULL, 0, "a tool's descriptor is none");
	fake.each_errno = -ENOENT;
	refuses(-ENOENT, NULL, 0, "no list of descriptors");
}

static void trouble(void)
{
	static const struct {
		int ioctl_errno, err;
	} said[] = {{-EAGAIN, -EAGAIN}, {-ENOTTY, -EIO}, {-EINVAL, -EIO}, {-ENOSYS, -EIO},
		{-ENODEV, -ENODEV}, {-EIO, -ENODEV}, {-EFAULT, -ENODEV}};

	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
		fake_init(&fake, 'C');
		fake.ioctl_errno = said[i].ioctl_errno;
		refuses(said[i].err, NULL, 0, "what the system says");
	}
	fake_init(&fake, 'C');
	fake.dup_errno = -EMFILE;
	refuses(-EMFILE, NULL, 0, "no descriptor is left");
	fake.dup_errno = -EBADF;
	refuses(-ENOENT, NULL, 0, "all were closed meanwhile");
	fake_init(&fake, 'C');
	fake.sticky = 0x3f;
	refuses(-ENODEV, NULL, 0, "a fatal error of the driver");
}

/* More of them than are looked at. */
static void many(void)
{
	fake_init(&fake, 'D');
	for (int i = 0; i < 100; i++)
		fake_add(&fake, FAKE_MM);
	finds(5, NULL, 0, "among a hundred");
	is_int(fake.unknown, 0, "and no unknown number was tried");
}

int main(void)
{
	tap_plan_later();
	several();
	none();
	trouble();
	many();
	return tap_done();
}
