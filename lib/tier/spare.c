/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What of the memory of the host is about to be taken: see spare.h. */
#include "tier/spare.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/parse.h"
#include "numa/topology.h"

#include <errno.h>
#include <inttypes.h>

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
