/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_GLAKE_H
#define GLAKE_GLAKE_H

/*
 * glake owns NVIDIA GPU memory for a program and gives it out again. This header brings in
 * all others:
 *
 *   version.h   which glake this is
 *   error.h     why the last call of this thread failed
 *   context.h   open and close a context
 *   memory.h    allocate, free, look up a pointer, budget, trim
 *   stream.h    streams: their ends and dependencies; own ones without a CUDA runtime
 *   graph.h     memory of CUDA graphs
 *   share.h     blocks for other processes, devices and GPUs
 *   publish.h   contents that exist once for several processes, by name
 *   tier.h      blocks whose contents are in memory of the host, suspension
 *   copy.h      copies over one link or several
 *   host.h      pinned memory of the host for the program
 *   tag.h       blocks that leave the GPU together, by name
 *   elastic.h   blocks that are addresses first, and get memory by ranges
 *   kv.h        caches of tokens, for sequences that grow
 *   planner.h   which requests of a serving engine run, and what of their caches is on the GPU
 *   pin.h       blocks that others know, which stay or are announced when they move
 *   managed.h   memory that the driver moves to who touches it
 *   stats.h     figures: memory, requests, driver calls
 *   figures.h   all figures by name, as JSON and for Prometheus
 *   guard.h     memory that the program writes where it should not
 *   map.h       the addresses of a GPU, and what lies in them
 *   refusal.h   why a request was refused, and what would have helped
 *   conf.h      the configuration, key by key
 *   info.h      what this machine has: GPUs, NUMA nodes, kernel modules
 *   uvm.h       managed memory: what the kernel module counts and tells of it
 *   trace.h     the format of recorded traces
 *   soft.h      work for the software device, to try programs without a GPU
 *
 * All functions return 0 or a negative errno value unless their comment says otherwise.
 * Outputs come last, are named ret_..., and are written only on success. Every pointer in a
 * prototype is borrowed for the time of the call unless the comment says "takes" or "gives".
 * Any thread may call any function at any time.
 *
 * Structures that the caller fills or hands over begin with `size_t sz`, to be set to
 * sizeof the structure. The library reads and writes no byte beyond it, so old programs run
 * with a newer library; unknown bytes that are not zero are answered -E2BIG.
 */
#include <glake/conf.h>
#include <glake/context.h>
#include <glake/copy.h>
#include <glake/elastic.h>
#include <glake/error.h>
#include <glake/figures.h>
#include <glake/graph.h>
#include <glake/guard.h>
#include <glake/host.h>
#include <glake/info.h>
#include <glake/kv.h>
#include <glake/managed.h>
#include <glake/map.h>
#include <glake/memory.h>
#include <glake/pin.h>
#include <glake/planner.h>
#include <glake/publish.h>
#include <glake/refusal.h>
#include <glake/share.h>
#include <glake/soft.h>
#include <glake/stats.h>
#include <glake/stream.h>
#include <glake/tag.h>
#include <glake/ticket.h>
#include <glake/tier.h>
#include <glake/trace.h>
#include <glake/uvm.h>
#include <glake/version.h>

#endif
