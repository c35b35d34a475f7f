/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FAKE_UVM_H
#define GLK_FAKE_UVM_H

/*
 * A model of the tools of nvidia_uvm, in all four generations, behind the operations table: files
 * and descriptors of them, trackers, the ring as the module writes it, counters, the table of
 * processors. It is written after the module's source (uvm_tools.c, uvm.c of 595.45.04) and proves
 * that we do what that wants, not that a real module does. A structure is copied in and out in the
 * size that its generation has, and what lies behind must be zero.
 */
#include "unit/uvm_bridge/fake_event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static UNUSED_FN int fake_new_fd(struct fake *fake, struct fake_file *file)
{
	for (int fd = 3; fd < FAKE_FDS; fd++) {
		if (fake->fds[fd])
			continue;
		fake->fds[fd] = file;
		file->refs++;
		return fd;
	}
	return -EMFILE;
}

static UNUSED_FN int fake_add(struct fake *fake, enum fake_kind kind)
{
	for (int i = 0; i < FAKE_FDS; i++) {
		if (fake->files[i].kind)
			continue;
		fake->files[i] = (struct fake_file){.kind = kind};
		fake->used = i < fake->used ? fake->used : i + 1;
		return fake_new_fd(fake, &fake->files[i]);
	}
	return -ENFILE;
}

static void fake_unref(struct fake_file *file)
{
	struct fake_file *space = file->space;

	if (--file->refs)
		return;
	*file = (struct fake_file){0};
	if (space)
		fake_unref(space); /* a tracker holds it to its own end */
}

static void fake_close(void *arg, int fd)
{
	struct fake *fake = arg;
	struct fake_file *file = fake->fds[fd];

	fake->fds[fd] = NULL;
	fake_unref(file);
}

static UNUSED_FN int fake_open_fds(const struct fake *fake)
{
	int count = 0;

	for (int fd = 0; fd < FAKE_FDS; fd++)
		count += fake->fds[fd] != NULL;
	return count;
}

static int fake_each(void *arg, int (*fn)(int fd, void *to), void *to)
{
	struct fake *fake = arg;
	int end = fake->each_errno;

	for (int fd = 0; fd < FAKE_FDS && !end; fd++)
		if (fake->fds[fd])
			end = fn(fd, to);
	return end;
}

static int fake_device(void *arg, int fd, int *ret_major, int *ret_minor)
{
	struct fake *fake = arg;
	struct fake_file *file = fake->fds[fd];

	if (!file)
		return -EBADF;
	if (file->kind == FAKE_OTHER)
		return -ENOTTY;
	*ret_major = FAKE_MAJOR;
	*ret_minor = file->kind == FAKE_TOOLS;
	return 0;
}

static int fake_same(void *arg, int a, int b)
{
	struct fake *fake = arg;

	return fake->no_same ? -EPERM : fake->fds[a] == fake->fds[b];
}

static int fake_open(void *arg, const char *path)
{
	struct fake *fake = arg;

	if (strcmp(path, "/dev/nvidia-uvm-tools"))
		abort();
	return fake->open_errno ? fake->open_errno : fake_add(fake, FAKE_TOOLS);
}

static int fake_dup(void *arg, int fd)
{
	struct fake *fake = arg;

	if (fake->dup_errno)
		return fake->dup_errno;
	return fake->fds[fd] ? fake_new_fd(fake, fake->fds[fd]) : -EBADF;
}

static void *fake_map(void *arg, size_t size)
{
	struct fake *fake = arg;
	void *memory;

	if (fake->no_map)
		return NULL;
	memory = mmap(
		NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fake->maps++;
	return memory == MAP_FAILED ? NULL : memory;
}

static void fake_unmap(void *arg, void *memory, size_t size)
{
	struct fake *fake = arg;

	fake->maps--;
	munmap(memory, size);
}

static bool fake_is_aligned(const void *memory)
{
	return memory && !((uintptr_t)memory & 4095);
}

/* uvm_tools.c:2020-2131. */
static uint32_t fake_begin(struct fake *fake, struct fake_file *tools,
	const struct glk_uvm_tracker *t, bool is_v2)
{
	struct fake_file *space =
		t->uvm_fd < 0 || t->uvm_fd >= FAKE_FDS ? NULL : fake->fds[t->uvm_fd];
	void *control = (void *)(uintptr_t)t->control,
	     *queue = (void *)(uintptr_t)t->queue;

	if (tools->begun)
		return GLK_UVM_INVALID_ARGUMENT;
	if (!space || (space->kind != FAKE_SPACE && space->kind != FAKE_MM))
		return GLK_UVM_NO_PERMISSION;
	if (space->kind != FAKE_SPACE)
		return GLK_UVM_ILLEGAL_ACTION;
	if (t->entries == 1 || t->entries & (t->entries - 1) || t->entries > 1u << 31)
		return GLK_UVM_INVALID_ARGUMENT;
	if (!fake_is_aligned(control) || (t->entries && !fake_is_aligned(queue)))
		return GLK_UVM_INVALID_ADDRESS;
	tools->begun = true;
	tools->is_v2 = is_v2;
	tools->space = space;
	space->refs++;
	tools->entries = (uint32_t)t->entries;
	tools->queue = t->entries ? queue : NULL;
	tools->control = t->entries ? control : NULL;
	tools->counters = t->entries ? NULL : control;
	return 0;
}

static void fake_tracker(
	struct fake *fake, struct fake_file *tools, struct glk_uvm_tracker *t, bool is_v2)
{
	uint32_t version = fake->generation == 'B' ? t->word52 : t->word48;
	bool asks = fake->generation == 'B' || fake->generation == 'C';
	uint32_t status = fake->sticky;

	if (!status && asks && version != 1)
		status = GLK_UVM_INVALID_ARGUMENT;
	if (!status)
		status = fake_begin(fake, tools, t, is_v2);
	if (fake->generation == 'C')
		t->word52 = status;
	else
		t->word48 = status;
	if (fake->generation == 'B' && !status)
		t->word56 = version;
}

static int fake_on_tools(
	struct fake *fake, struct fake_file *tools, unsigned long number, void *words)
{
	struct glk_uvm_flags *flags = words;
	uint64_t allowed = 0x7ffe; /* bits 1 to 14 */

	switch (number) {
	case GLK_UVM_TOOLS_INIT_EVENT_TRACKER_V2:
	case GLK_UVM_TOOLS_INIT_EVENT_TRACKER:
		fake_tracker(fake, tools, words, number == 76);
		return 0;
	case GLK_UVM_TOOLS_EVENT_QUEUE_ENABLE:
	case GLK_UVM_TOOLS_EVENT_QUEUE_DISABLE:
		flags->status = fake->sticky ? fake->sticky
			: !tools->queue || flags->flags & ~allowed
			? GLK_UVM_INVALID_ARGUMENT
			: 0;
		break;
	case GLK_UVM_TOOLS_ENABLE_COUNTERS:
	case GLK_UVM_TOOLS_DISABLE_COUNTERS:
		flags->status = fake->sticky ? fake->sticky
			: !tools->counters   ? GLK_UVM_INVALID_ARGUMENT
					     : 0;
		break;
	default:
		return -EINVAL;
	}
	if (flags->status)
		return 0;
	if (number == GLK_UVM_TOOLS_EVENT_QUEUE_ENABLE ||
		number == GLK_UVM_TOOLS_ENABLE_COUNTERS)
		tools->enabled |= flags->flags;
	else
		tools->enabled &= ~flags->flags;
	return 0;
}

/* uvm_tools.c:2664-2723: always whole. */
static void fake_table(struct fake *fake, struct glk_uvm_table *t, bool is_v2)
{
	uint32_t *status = fake->generation == 'D' ? &t->word8 : &t->word12;
	bool asks = fake->generation == 'C';
	uint8_t *table = (uint8_t *)(uintptr_t)t->table;

	*status = fake->sticky;
	if (!*status && asks && t->word8 != 1)
		*status = GLK_UVM_INVALID_ARGUMENT;
	if (*status)
		return;
	memset(table, 0, 16 * (is_v2 ? GLK_UVM_INDEX_V2 : GLK_UVM_INDEX_V1));
	memcpy(table, "\xa6\x5e\x0f\x4e\xd7\xd4\x7b\xa2\x50\x47\x41\x2c\x14\x2a\x77\x73",
		16);
	for (int i = 1; i <= 8; i++)
		memcpy(table + 16 * fake_index(i, is_v2), fake->uuid[i - 1], 16);
	if (fake->generation == 'A' || fake->generation == 'B')
		t->word8 = 9;
	if (fake->generation == 'B')
		t->word16 = 1;
}

static int fake_on_main(
	struct fake *fake, struct fake_file *file, unsigned long number, void *words)
{
	bool has_space = file->kind == FAKE_SPACE;
	struct glk_uvm_pageable *pageable = words;
	struct glk_uvm_range *range = words;
	struct glk_uvm_flush *flush = words;
	uint32_t status = fake->sticky ? fake->sticky
		: has_space	       ? 0
				       : GLK_UVM_ILLEGAL_ACTION;

	switch (number) {
	case GLK_UVM_PAGEABLE_MEM_ACCESS:
		pageable->status = status;
		return 0;
	case GLK_UVM_VALIDATE_VA_RANGE:
		if (!status &&
			(range->base != file->managed ||
				range->length != file->managed_size))
			status = GLK_UVM_INVALID_ADDRESS;
		range->status = status;
		return 0;
	case GLK_UVM_TOOLS_FLUSH_EVENTS:
		flush->status = status;
		for (int i = 0; !status && i < fake->pending_count; i++)
			fake_write(fake, &fake->pending[i]);
		fake->pending_count = status ? fake->pending_count : 0;
		return 0;
	case GLK_UVM_TOOLS_UUID_TABLE_V2:
	case GLK_UVM_TOOLS_UUID_TABLE:
		fake_table(fake, words, number == GLK_UVM_TOOLS_UUID_TABLE_V2);
		return 0;
	default:
		return -ENOSYS;
	}
}

/* Of a number in a generation; 0: it has none. */
static size_t fake_size(char generation, unsigned long number)
{
	switch (number) {
	case GLK_UVM_PAGEABLE_MEM_ACCESS:
		return 8;
	case GLK_UVM_TOOLS_INIT_EVENT_TRACKER:
		return generation == 'B' ? GLK_UVM_TRACKER_SIZE_B : GLK_UVM_TRACKER_SIZE;
	case GLK_UVM_TOOLS_INIT_EVENT_TRACKER_V2:
		return generation == 'D' ? GLK_UVM_TRACKER_SIZE : 0;
	case GLK_UVM_TOOLS_EVENT_QUEUE_ENABLE:
	case GLK_UVM_TOOLS_EVENT_QUEUE_DISABLE:
	case GLK_UVM_TOOLS_ENABLE_COUNTERS:
	case GLK_UVM_TOOLS_DISABLE_COUNTERS:
		return 16;
	case GLK_UVM_TOOLS_UUID_TABLE:
		return generation == 'B' ? GLK_UVM_TABLE_SIZE_B : GLK_UVM_TABLE_SIZE;
	case GLK_UVM_TOOLS_UUID_TABLE_V2:
		return generation == 'D' ? GLK_UVM_TABLE_SIZE : 0;
	case GLK_UVM_TOOLS_FLUSH_EVENTS:
		return 4;
	case GLK_UVM_VALIDATE_VA_RANGE:
		return 24;
	}
	return 0;
}

/* What lies behind the largest structure of ours must be zero, up to the end of the buffer. */
static bool fake_is_clean(const char *buffer)
{
	for (size_t i = sizeof(struct glk_uvm_tracker); i < GLK_UVM_BUFFER; i++)
		if (buffer[i])
			return false;
	return true;
}

static int fake_ioctl(void *arg, int fd, unsigned long number, void *buffer)
{
	struct fake *fake = arg;
	struct fake_file *file = fd < 0 || fd >= FAKE_FDS ? NULL : fake->fds[fd];
	size_t size = fake_size(fake->generation, number);
	uint64_t words[8] = {0};
	int err;

	fake->calls++;
	if (!file)
		return -EBADF;
	if (file->kind == FAKE_OTHER)
		return -ENOTTY;
	if (fake->ioctl_errno &&
		(file->kind != FAKE_TOOLS || fake->ioctl_errno != -EAGAIN))
		return fake->ioctl_errno;
	if (!size)
		fake->unknown++;
	if (!fake_is_clean(buffer))
		fake->dirty++;
	memcpy(words, buffer, size);
	err = file->kind == FAKE_TOOLS ? fake_on_tools(fake, file, number, words)
				       : fake_on_main(fake, file, number, words);
	if (!err)
		memcpy(buffer, words, size);
	return err;
}

/* CUDA's two descriptors, the one without an address space first, among others. */
static UNUSED_FN void fake_init(struct fake *fake, char generation)
{
	*fake = (struct fake){.generation = generation,
		.ops = {.arg = fake,
			.each = fake_each,
			.device = fake_device,
			.same = fake_same,
			.open = fake_open,
			.dup = fake_dup,
			.close = fake_close,
			.ioctl = fake_ioctl,
			.map = fake_map,
			.unmap = fake_unmap}};
	for (int i = 0; i < 8; i++)
		memset(fake->uuid[i], i < 2 ? 0x10 + i : 0, 16);
	fake_add(fake, FAKE_OTHER);
	fake_add(fake, FAKE_MM);
	fake_add(fake, FAKE_SPACE);
	fake_add(fake, FAKE_OTHER);
}

#define FAKE_OPEN 4 /* descriptors of fake_init */

#endif
