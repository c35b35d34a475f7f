/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host that is locked for copies: the rules of the driver, and nothing more, since
 * all memory of the process can be copied here. */
#include "driver/soft_state.h"

#include "base/error.h"

#include <errno.h>
#include <stdlib.h>

struct soft_host {
	struct soft_host *next;
	uintptr_t addr;
	size_t size;
};

static bool overlaps(const struct soft *soft, uintptr_t addr, size_t size)
{
	for (const struct soft_host *h = soft->host; h; h = h->next) {
		if (h->addr < addr + size && addr < h->addr + h->size)
			return true;
	}
	return false;
}

int glk_soft_host_lock(struct glk_drv *drv, void *ptr, size_t size)
{
	struct soft *soft = soft_of(drv);
	struct soft_host *h = malloc(sizeof(*h));
	bool taken;

	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	if (!h)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"no memory to note what is locked");
	*h = (struct soft_host){.addr = (uintptr_t)ptr, .size = size};
	glk_soft_enter(soft);
	taken = !ptr || !size || overlaps(soft, h->addr, size);
	if (!taken) {
		h->next = soft->host;
		soft->host = h;
	}
	glk_unlock(&soft->lock);
	if (!taken)
		return 0;
	free(h);
	return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemHostRegister", 712,
		"%zu bytes at %p are nothing, or are locked already", size, ptr);
}

int glk_soft_host_unlock(struct glk_drv *drv, void *ptr)
{
	struct soft *soft = soft_of(drv);
	struct soft_host **link, *found;

	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	glk_soft_enter(soft);
	link = &soft->host;
	while (*link && (*link)->addr != (uintptr_t)ptr)
		link = &(*link)->next;
	found = *link;
	if (found)
		*link = found->next;
	glk_unlock(&soft->lock);
	free(found);
	return found ? 0
		     : glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuMemHostUnregister",
			       713, "%p is not locked", ptr);
}

void glk_soft_host_fini(struct soft *soft)
{
	struct soft_host *next;

	for (struct soft_host *h = soft->host; h; h = next) {
		next = h->next;
		free(h);
	}
	soft->host = NULL;
}
