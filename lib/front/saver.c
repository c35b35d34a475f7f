/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The C functions of torch_memory_saver 0.0.10, over tags: what a thread asks for in a region of its
 * goes and comes back with tms_pause and tms_resume, at the same addresses. Its Python package finds
 * them here when glake.use_memory_saver() was called.
 *
 * A region has a tag and says whether contents are to be kept; both are of the thread. Blocks of one
 * name that are kept and those that are not lie apart, since a tag goes as a whole: the tags are
 * "saver.keep.NAME" and "saver.drop.NAME". Contents are kept in locked memory of the host, also where
 * a disk was asked for; no pointer to them is given out, as they lie in parts.
 *
 * Theirs ends the process when a call fails; these answer, and glake_last_error says why.
 */
#include "front/saver.h"

#include "base/atomic.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define NAME 48 /* bytes of a name, with its end */

/* Names that were set, which stay, each with the tags it has: kept, and dropped. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct name {
	char text[NAME];
	uint32_t tag[2];
} names[GLAKE_TAGS_MAX] = {{.text = "default"}};
static int name_count = 1;

/* The number of no name: one that was too long, or one too many. */
#define NOBODY UINT8_MAX
_Static_assert(GLAKE_TAGS_MAX <= NOBODY, "a name has a number");

/* What a thread has said. */
static _Thread_local struct {
	uint8_t name;
	bool on, keeps, disk, maps;
} region;

static glk_atomic(uint64_t) margin;
static glk_atomic(bool) retains;

/* Under the lock. */
static uint8_t number_of(const char *text)
{
	int i = 0;

	if (!text || strlen(text) >= NAME)
		return NOBODY;
	while (i < name_count && strcmp(names[i].text, text) != 0)
		i++;
	if (i == GLAKE_TAGS_MAX)
		return NOBODY;
	if (i == name_count) {
		memcpy(names[i].text, text, strlen(text) + 1);
		name_count++;
	}
	return (uint8_t)i;
}

void tms_set_current_tag(const char *tag)
{
	pthread_mutex_lock(&lock);
	region.name = number_of(tag);
	pthread_mutex_unlock(&lock);
}

const char *tms_get_current_tag(void)
{
	return region.name == NOBODY ? "" : names[region.name].text;
}

void tms_set_interesting_region(bool on)
{
	region.on = on;
}

bool tms_get_interesting_region(void)
{
	return region.on;
}

void tms_set_enable_cpu_backup(bool on)
{
	region.keeps = on;
}

bool tms_get_enable_cpu_backup(void)
{
	return region.keeps;
}

/* Either of the two that there are: it makes no difference here. */
void tms_set_cpu_backup_backend(const char *backend)
{
	region.maps = backend && !strcmp(backend, "mmap");
}

const char *tms_get_cpu_backup_backend(void)
{
	return region.maps ? "mmap" : "pinned";
}

void tms_set_enable_disk_backup(bool on)
{
	region.disk = on;
}

bool tms_get_enable_disk_backup(void)
{
	return region.disk;
}

/* Contents stay in memory of the host. */
void tms_set_disk_backup_dir(const char *path)
{
	(void)path;
}

void set_memory_margin_bytes(uint64_t bytes)
{
	glk_store_relaxed(&margin, bytes);
}

/* Host memory of contents that came back serves others. */
void tms_set_retain_cpu_backup(bool on)
{
	glk_store_relaxed(&retains, on);
}

bool tms_get_retain_cpu_backup(void)
{
	return glk_load_relaxed(&retains);
}

uint8_t *tms_get_cpu_backup_pointer(const uint8_t *ptr, uint64_t bytes)
{
	(void)ptr;
	(void)bytes;
	return NULL;
}

/* The tag of the region of this thread; 0: there is none to be had. */
static uint32_t tag_here(struct glake *ctx)
{
	bool drops = !region.keeps && !region.disk;
	char text[GLAKE_TAG_NAME_MAX];
	uint32_t tag = 0;

	if (region.name == NOBODY)
		return 0;
	pthread_mutex_lock(&lock);
	snprintf(text, sizeof(text), "saver.%s.%s", drops ? "drop" : "keep",
		names[region.name].text);
	if (!names[region.name].tag[drops])
		glake_tag_open(ctx, text, &names[region.name].tag[drops]);
	tag = names[region.name].tag[drops];
	pthread_mutex_unlock(&lock);
	return tag;
}

static bool has_room(struct glake *ctx, size_t size, int device)
{
	struct glake_device gpu = {.sz = sizeof(gpu)};
	uint64_t least = glk_load_relaxed(&margin);

	return !least || glake_device_get(ctx, device, &gpu) ||
		(gpu.free >= least && gpu.free - least >= size);
}

void *tms_torch_malloc(ssize_t size, int device, struct CUstream_st *stream)
{
	struct glake *ctx = glake_torch_context();
	uint32_t tag, was;
	void *ptr = NULL;

	if (!ctx || size <= 0)
		return NULL;
	if (!region.on)
		return glake_torch_segment_alloc((size_t)size, device, stream);
	tag = tag_here(ctx);
	if (!tag || !has_room(ctx, (size_t)size, device) || glake_tag_set(ctx, tag, &was))
		return NULL;
	ptr = glake_torch_segment_alloc((size_t)size, device, stream);
	glake_tag_set(ctx, was, NULL);
	return ptr;
}

void tms_torch_free(void *ptr, ssize_t size, int device, struct CUstream_st *stream)
{
	glake_torch_segment_free(ptr, size > 0 ? (size_t)size : 0, device, stream);
}

/* One that has nothing there is left alone, so that no GPU is used for it. */
static int turn(struct glake *ctx, int device, uint32_t tag, bool pauses, bool drops)
{
	struct glake_tag about = {.sz = sizeof(about)};
	int err = glake_tag_get(ctx, device, tag, &about);

	if (err || (pauses ? !about.blocks : !about.suspended))
		return err;
	return pauses
		? glake_tag_suspend(ctx, device, tag, drops ? GLAKE_TAG_DROP : 0, NULL)
		: glake_tag_resume(ctx, device, tag, NULL);
}

/* All of a name, or with NULL of every name; goes on where one fails. The first error. */
static int turn_all(const char *name, bool pauses)
{
	struct glake *ctx = glake_torch_opened() ? glake_torch_context() : NULL;
	struct name list[GLAKE_TAGS_MAX];
	int count, err = 0, failed;

	if (!ctx)
		return 0;
	pthread_mutex_lock(&lock);
	count = name_count;
	memcpy(list, names, sizeof(list));
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < count; i++) {
		if (name && strcmp(name, list[i].text) != 0)
			continue;
		for (int n = 0; n < 2 * glake_device_count(ctx); n++) {
			if (!list[i].tag[n % 2])
				continue;
			failed = turn(ctx, n / 2, list[i].tag[n % 2], pauses, n % 2);
			err = err ? err : failed;
		}
	}
	return err;
}

int tms_pause(const char *tag)
{
	return turn_all(tag, true);
}

int tms_resume(const char *tag)
{
	return turn_all(tag, false);
}
