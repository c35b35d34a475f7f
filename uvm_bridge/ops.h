/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UVM_OPS_H
#define GLK_UVM_OPS_H

/*
 * What the tools ask of the system, so that tests can answer in its place. Errors are negative
 * errno values; no call makes a record. `arg` is handed to each. Inside this folder.
 */
#include <stddef.h>
#include <stdint.h>

struct glk_uvm_ops {
	void *arg;
	/* Calls fn with each descriptor of the process, until it answers other than 0. */
	int (*each)(void *arg, int (*fn)(int fd, void *to), void *to);
	/* The numbers of the character device that a descriptor is of; -ENOTTY: it is of none. */
	int (*device)(void *arg, int fd, int *ret_major, int *ret_minor);
	/* 1: both are of one open file, 0: they are not; or the system does not tell. */
	int (*same)(void *arg, int a, int b);
	/* For reading and writing; the descriptor. It is closed on exec from the first. */
	int (*open)(void *arg, const char *path);
	int (*dup)(void *arg, int fd); /* likewise */
	void (*close)(void *arg, int fd);
	int (*ioctl)(void *arg, int fd, unsigned long number, void *buffer);
	/*
	 * Memory that the module may write to: of whole pages, zero, there in a forked child
	 * no more, so that the module and this process never come to hold two copies of it. NULL:
	 * there is none.
	 */
	void *(*map)(void *arg, size_t size);
	void (*unmap)(void *arg, void *memory, size_t size);
};

/* system.c: the system calls. */
extern const struct glk_uvm_ops glk_uvm_system;

#endif
