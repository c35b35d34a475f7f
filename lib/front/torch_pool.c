/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of graphs, as PyTorch asks for it. It opens a pool with a function of C++ that says of
 * a stream whether its requests go there: all streams of one capture, or all of one thread.
 *
 * That function may throw, so it is not called inside the library: before a request is made, the
 * open pools are asked here, the newest first as PyTorch does, and what they say is left in a
 * variable of the thread, where the filter that the library calls finds it. An exception passes
 * through frames that hold nothing but a count, which the unwinding takes back.
 *
 * A function of an unknown layout is not called (torch_function.c). Then a request goes to the
 * pool if its stream captures a graph, whichever, or, for pools that a program made, if the
 * thread is the one that opened it.
 *
 * No pool open, the usual case: one load.
 */
#include "front/torch.h"
#include "front/torch_function.h"

#include "base/atomic.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#define MORE_BYTES 4096 /* pools that are made together */

struct pool {
	int device;
	struct glk_torch_pool_id id;
	uint64_t session; /* counts up; 0: free */
	bool is_open;
	unsigned callers;		  /* inside its filter */
	struct glk_torch_function filter; /* empty: not to be called */
	pthread_t opener;
	struct pool *next; /* of all, free ones too */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* a caller did */
static struct pool *pools;
static uint64_t sessions;
static glk_atomic(unsigned) open_count;
static _Thread_local const struct pool *chosen;

bool glk_torch_pools_open(void)
{
	return glk_load_relaxed(&open_count);
}

/* The newest open pool of a GPU that is older than `session`, with a caller counted. */
static struct pool *take(int device, uint64_t session)
{
	struct pool *best = NULL;

	pthread_mutex_lock(&lock);
	for (struct pool *p = pools; p; p = p->next) {
		if (p->is_open && p->device == device && p->session < session &&
			(!best || p->session > best->session))
			best = p;
	}
	if (best)
		best->callers++;
	pthread_mutex_unlock(&lock);
	return best;
}

static void put(struct pool **pool)
{
	if (!*pool)
		return;
	pthread_mutex_lock(&lock);
	(*pool)->callers--;
	pthread_cond_broadcast(&left);
	pthread_mutex_unlock(&lock);
}

/* Asked of the driver that the program has loaded; false where that cannot say. */
static bool is_capturing(struct CUstream_st *stream)
{
	int (*ask)(struct CUstream_st *, int *) = NULL;
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int status = 0;

	if (driver) {
		*(void **)&ask = dlsym(driver, "cuStreamIsCapturing");
		dlclose(driver);
	}
	return ask && !ask(stream, &status) && status;
}

static bool wants(const struct pool *pool, struct CUstream_st *stream)
{
	if (pool->filter.invoke)
		return glk_torch_function_call(&pool->filter, stream);
	return (pool->id.second && pthread_equal(pool->opener, pthread_self())) ||
		is_capturing(stream);
}

void glk_torch_pool_choose(int device, struct CUstream_st *stream)
{
	uint64_t session = UINT64_MAX;

	chosen = NULL;
	while (session) {
		struct pool *pool __attribute__((cleanup(put))) = take(device, session);

		session = pool ? pool->session : 0;
		if (pool && wants(pool, stream)) {
			chosen = pool;
			return;
		}
	}
}

void glk_torch_pool_choose_none(void)
{
	chosen = NULL;
}

static bool is_chosen(struct CUstream_st *stream, void *arg)
{
	return chosen == arg;
}

static struct glake_pool_id name_of(struct glk_torch_pool_id id)
{
	return (struct glake_pool_id){.high = id.first, .low = id.second};
}

/* More of them, all free. Under the lock. */
static void make_more(void)
{
	struct pool *more = mmap(NULL, MORE_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; more != MAP_FAILED && i < MORE_BYTES / sizeof(*more); i++) {
		more[i].next = pools;
		pools = &more[i];
	}
}

static struct pool *find_free(void)
{
	struct pool *pool = pools;

	while (pool && pool->session)
		pool = pool->next;
	return pool;
}

/* Not open yet; NULL: there is no memory. */
static struct pool *add(int device, struct glk_torch_pool_id id)
{
	struct pool *pool;

	pthread_mutex_lock(&lock);
	pool = find_free();
	if (!pool) {
		make_more();
		pool = find_free();
	}
	if (pool)
		*pool = (struct pool){.device = device,
			.id = id,
			.session = ++sessions,
			.opener = pthread_self(),
			.next = pool->next};
	pthread_mutex_unlock(&lock);
	return pool;
}

static void open_pool(struct pool *pool)
{
	pthread_mutex_lock(&lock);
	pool->is_open = true;
	pthread_mutex_unlock(&lock);
	glk_add_relaxed(&open_count, 1);
}

/* Waits for those inside its filter, which ends with the caller's function. */
static void shut(struct pool *pool)
{
	pthread_mutex_lock(&lock);
	pool->is_open = false;
	while (pool->callers)
		pthread_cond_wait(&left, &lock);
	pthread_mutex_unlock(&lock);
	glk_torch_function_drop(&pool->filter);
	pthread_mutex_lock(&lock);
	pool->session = 0;
	pthread_mutex_unlock(&lock);
}

static struct pool *find(int device, struct glk_torch_pool_id id)
{
	struct pool *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct pool *p = pools; p; p = p->next) {
		if (p->is_open && p->device == device && p->id.first == id.first &&
			p->id.second == id.second)
			found = p;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static void fail(int device, struct glk_torch_pool_id id)
{
	struct glake_error error = {.sz = sizeof(error)};
	char text[GLAKE_ERROR_TEXT_MAX + 128];

	glake_last_error(&error);
	snprintf(text, sizeof(text),
		"glake cannot open the pool (%llu, %llu) of graphs on GPU %d: %s (%s)",
		(unsigned long long)id.first, (unsigned long long)id.second, device,
		error.text, glake_error_class_name(error.error_class));
	glk_torch_raise(error.err == -ENOMEM, text);
}

void glake_torch_begin_pool(
	int device, struct glk_torch_pool_id id, struct glk_torch_function *filter)
{
	struct glake *ctx = glake_torch_context();
	struct pool *pool = ctx ? add(device, id) : NULL;

	if (!pool) {
		glk_torch_raise(false,
			ctx ? "no memory for a pool of graphs" : glake_torch_why());
		return;
	}
	if (glk_torch_function_check(filter))
		glk_torch_function_copy(filter, &pool->filter);
	if (glake_pool_begin_for(ctx, device, name_of(id), is_chosen, pool)) {
		shut(pool);
		fail(device, id);
		return;
	}
	open_pool(pool);
}

void glake_torch_end_pool(int device, struct glk_torch_pool_id id)
{
	struct pool *pool = find(device, id);

	if (!pool)
		return;
	glake_pool_end(glake_torch_context(), device, name_of(id));
	glk_sub_relaxed(&open_count, 1);
	shut(pool);
}

/* Called by destructors: what there is no pool for is over. */
void glake_torch_release_pool(int device, struct glk_torch_pool_id id)
{
	if (glake_torch_opened())
		glake_pool_release(glake_torch_context(), device, name_of(id));
}
