/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A quota (share.quota) as a program sees it that knows nothing of it: the GPU has that much memory, and so much of it
 * is free as all processes of the quota leave. What the driver gives besides is asked for before, and noted by its name,
 * for where nobody measures it.
 *
 * NVML tells programs of memory as well. Its two functions for that stand here under their own names, found as those of
 * the driver are, but for cuGetProcAddress, which does not know them.
 */
#include "front/preload/preload.h"

#include "front/preload/index.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LIBNVML "libnvidia-ml.so.1"
/* Memory of the driver that is known by name at a time; what comes above is counted until it is measured. */
#define NAMES_MAX 4096

struct memory_info {
	unsigned long long total, free, used;
};

struct memory_info_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

GLAKE_EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory_info *info);
GLAKE_EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_info_v2 *info);

static struct {
	int device;
	size_t bytes;
} names[NAMES_MAX];
static struct glk_preload_node nodes[NAMES_MAX];
static struct glk_preload_index kinds[GLK_PRELOAD_KINDS];
static int name_count, free_names[NAMES_MAX], free_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of these */

static char uuids[GLK_PRELOAD_GPUS_MAX][48];
static glk_atomic(
	uint64_t) memory[GLK_PRELOAD_GPUS_MAX]; /* 0: unknown, and so is the UUID */

/* As the library writes it. */
static bool learn(int device)
{
	glk_cu_result (*uuid_get)(unsigned char *uuid, glk_cu_device gpu) = NULL;
	const struct glk_preload_next *next = glk_preload_next();
	struct glk_preload_seat *seat = glk_preload_seat_at(device);
	struct glake_device info = {.sz = sizeof(info)};
	unsigned char b[16];
	size_t bytes = 0;
	void *fn;

	if (device < 0 || device >= GLK_PRELOAD_GPUS_MAX)
		return false;
	if (glk_load_acquire(&memory[device])) /* pairs with: the release below */
		return true;
	if (!next->cuDeviceTotalMem_v2 || next->cuDeviceTotalMem_v2(&bytes, device) ||
		!bytes)
		return false;
	if (seat && glk_preload_in(seat)) {
		int err = glk_library.device_get(seat->glake, device, &info);

		glk_preload_out(seat);
		if (err)
			return false;
	} else {
		fn = glake_preload_dlsym(glk_preload_driver(), "cuDeviceGetUuid_v2");
		memcpy(&uuid_get, &fn, sizeof(fn));
		if (!uuid_get || uuid_get(b, device))
			return false;
		snprintf(info.uuid, sizeof(info.uuid),
			"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
			b[11], b[12], b[13], b[14], b[15]);
	}
	pthread_mutex_lock(&lock);
	memcpy(uuids[device], info.uuid, sizeof(uuids[device]));
	pthread_mutex_unlock(&lock);
	glk_store_release(&memory[device], bytes); /* pairs with: the acquire above */
	return true;
}

/* Bytes that the library holds of a GPU and no block uses; after `gives`, what it could not give back. */
static uint64_t idle(struct glk_preload_seat *seat, bool gives)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	uint64_t rest;
	size_t released;
	int err;

	if (!seat || !glk_preload_in(seat))
		return 0;
	if (gives)
		glk_library.trim(seat->glake, seat->device, 0, &released);
	err = glk_library.stats_get(seat->glake, seat->device, &stats);
	glk_preload_out(seat);
	rest = stats.free_pages + stats.quick;
	return err || gives ? 0 : stats.reserved < rest ? stats.reserved : rest;
}

static bool get(const char *uuid, uint64_t bytes, struct glake_quota *ret)
{
	bool inside = glk_preload_inside;
	int err;

	*ret = (struct glake_quota){.sz = sizeof(*ret)};
	glk_preload_inside = true;
	err = glk_library.quota_get(uuid, bytes, ret);
	glk_preload_inside = inside;
	return !err && ret->limit;
}

/*
 * What all processes of a quota see alike. Pages that lie idle are free to a process that has the quota for itself;
 * where there are others they are given back, for nobody else could have them.
 */
static bool figures(const char *uuid, uint64_t bytes, struct glk_preload_seat *seat,
	uint64_t *ret_free, uint64_t *ret_limit)
{
	struct glake_quota quota;
	uint64_t rest = 0;

	if (!get(uuid, bytes, &quota))
		return false;
	if (quota.processes < 2) {
		rest = idle(seat, false);
	} else if (idle(seat, false)) {
		idle(seat, true);
		get(uuid, bytes, &quota);
	}
	quota.used -= rest < quota.used ? rest : quota.used;
	*ret_limit = quota.limit;
	*ret_free = quota.limit > quota.used ? quota.limit - quota.used : 0;
	return true;
}

bool glk_preload_quota(int device, uint64_t *ret_free, uint64_t *ret_limit)
{
	return glk_preload_conf()->quota && learn(device) &&
		figures(uuids[device], glk_load_relaxed(&memory[device]),
			glk_preload_seat_at(device), ret_free, ret_limit);
}

/* ---- Memory of the driver ---- */

static bool pass(int device, int64_t bytes)
{
	bool inside = glk_preload_inside;
	int err;

	glk_preload_inside = true;
	err = glk_library.quota_pass(
		uuids[device], glk_load_relaxed(&memory[device]), bytes);
	glk_preload_inside = inside;
	return !err;
}

/* What the driver has given by itself since the process began, freed or not. */
static struct {
	glk_atomic(uint64_t) count, bytes;
} passed[GLK_PRELOAD_KINDS];

void glk_preload_report_passed(void)
{
	static const char *const reasons[] = {
		[GLK_PRELOAD_ADDRESS] =
			"blocks of contexts, pools or captures that glake leaves to it",
		[GLK_PRELOAD_PAGE] = "pages that the program made",
		[GLK_PRELOAD_ARRAY] = "arrays"};

	for (int i = 0; i < GLK_PRELOAD_KINDS; i++) {
		uint64_t count = glk_load_relaxed(&passed[i].count);

		if (count)
			glk_preload_log(GLAKE_LOG_INFO,
				"the driver itself gave %" PRIu64 " bytes: %" PRIu64
				" %s",
				glk_load_relaxed(&passed[i].bytes), count, reasons[i]);
	}
}

bool glk_preload_pass(
	bool serves, int device, size_t bytes, struct glk_preload_passing *ret)
{
	*ret = (struct glk_preload_passing){.device = -1, .bytes = serves ? bytes : 0};
	if (!serves || !bytes || !glk_preload_conf()->quota)
		return true;
	if (bytes > INT64_MAX)
		return false;
	if (device < 0 && glk_preload_next()->cuCtxGetDevice(&device))
		return true;
	if (!learn(device))
		return true;
	if (!pass(device, (int64_t)bytes) &&
		(!idle(glk_preload_seat_at(device), false) ||
			(idle(glk_preload_seat_at(device), true),
				!pass(device, (int64_t)bytes)))) {
		glk_preload_log(GLAKE_LOG_INFO,
			"GPU %d: %zu bytes of the driver are past the quota", device,
			bytes);
		return false;
	}
	ret->device = device;
	return true;
}

void glk_preload_passed(const struct glk_preload_passing *passing, glk_cu_result result,
	enum glk_preload_kind kind, uint64_t name)
{
	int at = -1;

	if (!result && passing->bytes) {
		glk_add_relaxed(&passed[kind].count, 1);
		glk_add_relaxed(&passed[kind].bytes, passing->bytes);
	}
	if (passing->device < 0)
		return;
	if (result) {
		pass(passing->device, -(int64_t)passing->bytes);
		return;
	}
	pthread_mutex_lock(&lock);
	if (free_count)
		at = free_names[--free_count];
	else if (name_count < NAMES_MAX)
		at = name_count++;
	if (at >= 0) {
		kinds[kind].nodes = nodes;
		names[at].device = passing->device;
		names[at].bytes = passing->bytes;
		glk_preload_index_add(&kinds[kind], at, name, name);
	}
	pthread_mutex_unlock(&lock);
}

void glk_preload_unpass(enum glk_preload_kind kind, uint64_t name)
{
	int at, device = -1;
	size_t bytes = 0;

	if (!glk_preload_active())
		return;
	pthread_mutex_lock(&lock);
	at = kinds[kind].nodes ? glk_preload_index_over(&kinds[kind], name) : -1;
	if (at >= 0) {
		glk_preload_index_remove(&kinds[kind], at);
		device = names[at].device;
		bytes = names[at].bytes;
		free_names[free_count++] = at;
	}
	pthread_mutex_unlock(&lock);
	if (device >= 0)
		pass(device, -(int64_t)bytes);
}

void glk_preload_quota_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (int i = 0; i < GLK_PRELOAD_KINDS; i++) {
		glk_store_relaxed(&passed[i].count, 0);
		glk_store_relaxed(&passed[i].bytes, 0);
	}
}

glk_cu_result cuDeviceTotalMem_v2(size_t *ret_bytes, glk_cu_device device)
{
	bool serves = glk_preload_called(GLK_PRELOAD_cuDeviceTotalMem_v2) && ret_bytes;
	glk_cu_result result = GLK_PRELOAD_PASS(cuDeviceTotalMem_v2, ret_bytes, device);
	uint64_t unused, limit;

	if (!result && serves && glk_preload_quota(device, &unused, &limit) &&
		limit < *ret_bytes)
		*ret_bytes = limit;
	return result;
}

/* ---- NVML ---- */

static void *nvml(void)
{
	static glk_atomic(void *) kept;

	return glk_preload_loaded(LIBNVML, &kept);
}

/* The function behind ours. */
static void behind(const char *name, void *ret_fn)
{
	void *fn = glake_preload_dlsym(RTLD_NEXT, name);

	if (!fn && nvml())
		fn = glake_preload_dlsym(nvml(), name);
	if (!fn)
		dlerror();
	memcpy(ret_fn, &fn, sizeof(fn));
}

bool glk_preload_nvml_find(
	glk_preload_dlsym_fn *next, void *handle, const char *name, void **ret_found)
{
	void *found,
		*ours = !strcmp(name, "nvmlDeviceGetMemoryInfo")
		? (void *)nvmlDeviceGetMemoryInfo
		: !strcmp(name, "nvmlDeviceGetMemoryInfo_v2")
		? (void *)nvmlDeviceGetMemoryInfo_v2
		: NULL;

	if (!ours)
		return false;
	if (!nvml()) {
		/* a program shall not learn from ours that there is one */
		if (handle != RTLD_DEFAULT && next(handle, name) != ours)
			return false;
		*ret_found = next(RTLD_NEXT, name);
		return true;
	}
	if (!glk_preload_active() || glk_preload_inside)
		return false;
	found = next(handle, name);
	if (!found || (found != ours && found != next(nvml(), name)))
		return false;
	*ret_found = ours;
	return true;
}

static bool shown(
	void *device, unsigned long long bytes, uint64_t *ret_free, uint64_t *ret_limit)
{
	struct glk_preload_seat *seat = NULL;
	int (*uuid_get)(void *gpu, char *text, unsigned length) = NULL;
	char uuid[96] = "";

	if (!glk_preload_active() || glk_preload_inside || !glk_preload_conf()->quota)
		return false;
	behind("nvmlDeviceGetUUID", &uuid_get);
	if (!uuid_get || uuid_get(device, uuid, sizeof(uuid)))
		return false;
	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX && !seat; i++) {
		seat = glk_preload_seat_at(i);
		if (seat && (!learn(i) || strcmp(uuids[i], uuid)))
			seat = NULL;
		if (seat)
			bytes = glk_load_relaxed(&memory[i]);
	}
	return figures(uuid, bytes, seat, ret_free, ret_limit);
}

#define NVML_UNKNOWN 999

int nvmlDeviceGetMemoryInfo(void *device, struct memory_info *info)
{
	int (*next)(void *gpu, struct memory_info *ret) = NULL;
	uint64_t left, limit;
	int result;

	behind("nvmlDeviceGetMemoryInfo", &next);
	result = next ? next(device, info) : NVML_UNKNOWN;
	if (!result && info && shown(device, info->total, &left, &limit)) {
		info->total = limit;
		info->free = left;
		info->used = limit - left;
	}
	return result;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_info_v2 *info)
{
	int (*next)(void *gpu, struct memory_info_v2 *ret) = NULL;
	uint64_t left, limit;
	int result;

	behind("nvmlDeviceGetMemoryInfo_v2", &next);
	result = next ? next(device, info) : NVML_UNKNOWN;
	if (!result && info && shown(device, info->total, &left, &limit)) {
		info->total = limit;
		info->reserved = 0;
		info->free = left;
		info->used = limit - left;
	}
	return result;
}
