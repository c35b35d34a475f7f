/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_GPU_UVM_H
#define GLK_T_GPU_UVM_H

/* Managed memory of one block, and what a real nvidia-uvm is asked beside the tests: the answers
 * are printed. */
#include "kernels.h"

#include "uvm_bridge/bridge.h"

#include <glob.h>

#define MIB	((size_t)1 << 20)
#define SIZE	(64 * MIB)
#define EVENTS	8192
#define GLOBAL	1    /* CU_MEM_ATTACH_GLOBAL */
#define TO_HOST (-1) /* CU_DEVICE_CPU */

static struct {
	int (*managed)(uint64_t *addr, size_t size, unsigned flags);
	int (*free)(uint64_t addr);
	int (*prefetch)(
		uint64_t addr, size_t size, int device, struct CUstream_st *stream);
	int (*info)(size_t *free, size_t *total);
	int (*sync)(void);
	int (*attribute)(int *value, int attribute, int device);
} cu;

static struct gpu_work work;
static struct glake *ctx;
static char *block;
static int major_number;

static bool load_cuda(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	const struct {
		void **fn;
		const char *name;
	} table[] = {
		{(void **)&cu.managed, "cuMemAllocManaged"},
		{(void **)&cu.free, "cuMemFree_v2"},
		{(void **)&cu.prefetch, "cuMemPrefetchAsync"},
		{(void **)&cu.info, "cuMemGetInfo_v2"},
		{(void **)&cu.sync, "cuCtxSynchronize"},
		{(void **)&cu.attribute, "cuDeviceGetAttribute"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		*table[i].fn = cuda ? dlsym(cuda, table[i].name) : NULL;
		if (!*table[i].fn)
			return false;
	}
	return true;
}

static void prefetch(int device)
{
	must_cuda(cu.prefetch((uintptr_t)block, SIZE, device, NULL), "prefetch");
	must_cuda(cu.sync(), "the GPU has gone");
}

static int ask(int fd, unsigned long number, void *buffer)
{
	return glk_uvm_system.ioctl(NULL, fd, number, buffer);
}

static int ask_fd(int fd, void *arg)
{
	static _Alignas(8) char buffer[GLK_UVM_BUFFER];
	struct glk_uvm_pageable *words = (void *)buffer;
	int number, minor, err;

	(void)arg;
	if (glk_uvm_system.device(NULL, fd, &number, &minor) || number != major_number)
		return 0;
	memset(buffer, 0, sizeof(buffer));
	err = minor ? 0 : ask(fd, GLK_UVM_PAGEABLE_MEM_ACCESS, buffer);
	tap_note("answer: descriptor %d is %d:%d, asked for pageable memory: %d, status "
		 "0x%x, %d",
		fd, number, minor, err, words->status, words->is_pageable);
	return 0;
}

/* What the module writes, as it is. */
static void raw(char generation)
{
	struct glk_uvm_setup setup = {.generation = generation,
		.major = major_number,
		.events = GLAKE_UVM_MIGRATION,
		.entries = 64,
		.managed = block,
		.managed_size = SIZE};
	struct glake_uvm_figures now;
	struct glk_uvm *uvm = NULL;
	size_t size = generation == 'D' ? GLK_UVM_ENTRY_V2 : GLK_UVM_ENTRY_V1;
	char text[2 * GLK_UVM_ENTRY_V2 + 1];

	prefetch(TO_HOST);
	must(glk_uvm_open(&setup, &uvm), "the parts inside");
	prefetch(0);
	glk_uvm_flush(uvm);
	glk_uvm_figures(uvm, &now);
	for (size_t i = 0; i < 2 && i < now.events; i++) {
		for (size_t at = 0; at < size; at++)
			snprintf(text + 2 * at, 3, "%02x",
				(unsigned char)uvm->ring.queue[i * size + at]);
		tap_note("answer: record %zu: %s", i, text);
	}
	for (int i = 0; i < GLK_UVM_INDEX_V2; i++) {
		const uint8_t *uuid = uvm->table[i];

		if (uuid[0] || uuid[15])
			tap_note("answer: processor %d is %02x%02x%02x%02x...", i,
				uuid[0], uuid[1], uuid[2], uuid[3]);
	}
	for (int i = 0; i < GLK_UVM_COUNTERS; i++)
		if (uvm->counters[i])
			tap_note("answer: counter %d moved", i);
	glk_uvm_close(uvm);
}

static void note_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[256];

	if (!file) {
		tap_note("answer: %s: %s", path, strerror(errno));
		return;
	}
	while (fgets(line, sizeof(line), file))
		tap_note("answer: %s: %.*s", path, (int)strcspn(line, "\n"), line);
	fclose(file);
}

/* What is there before anything is counted. */
static void around(void)
{
	int pageable = -1;
	glob_t found;

	cu.attribute(&pageable, 88, 0);
	tap_note("answer: CUDA says of pageable memory: %d", pageable);
	glk_uvm_system.each(NULL, ask_fd, NULL);
	note_file("/sys/module/nvidia_uvm/version");
	note_file("/sys/module/nvidia_uvm/refcnt");
	note_file("/proc/driver/nvidia/version");
	if (!glob("/proc/driver/nvidia-uvm/gpus/*/*/info", 0, NULL, &found)) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			note_file(found.gl_pathv[i]);
		globfree(&found);
	}
}

#endif
