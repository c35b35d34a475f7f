/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_SAVER_H
#define GLK_FRONT_SAVER_H

/* The C functions of torch_memory_saver, as its Python package and PyTorch call them: see saver.c. */
#include "front/torch.h"

#include <sys/types.h>

/* Of the calling thread: the region that it is in. Texts are valid until it sets another one. */
GLAKE_EXPORT void tms_set_current_tag(const char *tag);
GLAKE_EXPORT const char *tms_get_current_tag(void);
GLAKE_EXPORT void tms_set_interesting_region(bool on);
GLAKE_EXPORT bool tms_get_interesting_region(void);
GLAKE_EXPORT void tms_set_enable_cpu_backup(bool on);
GLAKE_EXPORT bool tms_get_enable_cpu_backup(void);
GLAKE_EXPORT void tms_set_cpu_backup_backend(const char *backend);
GLAKE_EXPORT const char *tms_get_cpu_backup_backend(void);
GLAKE_EXPORT void tms_set_enable_disk_backup(bool on);
GLAKE_EXPORT bool tms_get_enable_disk_backup(void);

/* Of the process. */
GLAKE_EXPORT void tms_set_disk_backup_dir(const char *path);
GLAKE_EXPORT void tms_set_retain_cpu_backup(bool on);
GLAKE_EXPORT bool tms_get_retain_cpu_backup(void);
/* Bytes that a GPU is to have left behind a request. */
GLAKE_EXPORT void set_memory_margin_bytes(uint64_t bytes);

/* Of a region, or with NULL of all. 0 or the first error. */
GLAKE_EXPORT int tms_pause(const char *tag);
GLAKE_EXPORT int tms_resume(const char *tag);
/* NULL: no pointer to contents is given out. */
GLAKE_EXPORT uint8_t *tms_get_cpu_backup_pointer(const uint8_t *ptr, uint64_t bytes);

/* For torch.cuda.MemPool. */
GLAKE_EXPORT void *tms_torch_malloc(ssize_t size, int device, struct CUstream_st *stream);
GLAKE_EXPORT void tms_torch_free(
	void *ptr, ssize_t size, int device, struct CUstream_st *stream);

#endif
