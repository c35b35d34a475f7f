/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_EXPORT_H
#define GLAKE_EXPORT_H

/* Marks what libglake.so exports, and gives C linkage to C++ programs. */
#define GLAKE_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
#define GLAKE_BEGIN_DECLS extern "C" {
#define GLAKE_END_DECLS	  }
#else
#define GLAKE_BEGIN_DECLS
#define GLAKE_END_DECLS
#endif

#endif
