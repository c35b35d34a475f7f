/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STREAM_TABLE_H
#define GLK_STREAM_TABLE_H

/* The table of handles, as the files of this folder see it. Under the lock of its writers. */
#include "stream/stream.h"

/* The stream of a key; 0 if it is not known. */
uint32_t glk_table_find(const struct glk_streams *streams, uint64_t key);

#endif
