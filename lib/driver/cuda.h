/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_CUDA_H
#define GLK_DRIVER_CUDA_H

/* The CUDA backend of the driver table, for open.c alone. */

struct glk_conf;
struct glk_drv;

/*
 * Loads libcuda.so.1 once per process and gives an instance of the driver table over it. The
 * library stays loaded for ever. No context is made on a GPU until an operation names it.
 *
 * Gives an instance, to be ended with its close operation. Returns 0; -ENODEV when CUDA is not
 * to be had, and the record says which of its reasons it is: libcuda absent, a stub, too old, a
 * function missing, no GPU, kernel module and library of different versions, not initialised,
 * a forked child; -EPERM forbidden; -ENOMEM; -EIO a fault of the driver on the way.
 * Thread: any. Blocks: yes, the first call initialises the driver, up to seconds.
 */
int glk_cuda_open(const struct glk_conf *conf, struct glk_drv **ret_drv);

/* The driver's API version, 13000 for 13.0. `drv` is what glk_cuda_open gave, no wrapper. */
int glk_cuda_version(struct glk_drv *drv);

#endif
