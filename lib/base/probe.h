/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_PROBE_H
#define GLK_BASE_PROBE_H

/*
 * Places where perf, bpftrace and SystemTap may look on: USDT probes of the provider glake, where
 * the library was built with sys/sdt.h. glake(7) lists them. One costs an instruction that does
 * nothing, and having its arguments at hand; there is none where a bin serves a request.
 */
#ifdef GLK_PROBES
#include <sys/sdt.h>

#define GLK_PROBE2(name, a, b)	  STAP_PROBE2(glake, name, a, b)
#define GLK_PROBE3(name, a, b, c) STAP_PROBE3(glake, name, a, b, c)
#else
#define GLK_PROBE2(name, a, b)	  ((void)0)
#define GLK_PROBE3(name, a, b, c) ((void)0)
#endif

#endif
