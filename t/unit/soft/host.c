/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host that is locked: once, whole, and let go where it begins. */
#include "base/conf.h"
#include "driver/driver.h"
#include "soft/open.h"
#include "tap.h"

#include <errno.h>

/* What is locked lies on the node that it shall lie on, or on the next one that has room. */
static void nodes(void)
{
	static char memory[24 << 20];
	struct glk_drv *drv;
	struct glk_conf conf;
	int wrong = 0, node;

	glk_conf_init(&conf);
	glk_conf_set(&conf, "driver.backend=soft");
	glk_conf_set(&conf, "soft.nodes=3");
	glk_conf_set(&conf, "soft.host_memory=4MiB");
	if (glk_drv_open(&conf, NULL, 0, &drv))
		tap_bail("no software device");
	node = 1;
	is_int(drv->ops->host_node(drv, memory, &node), -EINVAL, "what is not locked");
	for (int i = 0; i < 6; i++)
		wrong |= drv->ops->host_lock(drv, 0, memory + ((size_t)i << 22), 4096);
	is_int(wrong, 0, "locked");
	node = 3;
	is_int(drv->ops->host_node(drv, memory, &node), -EINVAL, "no such node");
	for (int i = 0; i < 6; i++)
		drv->ops->host_unlock(drv, 0, memory + ((size_t)i << 22));
	for (int i = 0; i < 5; i++) {
		char *at = memory + ((size_t)i << 22);

		node = 1;
		wrong |= drv->ops->host_lock(drv, 0, at, (size_t)3 << 20) |
			drv->ops->host_node(drv, at, &node);
		is_int(node, i < 3 ? (1 + i) % 3 : 1,
			i < 3 ? "it lies there, or on the next node with room"
			      : "where none has any it is where it shall be");
	}
	is_int(drv->ops->host_node(drv, memory, &node), -EINVAL, "once");
	is_int(drv->ops->host_unlock(drv, 0, memory), 0, "let go");
	node = 1;
	is_int(drv->ops->host_unlock(drv, 0, memory + ((size_t)3 << 22)) |
			drv->ops->host_unlock(drv, 0, memory + ((size_t)4 << 22)) |
			drv->ops->host_lock(drv, 0, memory, (size_t)3 << 20) |
			drv->ops->host_node(drv, memory, &node),
		0, "and locked again");
	is_int(node, 1, "there is room again");
	for (int i = 0; i < 3; i++)
		wrong |= drv->ops->host_unlock(drv, 0, memory + ((size_t)i << 22));
	is_int(wrong, 0, "all is let go");
	is_int(glk_drv_close(drv), 0, "nothing is left");
}

int main(void)
{
	static char memory[1 << 16];
	struct glk_conf conf;
	struct glk_drv *drv;

	glk_conf_init(&conf);
	glk_conf_set(&conf, "driver.backend=soft");
	if (glk_drv_open(&conf, NULL, 0, &drv))
		tap_bail("no software device");
	tap_plan_later();
	is_int(drv->ops->host_lock(drv, 0, NULL, 4096), -EINVAL, "nothing");
	is_int(drv->ops->host_lock(drv, 0, memory, 0), -EINVAL, "no bytes");
	is_int(drv->ops->host_unlock(drv, 0, memory), -EINVAL, "what is not locked");
	is_int(drv->ops->host_lock(drv, 0, memory, 8192), 0, "two pages");
	is_int(drv->ops->host_lock(drv, 0, memory + 4096, 8192), -EINVAL,
		"one of them again");
	is_int(drv->ops->host_lock(drv, 0, memory + 8192, 8192), 0, "those behind");
	is_int(drv->ops->host_unlock(drv, 0, memory + 4096), -EINVAL,
		"the middle of one");
	is_int(drv->ops->host_unlock(drv, 0, memory), 0, "the first");
	is_int(drv->ops->host_unlock(drv, 0, memory), -EINVAL, "once");
	is_int(drv->ops->host_lock(drv, 0, memory, 4096), 0, "again");
	is_int(drv->ops->host_unlock(drv, 0, memory), 0, "and let go");
	is_int(drv->ops->host_unlock(drv, 0, memory + 8192), 0, "with the other");
	is_int(glk_drv_close(drv), 0, "nothing is left");
	nodes();
	return tap_done();
}
