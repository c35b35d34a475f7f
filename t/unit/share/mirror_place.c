/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A block that is open stays at its address when it is opened again, whichever reservations came
 * and went meanwhile. Exporter and importer are one process here. */
#include "unit/cache/rig.h"

#define PAGE (8 * MIB)
#define SPAN (UINT64_C(64) << 30) /* of a reservation */

struct out {
	struct rig *rig;
	uint64_t here;
	struct glake_mirror *mirror;
	struct glake_piece piece[2];
	size_t size;
};

static int fds(void *arg, size_t first, size_t count, int *ret_fds)
{
	struct out *out = arg;
	struct glk_pin pin;
	int err = glk_cache_pinned(&out->rig->cache, out->here, &pin);

	for (size_t i = 0; i < count && !err; i++)
		err = glk_share_fds(out->rig->drv, glk_pin_page, &pin, 0, 1, &ret_fds[i]);
	return err;
}

/* As if it were told that `count` pages lie at that address. */
static uint64_t opens(struct out *out, uint64_t there, size_t count)
{
	uint64_t addr = 0;

	if (glk_mirror_open(&out->rig->cache.imports, out->mirror, there, out->piece,
		    count, count * PAGE, fds, out, &addr))
		tap_bail(rig_error().text);
	return addr;
}

static int closes(struct out *out, uint64_t addr, size_t count)
{
	return glk_mirror_close(
		&out->rig->cache.imports, out->mirror, addr, count * PAGE);
}

int main(void)
{
	uint64_t edge = 100 * SPAN - PAGE, first, again;
	struct out out = {0};
	struct glk_pin pin;
	struct rig rig;

	tap_plan_later();
	rig_open(&rig, NULL);
	rig_stream(&rig);
	out.rig = &rig;
	out.here = rig_single(&rig, PAGE, rig.stream[0]);
	if (glk_mirror_new(&rig.cache.imports, &out.mirror) ||
		glk_cache_pin(&rig.cache, out.here, false, &pin) || pin.count != 1 ||
		glk_share_list(glk_pin_page, &pin, 1, out.piece))
		tap_bail("no block of one page");
	out.piece[1] = out.piece[0];
	is_int(closes(&out, opens(&out, 0, 1), 1), 0, "a reservation that may go");
	opens(&out, edge, 2); /* in one of its own, across the edge of two */
	first = opens(&out, edge, 1);
	for (uint64_t i = 1; i < 63; i++)
		opens(&out, i * SPAN, 1);
	opens(&out, edge - PAGE, 1); /* in the place of the one that may go */
	again = opens(&out, edge, 1);
	ok(again == first, "the address that it has");
	is_int(closes(&out, first, 1), 0, "closed");
	is_int(closes(&out, first, 1), 0, "  as often as it was opened");
	is_int(closes(&out, first, 1), -EINVAL, "  and no more");
	glk_cache_unpin(&rig.cache, out.here);
	is_int(glk_mirror_end(&rig.cache.imports, out.mirror), 0, "taken down");
	rig_close(&rig, 1);
	return tap_done();
}
