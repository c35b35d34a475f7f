/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_FAULT_RULE_H
#define GLK_SOFT_FAULT_RULE_H

/* One rule of the fault wrapper, read from text; see fault.h. */
#include "base/atomic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_FAULT_RULES 16
#define GLK_FAULT_ANY	(-1)

struct glk_fault_rule {
	int op;		      /* enum glk_drv_op, or GLK_FAULT_ANY */
	int err;	      /* negative; 0: the call is held up only */
	uint64_t delay;	      /* us before the call */
	uint64_t first, last; /* of the calls, from 1; 0: not by number */
	uint64_t every;
	uint64_t ppm, seed;
	bool sticky;
	uint64_t calls;
};

/* 0, or -EINVAL and a record that names the place and what would be right. */
int glk_fault_parse(const char *text, struct glk_fault_rule rules[GLK_FAULT_RULES],
	size_t *ret_count);

/* Counts a call of the rule's operation and says whether it is struck. */
bool glk_fault_strikes(struct glk_fault_rule *rule);

/* The name of an operation, as in the table. */
const char *glk_fault_op_name(int op);

#endif
