/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host that is locked: once, whole, and let go where it begins. */
#include "base/conf.h"
#include "driver/driver.h"
#include "soft/open.h"
#include "tap.h"

#include <errno.h>

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
	return tap_done();
}
