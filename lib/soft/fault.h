/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_FAULT_H
#define GLK_SOFT_FAULT_H

/*
 * The wrapper that makes driver calls fail, or take long, on demand. A call that fails never
 * reaches the driver. Rules are written
 *
 *	map:nth=3:err=ENOMEM;create:from=10:err=EIO;any:p=500:seed=7;set_access:nth=1:sticky=1;
 *	unmap:from=1:delay=200
 *
 *	OP	an operation of the driver table, or `any`; a rule counts the calls of its OP
 *	nth=N	the N-th call, from 1          len=N	together with nth or from: N calls
 *	from=N	the N-th call and all after it every=N	each N-th call
 *	p=N	N calls of a million, by chance; seed=N another sequence, always the same
 *	err=E	what is answered: the name of an errno value, EIO unless given
 *	delay=N	us that the call is held up; a rule with it fails nothing unless it has err
 *	sticky=1 from the failure on every call answers ENODEV: the device is lost
 *
 * "off" stands for no rule: the wrapper is there and lets all calls pass.
 */
#include "driver/driver.h"

/* Takes `inner`, a backend. No rules yet. 0 or -ENOMEM. */
int glk_fault_open(struct glk_drv *inner, struct glk_drv **ret_drv);

/*
 * Replaces the rules of the fault wrapper among the layers of `drv`, and starts all counts
 * anew; a lost device is found again. 0; -EINVAL and a record when the rules cannot be read
 * (the old ones stay) or no such wrapper is there, because driver.fault was empty.
 */
int glk_fault_set(struct glk_drv *drv, const char *rules);

/* Calls that reached the wrapper and calls it made fail, since the rules were set. */
int glk_fault_count(struct glk_drv *drv, uint64_t *ret_calls, uint64_t *ret_failed);

#endif
