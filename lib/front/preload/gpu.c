/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which GPU a call is about, and the library's context of it.
 *
 * Only primary contexts are served, which is what the CUDA runtime uses. A context that the
 * program made by cuCtxCreate takes its memory with it when it is destroyed, and so it stays
 * with the driver.
 *
 * GPUs may reach each other's memory. The driver gives the right for all memory of a context,
 * now and later; the library gives it for what it holds. It may come before the library holds
 * any, so it is remembered here. Where the library cannot give it the GPU is left to the driver.
 *
 * A reset of a GPU takes all its memory, and the library's context of it with that. Other threads
 * may be asking for memory of it or freeing some meanwhile, which the driver answers. So each of
 * their calls into the library is counted, at the thread's own place, and a reset first closes
 * the seat and then waits until none is left. A thread that comes later is told so and asks the
 * driver. No seat is made again before the driver's reset is over.
 *
 * Order: a thread counts itself and then looks whether the seat is closing; the reset says that
 * it is, and then looks at the counts. All four are sequentially consistent, so one of the two
 * sees the other.
 */
#include "front/preload/preload.h"

#include <inttypes.h>
#include <time.h>

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

#define SEATS_MAX 4096 /* GPUs and resets of GPUs, over the life of the process */

/* [g][p]: GPU p may use the memory of GPU g. */
static glk_atomic(bool) may_use[GLK_PRELOAD_GPUS_MAX][GLK_PRELOAD_GPUS_MAX];

static struct {
	glk_atomic(struct glk_preload_seat *) seat;
	glk_atomic(bool) refused; /* the library cannot be had, or may not serve */
	glk_atomic(bool) taken;	  /* it is being reset; written under the lock */
	glk_atomic(bool) pools_left;
} gpus[GLK_PRELOAD_GPUS_MAX];

static glk_atomic(int) gpu_count; /* one more than the last that has a seat */
static struct glk_preload_seat seats[SEATS_MAX];
static int seats_used; /* under the lock */
static glk_atomic(glk_preload_seat_fn *) adopts;

static glk_atomic(unsigned) threads;
static _Thread_local unsigned place; /* one more than the shard; 0: none yet */

static glk_atomic(int) * mine(struct glk_preload_seat *seat)
{
	if (!place)
		place = 1 + glk_add_relaxed(&threads, 1) % GLK_PRELOAD_SHARDS;
	return &seat->shard[place - 1].inside;
}

bool glk_preload_in(struct glk_preload_seat *seat)
{
	glk_add_seq_cst(mine(seat), 1);
	if (glk_load_seq_cst(&seat->closing)) {
		glk_sub_acq_rel(mine(seat), 1);
		return false;
	}
	glk_preload_inside = true;
	return true;
}

void glk_preload_out(struct glk_preload_seat *seat)
{
	glk_preload_inside = false;
	glk_sub_acq_rel(
		mine(seat), 1); /* pairs with: the loads in glk_preload_seat_shut */
}

void glk_preload_seat_shut(struct glk_preload_seat *seat)
{
	const struct timespec moment = {.tv_nsec = 50000};

	glk_xchg_seq_cst(&seat->closing, true);
	for (int i = 0; i < GLK_PRELOAD_SHARDS; i++)
		while (glk_load_seq_cst(&seat->shard[i].inside))
			nanosleep(&moment, NULL);
}

glk_cu_result glk_preload_enter(
	struct CUctx_st *context, struct glk_preload_scope *ret_scope)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct glk_preload_scope scope = {.mode = GLK_CU_CAPTURE_MODE_RELAXED};
	struct CUctx_st *current = NULL;
	glk_cu_result result;

	if (next->cuCtxGetCurrent(&current) || current != context) {
		result = next->cuCtxPushCurrent_v2(context);
		if (result)
			return result;
		scope.pushed = true;
	}
	scope.relaxed = !next->cuThreadExchangeStreamCaptureMode(&scope.mode);
	*ret_scope = scope;
	return GLK_CU_SUCCESS;
}

void glk_preload_leave(struct glk_preload_scope *scope)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct CUctx_st *popped;

	if (scope->relaxed)
		next->cuThreadExchangeStreamCaptureMode(&scope->mode);
	if (scope->pushed)
		next->cuCtxPopCurrent_v2(&popped);
}

int glk_preload_gpu_of(struct CUctx_st *context)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct glk_preload_scope scope;
	struct CUctx_st *primary = NULL;
	unsigned int flags;
	int device = -1, active = 0;

	if (glk_preload_enter(context, &scope))
		return -1;
	if (next->cuCtxGetDevice(&device))
		device = -1;
	/* retained only if it is there: making one takes time and memory */
	if (device >= 0 && !next->cuDevicePrimaryCtxGetState(device, &flags, &active) &&
		active && !next->cuDevicePrimaryCtxRetain(&primary, device))
		next->cuDevicePrimaryCtxRelease_v2(device);
	glk_preload_leave(&scope);
	return primary == context && device < GLK_PRELOAD_GPUS_MAX ? device : -1;
}

void glk_preload_on_seat(glk_preload_seat_fn *fn)
{
	glk_store_release(&adopts, fn); /* pairs with: new_seat */
}

static int open_seat(int device, struct glk_preload_seat *seat)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	int err;

	err = glk_library.open(&options, &seat->glake);
	if (err)
		return err;
	err = glk_library.stream_new(seat->glake, device, &seat->idle);
	if (err)
		glk_library.close(seat->glake, NULL);
	return err;
}

/* Under the lock. */
static struct glk_preload_seat *make_seat(
	struct CUctx_st *context, int device, struct CUmemPoolHandle_st *pool)
{
	struct glk_preload_seat *seat = glk_load_relaxed(&gpus[device].seat);
	struct glake_error error = {.sz = sizeof(error)};
	int err;

	if (seat || glk_load_relaxed(&gpus[device].refused) ||
		glk_load_relaxed(&gpus[device].taken))
		return seat;
	if (seats_used == SEATS_MAX) {
		glk_store_relaxed(&gpus[device].refused, true);
		glk_preload_log(GLAKE_LOG_WARNING,
			"GPU %d was reset too often, and is left to the driver", device);
		return NULL;
	}
	seat = &seats[seats_used];
	seat->device = device;
	seat->context = context;
	seat->pool = pool;
	glk_preload_inside = true;
	err = open_seat(device, seat);
	glk_preload_inside = false;
	if (err) {
		glk_store_relaxed(&gpus[device].refused, true);
		glk_library.last_error(&error);
		glk_preload_log(GLAKE_LOG_WARNING, "GPU %d is left to the driver: %s",
			device, error.text);
		return NULL;
	}
	seats_used++;
	glk_preload_started();
	/* pairs with: the acquire in glk_preload_seat_at */
	glk_store_release(&gpus[device].seat, seat);
	if (device >= glk_load_relaxed(&gpu_count))
		glk_store_release(&gpu_count, device + 1); /* pairs with: seat_of */
	glk_preload_log(GLAKE_LOG_INFO, "GPU %d: memory comes from glake %s%s%s", device,
		glk_library.version_string(),
		glk_preload_conf()->serve_plain ? "" : ", but for that of cuMemAlloc",
		glk_preload_conf()->free_waits ? "" : "; cuMemFree does not wait");
	return seat;
}

/* Memory of the GPU is not served from now on. */
static void share(int device, const char *why)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glk_preload_seat *seat;

	if (device < 0 || device >= GLK_PRELOAD_GPUS_MAX ||
		glk_load_relaxed(&gpus[device].refused))
		return;
	glk_store_relaxed(&gpus[device].refused, true);
	seat = glk_preload_seat_at(device);
	if (seat && glk_preload_in(seat)) {
		glk_library.stats_get(seat->glake, device, &stats);
		glk_preload_out(seat);
	}
	glk_preload_log(stats.live ? GLAKE_LOG_WARNING : GLAKE_LOG_INFO,
		"GPU %d is left to the driver from now on: %s; %llu bytes are not within "
		"reach of others",
		device, why, (unsigned long long)stats.live);
}

static void tell_peer(struct glk_preload_seat *seat, int peer, bool on)
{
	struct glake_error error = {.sz = sizeof(error)};
	int err;

	if (!glk_preload_in(seat))
		return;
	err = glk_library.peer_access(seat->glake, seat->device, peer, on);
	glk_preload_out(seat);
	if (!err || !on)
		return;
	glk_library.last_error(&error);
	share(seat->device, error.text);
}

/* Rights that were given before the seat was made. */
static void adopt_peers(struct glk_preload_seat *seat)
{
	for (int peer = 0; peer < GLK_PRELOAD_GPUS_MAX; peer++)
		if (glk_load_seq_cst(&may_use[seat->device][peer]))
			tell_peer(seat, peer, true);
}

static struct glk_preload_seat *new_seat(struct CUctx_st *context)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct CUmemPoolHandle_st *pool = NULL;
	struct glk_preload_seat *seat;
	int device = glk_preload_gpu_of(context);
	glk_preload_seat_fn *on_seat;

	if (device < 0 || glk_load_relaxed(&gpus[device].refused))
		return NULL;
	if (next->cuDeviceGetDefaultMemPool(&pool, device))
		pool = NULL;
	glk_preload_conf(); /* not first under the lock: it reads files */
	if (!glk_preload_library_load())
		return NULL;
	pthread_mutex_lock(&glk_preload_lock);
	seat = make_seat(context, device, pool);
	pthread_mutex_unlock(&glk_preload_lock);
	if (seat) {
		/* pairs with: glk_preload_on_seat */
		on_seat = glk_load_acquire(&adopts);
		if (on_seat)
			on_seat(seat);
		adopt_peers(seat);
	}
	return seat;
}

struct glk_preload_seat *glk_preload_seat_at(int device)
{
	if (device < 0 || device >= GLK_PRELOAD_GPUS_MAX)
		return NULL;
	return glk_load_acquire(&gpus[device].seat); /* pairs with: make_seat */
}

void glk_preload_report_seat(struct glk_preload_seat *seat)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	int err;

	if (!glk_preload_in(seat))
		return;
	err = glk_library.stats_get(seat->glake, seat->device, &stats);
	glk_preload_out(seat);
	if (err)
		return;
	glk_preload_log(GLAKE_LOG_INFO,
		"GPU %d: %" PRIu64 " blocks given, %" PRIu64 " taken back, %" PRIu64
		" bytes live at most on %" PRIu64 " bytes of pages",
		seat->device, stats.allocs, stats.frees, stats.peak_live,
		stats.peak_reserved);
}

struct glk_preload_seat *glk_preload_seat_take(int device)
{
	struct glk_preload_seat *seat;

	if (device < 0 || device >= GLK_PRELOAD_GPUS_MAX)
		return NULL;
	pthread_mutex_lock(&glk_preload_lock);
	glk_store_relaxed(&gpus[device].taken, true);
	seat = glk_load_relaxed(&gpus[device].seat);
	glk_store_release(&gpus[device].seat, NULL); /* pairs with: glk_preload_seat_at */
	pthread_mutex_unlock(&glk_preload_lock);
	return seat;
}

void glk_preload_seat_take_end(int device)
{
	if (device < 0 || device >= GLK_PRELOAD_GPUS_MAX)
		return;
	pthread_mutex_lock(&glk_preload_lock);
	glk_store_relaxed(&gpus[device].taken, false);
	pthread_mutex_unlock(&glk_preload_lock);
}

static struct glk_preload_seat *known(const struct CUctx_st *context)
{
	int count = glk_load_acquire(&gpu_count); /* pairs with: make_seat */

	for (int i = 0; i < count; i++) {
		struct glk_preload_seat *seat = glk_preload_seat_at(i);

		if (seat && seat->context == context)
			return seat;
	}
	return NULL;
}

static struct glk_preload_seat *seat_of(struct CUctx_st *context)
{
	struct glk_preload_seat *seat = known(context);

	if (!seat)
		seat = new_seat(context);
	return seat && !glk_load_relaxed(&gpus[seat->device].refused) ? seat : NULL;
}

struct CUctx_st *glk_preload_context(struct CUstream_st *stream)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct CUctx_st *context = NULL;
	glk_cu_result result;

	if (!next->complete)
		return NULL;
	/* 0, 1 and 2 are the default streams */
	if ((uintptr_t)stream <= (uintptr_t)GLK_CU_STREAM_PER_THREAD)
		result = next->cuCtxGetCurrent(&context);
	else
		result = next->cuStreamGetCtx(stream, &context);
	return result ? NULL : context;
}

struct glk_preload_seat *glk_preload_seat(void)
{
	struct CUctx_st *context = glk_preload_context(NULL);

	return context ? seat_of(context) : NULL;
}

bool glk_preload_captures(struct CUstream_st *stream)
{
	const struct glk_preload_next *next = glk_preload_next();
	glk_cu_capture_status status = GLK_CU_CAPTURE_NONE;

	/* the legacy stream never does, and asking it while another one does is an error */
	if ((uintptr_t)stream < (uintptr_t)GLK_CU_STREAM_PER_THREAD || !next->complete)
		return false;
	return !next->cuStreamIsCapturing(stream, &status) &&
		status != GLK_CU_CAPTURE_NONE;
}

struct glk_preload_seat *glk_preload_seat_of_stream(struct CUstream_st *stream)
{
	struct CUctx_st *context = glk_preload_context(stream);

	if (!context || glk_preload_captures(stream))
		return NULL;
	return seat_of(context);
}

struct glk_preload_seat *glk_preload_seat_known(struct CUstream_st *stream)
{
	struct CUctx_st *context;

	if (!glk_load_relaxed(&gpu_count))
		return NULL;
	context = glk_preload_context(stream);
	return context ? known(context) : NULL;
}

void glk_preload_pools_leave(int device, bool leave)
{
	if (device >= 0 && device < GLK_PRELOAD_GPUS_MAX)
		glk_store_relaxed(&gpus[device].pools_left, leave);
}

bool glk_preload_pools_left(int device)
{
	return glk_load_relaxed(&gpus[device].pools_left);
}

/* The current GPU may use the memory of another one's context, or no more. */
static void note(struct CUctx_st *peer, bool on)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct glk_preload_seat *seat;
	int user = -1, device;

	if (!next->complete || next->cuCtxGetDevice(&user))
		return;
	device = glk_preload_gpu_of(peer);
	if (device < 0 || user < 0 || user >= GLK_PRELOAD_GPUS_MAX || device == user)
		return;
	/* before the seat is looked for: whoever makes one looks here behind that */
	glk_xchg_seq_cst(&may_use[device][user], on);
	seat = glk_preload_seat_at(device);
	if (seat)
		tell_peer(seat, user, on);
}

glk_cu_result cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned int flags)
{
	bool serves = SERVES(cuCtxEnablePeerAccess);
	glk_cu_result result = GLK_PRELOAD_PASS(cuCtxEnablePeerAccess, peer, flags);

	if (!result && serves)
		note(peer, true);
	return result;
}

glk_cu_result cuCtxDisablePeerAccess(struct CUctx_st *peer)
{
	bool serves = SERVES(cuCtxDisablePeerAccess);
	glk_cu_result result = GLK_PRELOAD_PASS(cuCtxDisablePeerAccess, peer);

	if (!result && serves)
		note(peer, false);
	return result;
}
