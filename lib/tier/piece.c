/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host is mapped, touched and locked: see piece.h. */
#include "tier/piece.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/parse.h"
#include "base/thread.h"
#include "numa/topology.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>

/* ---- Memory that threads of the process are about to take ---- */

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_NODE);
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
/* Under the lock: bytes that are being taken, by threads of the process of so many forks. */
static uint64_t taking;
static unsigned forks;

static void enter(void)
{
	glk_lock(&lock);
	if (forks == glk_fork_generation())
		return;
	/* those who were taking are none of the child's */
	forks = glk_fork_generation();
	taking = 0;
	pthread_cond_init(&ended, NULL);
}

static int usable_of(int node, uint64_t *ret_usable)
{
	enum glk_topology_status status;
	struct glk_numa_node known;
	struct glk_numa_set nodes;

	status = glk_topology_nodes(NULL, &nodes);
	glk_topology_read(NULL, status, &nodes, node, &known);
	if (!glk_numa_set_has(&nodes, (unsigned)node) || !known.has_memory)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"host.bind: NUMA node %d has no memory", node);
	*ret_usable = glk_numa_usable_of(&known);
	return 0;
}

/* How many there is memory for beside what is being taken, and at least one. With the lock. */
static int look(int node, uint64_t each, uint64_t *ret_count)
{
	uint64_t usable, least, beside, of_node = UINT64_MAX;

	do {
		beside = taking;
		usable = glk_numa_usable(NULL);
		if (node >= 0) {
			int err = usable_of(node, &of_node);

			if (err)
				return err;
		}
		least = usable < of_node ? usable : of_node;
		*ret_count = least > beside ? (least - beside) / each : 0;
		if (*ret_count)
			return 0;
		if (beside)
			glk_lock_wait(&lock, &ended);
	} while (beside);
	if (usable < each)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"%s of the host can be had beside what is left to others, too few for the %s "
			"that are to be locked",
			glk_say_bytes(usable).text, glk_say_bytes(each).text);
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
		"host.bind: NUMA node %d has %" PRIu64
		" MiB beside what is left to others, too few for the %" PRIu64
		" that are to be locked",
		node, of_node >> 20, each >> 20);
}

int glk_spare_take(int node, uint64_t each, uint32_t *count)
{
	uint64_t most;
	int err;

	enter();
	err = look(node, each, &most);
	if (!err) {
		if (*count > most)
			*count = (uint32_t)most;
		taking += *count * each;
	}
	glk_unlock(&lock);
	return err;
}

void glk_spare_taken(uint64_t bytes)
{
	enter();
	taking -= bytes;
	pthread_cond_broadcast(&ended);
	glk_unlock(&lock);
}

/* ---- Memory is touched ---- */

/* One for each processor that the process has beside the caller's, and four slices. */
static unsigned threads_for(size_t slices, unsigned most)
{
	unsigned wanted = most < GLK_TOUCH_THREADS ? most : GLK_TOUCH_THREADS;
	cpu_set_t cpus;

	wanted = wanted < slices / 4 ? wanted : (unsigned)(slices / 4);
	/* more processors than the set has room for are enough */
	if (!sched_getaffinity(0, sizeof(cpus), &cpus) &&
		wanted > (unsigned)CPU_COUNT(&cpus) - 1)
		wanted = (unsigned)CPU_COUNT(&cpus) - 1;
	return wanted;
}

void glk_touch_begin(struct glk_touch *touch, char *const *base, uint32_t count,
	size_t size, unsigned threads)
{
	size_t slices = (size + GLK_CREW_TOUCH - 1) / GLK_CREW_TOUCH;

	glk_crew_init(&touch->crew, "glake-touch", threads_for(count * slices, threads));
	for (uint32_t i = 0; i < count; i++) {
		touch->task[i] = (struct glk_crew_task){.dst = base[i], .bytes = size};
		glk_crew_post(&touch->crew, &touch->task[i]);
	}
}

int glk_touch_wait(struct glk_touch *touch, uint32_t piece)
{
	glk_crew_wait(&touch->crew, &touch->task[piece]);
	return touch->task[piece].refused
		? glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "madvise", ENOMEM,
			  "no memory of the host for what is to be locked")
		: 0;
}

void glk_touch_end(struct glk_touch *touch)
{
	glk_crew_fini(&touch->crew);
}

/* ---- Pieces ---- */

#define HUGE ((uintptr_t)2 << 20)

/* It begins with a huge page. NULL, with errno. */
static char *map_piece(size_t size)
{
	char *base = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t lead;

	if (base == MAP_FAILED)
		return NULL;
	lead = -(uintptr_t)base & (HUGE - 1);
	if (lead)
		munmap(base, lead);
	munmap(base + lead + size, HUGE - lead);
	base += lead;
	madvise(base, size, MADV_HUGEPAGE);
	madvise(base, size, MADV_DONTFORK);
	return base;
}

static int refuse_map(void)
{
	return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", errno,
		"no addresses for memory of the host");
}

int glk_store_refuse(const struct glk_node *host)
{
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"%s of the host are held for the GPU, of the %s that tier.host allows",
		glk_say_bytes(glk_load_relaxed(&host->held)).text,
		glk_say_bytes(glk_load_relaxed(&host->budget)).text);
}

static int map_all(char **base, uint32_t *count, const int *node)
{
	for (uint32_t i = 0; i < *count; i++) {
		base[i] = map_piece(GLK_STORE_PIECE);
		if (!base[i]) {
			*count = i;
			break;
		}
		/* where the node cannot be chosen it lies where it falls */
		if (node[i] >= 0)
			glk_numa_prefer(base[i], GLK_STORE_PIECE, node[i]);
	}
	return *count ? 0 : refuse_map();
}

/* In the order in which they are touched. */
static int lock_all(
	struct glk_drv *drv, int device, char **base, uint32_t count, uint32_t *ret_made)
{
	struct glk_touch touch;
	int err = 0;

	glk_touch_begin(&touch, base, count, GLK_STORE_PIECE, GLK_TOUCH_THREADS);
	for (*ret_made = 0; *ret_made < count; ++*ret_made) {
		err = glk_touch_wait(&touch, *ret_made);
		if (!err)
			err = drv->ops->host_lock(
				drv, device, base[*ret_made], GLK_STORE_PIECE);
		if (err)
			break;
	}
	glk_touch_end(&touch);
	return err;
}

int glk_pieces_make(struct glk_drv *drv, int device, const int *node, char **base,
	uint32_t count, uint32_t *ret_made)
{
	uint32_t mapped;
	int err;

	*ret_made = 0;
	err = glk_spare_take(-1, GLK_STORE_PIECE, &count);
	if (err)
		return err;
	mapped = count;
	err = map_all(base, &mapped, node);
	if (!err) {
		err = lock_all(drv, device, base, mapped, ret_made);
		for (uint32_t i = *ret_made; i < mapped; i++)
			munmap(base[i], GLK_STORE_PIECE);
	}
	glk_spare_taken(count * GLK_STORE_PIECE);
	return err;
}

int glk_piece_node(struct glk_drv *drv, char *base, int node)
{
	struct glake_error was = glk_thread_current->error;
	int lies = node;

	/* the system knows nothing of a host that is made up */
	if (drv->ops->host_node(drv, base, &lies) && glk_numa_where(base, &lies))
		lies = node;
	glk_error_back(&was);
	return lies;
}

static int map_on(int node, bool bound, size_t size, char **ret_base)
{
	int err = 0;

	*ret_base = map_piece(size);
	if (!*ret_base)
		return refuse_map();
	if (bound)
		err = glk_numa_bind(*ret_base, size, node);
	else if (node >= 0)
		glk_numa_prefer(*ret_base, size, node);
	if (err)
		munmap(*ret_base, size);
	return err;
}

/* On 16 processors 64 GiB were touched in 3.0 s by 7 threads and then locked in 2.9; touched while they
 * were locked, one call took 10.8 s for both, and one without threads 14.3 (t/gpu/hostpool). */
static int touch(char *base, size_t size)
{
	struct glk_touch touch;
	int err;

	glk_touch_begin(&touch, &base, 1, size, GLK_TOUCH_THREADS);
	err = glk_touch_wait(&touch, 0);
	glk_touch_end(&touch);
	return err;
}

int glk_piece_make(struct glk_drv *drv, int device, int node, bool bound, bool touches,
	size_t size, char **ret_base)
{
	uint32_t one = 1;
	char *base;
	int err;

	if (bound && node < 0)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"host.bind: it is not known which NUMA node is near the GPU");
	err = glk_spare_take(bound ? node : -1, size, &one);
	if (err)
		return err;
	err = map_on(node, bound, size, &base);
	if (err)
		goto taken;
	err = touches ? touch(base, size) : 0;
	if (!err)
		err = drv->ops->host_lock(drv, device, base, size);
	if (err)
		munmap(base, size);
	else
		*ret_base = base;
taken:
	glk_spare_taken(size);
	return err;
}

bool glk_piece_end(struct glk_drv *drv, int device, char *base, size_t size)
{
	if (drv->ops->host_unlock(drv, device, base))
		return false;
	munmap(base, size);
	return true;
}
