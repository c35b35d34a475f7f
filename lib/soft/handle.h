/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_HANDLE_H
#define GLK_SOFT_HANDLE_H

/*
 * Handles that are values, not addresses: kind, device, generation and slot in 64 bits. A
 * stale or foreign one is recognised and never followed. The kind fills the highest byte, so
 * that no handle can be mistaken for a pointer, nor a pointer for a handle.
 */
#include <stdbool.h>
#include <stdint.h>

enum glk_handle_kind {
	GLK_HANDLE_PAGE = 0x50, /* of the software device */
	GLK_HANDLE_STREAM = 0x53,
	GLK_HANDLE_EVENT = 0x45,
	GLK_HANDLE_USER_EVENT = 0x55,
	GLK_HANDLE_CHECKED_PAGE = 0x70, /* of the check wrapper */
	GLK_HANDLE_CHECKED_EVENT = 0x65,
};

/* Of a generation, the handle keeps the low bits. */
#define GLK_HANDLE_GEN_MASK 0xffffffu

static inline uint64_t glk_handle_make(
	enum glk_handle_kind kind, uint32_t device, uint32_t gen, uint32_t id)
{
	return (uint64_t)kind << 56 | (uint64_t)(device & 0xff) << 48 |
		(uint64_t)(gen & GLK_HANDLE_GEN_MASK) << 24 | id;
}

static inline bool glk_handle_is(uint64_t handle, enum glk_handle_kind kind)
{
	return handle >> 56 == (uint64_t)kind;
}

static inline int glk_handle_device(uint64_t handle)
{
	return (int)(handle >> 48 & 0xff);
}

static inline uint32_t glk_handle_gen(uint64_t handle)
{
	return handle >> 24 & GLK_HANDLE_GEN_MASK;
}

static inline uint32_t glk_handle_id(uint64_t handle)
{
	return handle & 0xffffff;
}

#endif
