/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes as the memory that nvidia-uvm shares with a reader: indices, records, losses. No byte
 * beyond the ring is read, an index out of range is refused, no event comes twice, and what comes
 * is of a kind that is known.
 *
 *	CC=clang meson setup build-fuzz -Dfuzz=true && ninja -C build-fuzz t/fuzz/fuzz-uvm
 *	build-fuzz/t/fuzz/fuzz-uvm -max_len=4096 -max_total_time=60
 */
#include "uvm_bridge/thrash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                  \
	do {                                                                             \
		if (!(condition))                                                        \
			abort();                                                         \
	} while (0)

/* The next bytes, of which there may be fewer. */
static void take(const uint8_t **data, size_t *size, void *to, size_t want)
{
	size_t n = want < *size ? want : *size;

	memset(to, 0, want);
	memcpy(to, *data, n);
	*data += n;
	*size -= n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct glk_uvm_control control = {0};
	struct glk_uvm_sums sums = {0};
	struct glk_uvm_record record;
	struct glk_uvm_thrashes thrashes = {0};
	struct glk_uvm_thrash place;
	struct glk_uvm_ring ring = {.control = &control, .thrashes = &thrashes};
	uint64_t looked = 0, taken = 0;
	uint8_t first = 0;
	size_t bytes;
	char *queue;

	take(&data, &size, &first, 1);
	ring.is_v2 = first & 1;
	ring.entries = 2u << (first >> 1 & 7);
	bytes = (size_t)ring.entries * (ring.is_v2 ? GLK_UVM_ENTRY_V2 : GLK_UVM_ENTRY_V1);
	queue = malloc(bytes); /* to its last byte, for the sanitizer */
	MUST(queue);
	ring.queue = queue;
	take(&data, &size, queue, bytes);
	while (size) {
		uint32_t put = 0, before = ring.seen;
		uint8_t what = 0;

		take(&data, &size, &what, 1);
		take(&data, &size, &put, 1 + (what & 3));
		control.put_behind = what & 4 ? put : put & (ring.entries - 1);
		if (what & 8)
			take(&data, &size, control.dropped, 16);
		if (glk_uvm_ring_look(&ring, &sums)) {
			MUST(control.put_behind >= ring.entries && ring.seen == before);
			break;
		}
		looked += (ring.seen - before) & (ring.entries - 1);
		MUST(sums.events == looked && ring.seen < ring.entries);
		while (what & 16 && glk_uvm_ring_take(&ring, &record)) {
			taken++;
			MUST(record.event.kind & GLAKE_UVM_ALL);
			MUST(!(record.event.kind & (record.event.kind - 1)));
			MUST(record.event.from >= -1 && record.event.from <= UINT16_MAX);
			MUST(record.event.to >= -1 && record.event.to <= UINT16_MAX);
		}
		while (what & 32 && glk_uvm_thrash_take(&thrashes, &place))
			MUST(place.processors[0] | place.processors[1] |
				place.processors[2] | place.processors[3] |
				place.processors[4]);
		MUST(thrashes.count <= (what & 32 ? 0 : GLK_UVM_THRASHES));
		glk_uvm_ring_give(&ring);
		MUST(control.get_behind == ring.get && control.get_ahead == ring.get);
		MUST(taken <= looked && glk_uvm_ring_waiting(&ring) < ring.entries);
	}
	glk_uvm_ring_dropped(&ring);
	free(queue);
	return 0;
}
