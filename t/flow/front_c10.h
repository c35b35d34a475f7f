/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FLOW_FRONT_C10_H
#define GLK_FLOW_FRONT_C10_H

/* What the stand-in of libc10 was told last. */
#include <stddef.h>
#include <stdint.h>

struct c10_report {
	void *ptr;
	int64_t size;
	size_t allocated, reserved;
	int type, index;
};

#endif
