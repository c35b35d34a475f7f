/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that lie on pages which are mapped already, what stays and what goes, and every call that
 * fails. Exporter and importer are one process here. */
#include "unit/cache/rig.h"

#include <fcntl.h>
#include <unistd.h>

#define PAGE (8 * MIB)
#define MOST 256

static volatile unsigned char *at(uint64_t addr)
{
	return (volatile unsigned char *)(uintptr_t)addr;
}

static int files(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

struct out {
	struct rig *rig;
	uint64_t addr, size; /* as it is told */
	uint64_t here;	     /* where it is */
	size_t count;
	struct glake_piece piece[MOST];
	size_t asked, most; /* pages; descriptors that may be had at once, or 0 */
	int times;	    /* that it was asked */
	int err;
};

static struct out list(struct rig *rig, uint64_t addr)
{
	struct out out = {.rig = rig, .addr = addr, .here = addr};
	struct glk_pin pin;

	if (glk_cache_pin(&rig->cache, addr, false, &pin) ||
		glk_share_list(glk_pin_page, &pin, pin.count, out.piece))
		tap_bail(rig_error().text);
	if (pin.count < MOST && out.piece[pin.count].fd)
		tap_bail("more pieces than pages");
	out.size = pin.size;
	out.count = pin.count;
	return out;
}

static void unlist(struct out *out)
{
	glk_cache_unpin(&out->rig->cache, out->here);
}

static int fds(void *arg, size_t first, size_t count, int *ret_fds)
{
	struct out *out = arg;
	struct glk_pin pin;
	int err = out->err;

	out->times++;
	if (out->most && count > out->most)
		return -EMFILE;
	if (!err)
		err = glk_cache_pinned(&out->rig->cache, out->here, &pin);
	if (!err)
		err = glk_share_fds(
			out->rig->drv, glk_pin_page, &pin, first, count, ret_fds);
	out->asked += err ? 0 : count;
	return err;
}

static int opens(struct out *out, struct glake_mirror *mirror, uint64_t *ret_addr)
{
	return glk_mirror_open(&out->rig->cache.imports, mirror, out->addr, out->piece,
		out->count, out->size, fds, out, ret_addr);
}

static int closes(struct out *out, struct glake_mirror *mirror, uint64_t addr)
{
	return glk_mirror_close(&out->rig->cache.imports, mirror, addr, out->size);
}

static uint64_t keeps(struct rig *rig, struct glake_mirror *mirror, uint64_t most)
{
	uint64_t kept = 77;

	if (glk_mirror_trim(&rig->cache.imports, mirror, most, &kept))
		tap_bail("no mirror");
	return kept;
}

/* Calls that opening makes. */
static uint64_t calls(struct rig *rig)
{
	return rig_calls(rig, GLAKE_CALL_MAP) + rig_calls(rig, GLAKE_CALL_UNMAP) +
		rig_calls(rig, GLAKE_CALL_SET_ACCESS) +
		rig_calls(rig, GLAKE_CALL_IMPORT) + rig_calls(rig, GLAKE_CALL_EXPORT) +
		rig_calls(rig, GLAKE_CALL_RESERVE);
}

static void prepare(
	struct rig *rig, const char *const *settings, struct glake_mirror **ret_mirror)
{
	rig_open(rig, settings);
	rig_stream(rig);
	if (glk_mirror_new(&rig->cache.imports, ret_mirror))
		tap_bail("no mirror");
}

static void test_again(void)
{
	struct CUstream_st *stream;
	struct glake_mirror *mirror;
	uint64_t a, b, first = 0, second = 0, third = 0, before;
	int open_files = files();
	struct out x, y, z;
	struct rig rig;

	prepare(&rig, NULL, &mirror);
	stream = rig.stream[0];
	a = rig_alloc(&rig, 5 * MIB, stream);
	b = rig_alloc(&rig, 3 * PAGE + 3 * MIB, stream);
	at(a)[7] = 1;
	at(b)[7] = 2;
	at(b)[3 * PAGE + 3 * MIB - 1] = 3;
	x = list(&rig, a);
	y = list(&rig, b);
	is_int(opens(&x, mirror, &first), 0, "a block");
	is_int(opens(&y, mirror, &second), 0, "the one behind it");
	ok(at(first)[7] == 1 && at(second)[7] == 2 && at(second)[y.size - 1] == 3,
		"  are there");
	ok(second - first == b - a, "  as far apart as they are there");
	ok(x.asked + y.asked < x.count + y.count, "  and share a page");
	ok(x.count > 1 && x.times == 1 && y.times == 1,
		"  each asked for with all of its pages at once");
	before = calls(&rig);
	is_int(opens(&y, mirror, &third), 0, "once more");
	ok(third == second, "  at the same address");
	at(second)[9] = 5;
	ok(at(b)[9] == 5, "  the same memory");
	is_int(closes(&y, mirror, third), 0, "closed");
	is_int((int64_t)keeps(&rig, mirror, SIZE_MAX), 0, "  which leaves all in use");
	is_int(closes(&y, mirror, second), 0, "and again");
	is_int(closes(&y, mirror, second), -EINVAL, "and no more");
	is_int(closes(&x, mirror, first + PAGE * 100), -EINVAL, "nor somewhere else");
	ok(keeps(&rig, mirror, SIZE_MAX) >= 3 * PAGE, "pages stay");
	unlist(&y);
	rig_free(&rig, b, stream);
	b = rig_alloc(&rig, 2 * PAGE, stream);
	at(b)[4096] = 8;
	z = list(&rig, b);
	is_int(opens(&z, mirror, &third), 0, "another block on them");
	ok(at(third)[4096] == 8, "  with its contents");
	is_int((int64_t)z.asked, 0, "  of which no page was asked for");
	is_int((int64_t)(calls(&rig) - before), 0, "  without a call of the driver");
	is_int(glk_mirror_end(&rig.cache.imports, mirror), 0, "taken down");
	is_int(opens(&z, mirror, &third), -ENOENT, "  it is no more");
	unlist(&x);
	unlist(&z);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
	is_int(files(), open_files, "no descriptor is left");
}

/* A block that is not open is not closed, though its pages are open for another one. */
static void test_twice(void)
{
	static const char *const settings[] = {"share.keep=0", NULL};
	struct glake_mirror *mirror;
	uint64_t first = 0, second = 0, third = 0, gone;
	int wrong = 0, refused = 0;
	struct out x, y, z;
	struct rig rig;

	prepare(&rig, settings, &mirror);
	x = list(&rig, rig_alloc(&rig, 300000, rig.stream[0]));
	y = list(&rig, rig_alloc(&rig, 300000, rig.stream[0]));
	ok(x.piece[0].number == y.piece[0].number, "two blocks of one page");
	at(y.here)[5] = 4;
	is_int(opens(&x, mirror, &first), 0, "one is opened");
	is_int(opens(&y, mirror, &second), 0, "and the other one");
	is_int(closes(&x, mirror, first), 0, "one is closed");
	gone = rig_calls(&rig, GLAKE_CALL_UNMAP);
	is_int(closes(&x, mirror, first), -EINVAL, "  once");
	z = y;
	z.size--;
	is_int(closes(&z, mirror, second), -EINVAL, "nor is one of another size");
	is_int(closes(&y, mirror, second + 1), -EINVAL, "  or another address");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_UNMAP) - gone), 0, "its page stays");
	ok(at(second)[5] == 4, "  and can be read");
	/* those of many sizes, at one address */
	for (size_t size = 1; size <= 2000; size++) {
		z.size = z.piece[0].length = size;
		wrong += opens(&z, mirror, &third) || third != second;
		wrong += size % 5 == 0 && opens(&z, mirror, &third);
	}
	is_int(wrong, 0, "2000 blocks are open, some twice");
	for (size_t step = 0; step < 3; step++)
		for (size_t size = 1 + step; size <= 2000; size += 3) {
			z.size = size;
			wrong += closes(&z, mirror, second) != 0;
			wrong += size % 5 == 0 && closes(&z, mirror, second);
			refused += closes(&z, mirror, second) == -EINVAL;
		}
	is_int(wrong, 0, "all are closed");
	is_int(refused, 2000, "  and no more than that");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_UNMAP) - gone), 0,
		"the page is in use still");
	is_int(closes(&y, mirror, second), 0, "the last one is closed");
	ok(rig_calls(&rig, GLAKE_CALL_UNMAP) > gone, "  and it goes");
	unlist(&x);
	unlist(&y);
	is_int(glk_mirror_end(&rig.cache.imports, mirror), 0, "taken down");
	rig_close(&rig, 2);
}

/* What may stay is bounded, over all mirrors, and the oldest goes. */
static void test_bound(void)
{
	static const char *const settings[] = {"share.keep=24MiB", NULL};
	struct glake_mirror *one, *two;
	uint64_t block[6], addr[6];
	struct out out[6];
	struct rig rig;
	size_t asked;

	prepare(&rig, settings, &one);
	glk_mirror_new(&rig.cache.imports, &two);
	for (int i = 0; i < 6; i++) {
		block[i] = rig_single(&rig, PAGE, rig.stream[0]);
		out[i] = list(&rig, block[i]);
		is_int(opens(&out[i], i % 2 ? one : two, &addr[i]), 0, "opened");
	}
	for (int i = 0; i < 6; i++)
		closes(&out[i], i % 2 ? one : two, addr[i]);
	is_int((int64_t)(keeps(&rig, one, SIZE_MAX) + keeps(&rig, two, SIZE_MAX)),
		(int64_t)(3 * PAGE), "three pages stay of six");
	asked = out[5].asked + out[4].asked;
	opens(&out[5], one, &addr[5]);
	opens(&out[4], two, &addr[4]);
	is_int((int64_t)(out[5].asked + out[4].asked), (int64_t)asked, "the last ones");
	asked = out[0].asked;
	opens(&out[0], two, &addr[0]);
	ok(out[0].asked > asked, "and not the first");
	is_int((int64_t)keeps(&rig, one, 0), 0, "one mirror lets go of what is not open");
	closes(&out[5], one, addr[5]);
	for (int i = 0; i < 6; i++)
		unlist(&out[i]);
	rig_close(&rig, 7); /* one mirror has open blocks */
}

/* Pages that come and go behind the same addresses. */
static void test_change(void)
{
	struct glake_mirror *mirror;
	struct out x, y;
	struct rig rig;
	uint64_t block, addr = 0, other = 0;

	prepare(&rig, NULL, &mirror);
	block = rig_alloc(&rig, 2 * PAGE, rig.stream[0]);
	x = list(&rig, block);
	opens(&x, mirror, &addr);
	y = x;
	y.piece[0].number += 99;
	is_int(opens(&y, mirror, &other), -EBUSY, "other pages where one is open");
	closes(&x, mirror, addr);
	y.asked = 0;
	is_int(opens(&y, mirror, &other), 0, "and where none is");
	ok(y.asked == 1, "  takes the place of that one alone");
	closes(&y, mirror, other);
	is_int(opens(&x, mirror, &addr), 0, "and the first one again");
	closes(&x, mirror, addr);
	y = x;
	for (size_t i = 0; i < y.count; i++)
		y.piece[i].number = 0;
	is_int(opens(&y, mirror, &other), -EINVAL, "pages without a number");
	y = x;
	for (size_t i = 0; i < y.count; i++)
		y.piece[i].flags = GLAKE_PIECE_READ;
	is_int(opens(&y, mirror, &other), -EINVAL, "pages that may be read alone");
	y = x;
	y.addr += 4096;
	is_int(opens(&y, mirror, &other), -EINVAL, "an address that does not fit");
	y.addr = x.addr;
	y.piece[0].offset += PAGE;
	is_int(opens(&y, mirror, &other), -EINVAL, "a page that ends before");
	y.count = 1;
	y.addr = y.piece[0].offset = 0;
	for (uint64_t more = 0; more < 2; more++) {
		y.size = y.piece[0].page_size =
			(UINT32_MAX / 2 + more) * rig.cache.imports.node->granularity;
		y.piece[0].length = y.size;
		is_int(opens(&y, mirror, &other), more ? -EINVAL : -ENOMEM,
			more ? "  which has no number" : "more slots than there are");
	}
	for (int i = 0; i < 70; i++) {
		y = x;
		y.addr = x.addr % (UINT64_C(1) << 30) + (UINT64_C(1) << 40) * (uint64_t)i;
		y.err = -ESRCH;
		if (opens(&y, mirror, &other) != -ESRCH)
			break;
	}
	is_int(y.err ? -ESRCH : 0, -ESRCH,
		"addresses all over are no more than a refusal");
	y = x;
	y.addr = (UINT64_C(64) << 30) - y.piece[0].page_size;
	y.addr += y.piece[0].offset;
	is_int(opens(&y, mirror, &other), 0, "a block across two windows");
	closes(&y, mirror, other);
	unlist(&x);
	glk_mirror_end(&rig.cache.imports, mirror);
	rig_close(&rig, 1);
}

/* Pages that are kept do not hold the addresses around them when those run short. */
static void test_far(void)
{
	uint64_t addr[63], addr_one = 0, none = 0, span = UINT64_C(64) << 30;
	struct glake_mirror *mirror;
	struct out x, y;
	int wrong = 0;
	struct rig rig;

	prepare(&rig, NULL, &mirror);
	x = list(&rig, rig_single(&rig, PAGE, rig.stream[0]));
	y = x;
	at(x.here)[3] = 2;
	is_int(opens(&x, mirror, &addr_one), 0, "a block that stays open");
	for (uint64_t i = 1; i <= 200; i++) {
		y.addr = x.addr + i * span;
		wrong += opens(&y, mirror, &addr[0]) || at(addr[0])[3] != 2;
		wrong += closes(&y, mirror, addr[0]) != 0;
	}
	is_int(wrong, 0, "200 others far apart, one after the other");
	ok(keeps(&rig, mirror, SIZE_MAX) > 0, "  of which pages are kept");
	y.asked = 0;
	wrong += opens(&y, mirror, &addr[0]) || y.asked;
	wrong += closes(&y, mirror, addr[0]) != 0;
	is_int(wrong, 0, "  those of the last one");
	for (uint64_t i = 0; i < 63; i++) {
		y.addr = x.addr + (i + 1) * span;
		wrong += opens(&y, mirror, &addr[i]) != 0;
	}
	is_int(wrong, 0, "64 that are open");
	y.addr += span;
	is_int(opens(&y, mirror, &none), -ENOMEM, "and no more");
	is_int(rig_error().error_class, GLAKE_ERROR_LIMIT, "  which is a limit");
	y.addr = x.addr + span;
	is_int(closes(&y, mirror, addr[0]), 0, "one is closed");
	y.addr = x.addr + 100 * span;
	glk_fault_set(rig.drv, "unmap:nth=1");
	ok(opens(&y, mirror, &addr[0]) < 0, "a page that the driver does not let go of");
	glk_fault_set(rig.drv, "off");
	is_int(opens(&y, mirror, &addr[0]), 0, "and when it does");
	ok(at(addr_one)[3] == 2, "the first one is where it was");
	unlist(&x);
	is_int(glk_mirror_end(&rig.cache.imports, mirror), 0, "taken down");
	rig_close(&rig, 1);
}

/* A few descriptors are enough for many pages. */
static void test_few(void)
{
	static const char *const settings[] = {"pool.large_page=2MiB", NULL};
	struct glake_mirror *mirror;
	uint64_t block, addr = 0;
	struct rig rig;
	struct out x;

	for (size_t most = 1; most <= 5; most += 4) {
		prepare(&rig, settings, &mirror);
		block = rig_alloc(&rig, 50 * MIB, rig.stream[0]);
		at(block)[49 * MIB] = 6;
		x = list(&rig, block);
		x.most = most;
		ok(!opens(&x, mirror, &addr), "pages, %zu at a time", most);
		ok(at(addr)[49 * MIB] == 6, "  are there");
		closes(&x, mirror, addr);
		unlist(&x);
		glk_mirror_end(&rig.cache.imports, mirror);
		rig_close(&rig, 1);
	}
}

static bool reaches(struct rig *rig, uint64_t addr)
{
	bool may = !glk_soft_work(rig->drv, 1, NULL, addr, PAGE, true);

	glk_soft_run_all(rig->drv);
	return may;
}

static void test_peers(void)
{
	struct glake_mirror *mirror;
	uint64_t first = 0, second = 0;
	struct out x, y;
	struct rig rig;

	prepare(&rig, (const char *const[]){"soft.gpus=2", NULL}, &mirror);
	x = list(&rig, rig_single(&rig, PAGE, rig.stream[0]));
	y = list(&rig, rig_single(&rig, PAGE, rig.stream[0]));
	opens(&x, mirror, &first);
	ok(!reaches(&rig, first), "not for GPU 1");
	is_int(glk_cache_peer(&rig.cache, 1, true), 0, "GPU 1 may use all memory");
	opens(&y, mirror, &second);
	ok(reaches(&rig, first) && reaches(&rig, second), "mirrors too");
	is_int(glk_cache_peer(&rig.cache, 1, false), 0, "and no longer");
	ok(!reaches(&rig, first) && !reaches(&rig, second), "nor those");
	closes(&x, mirror, first);
	closes(&y, mirror, second);
	unlist(&x);
	unlist(&y);
	rig_close(&rig, 2);
}

/* They are the caller's: those without a block do not make way. */
static void test_many(void)
{
	struct glake_mirror *mirror[GLK_MIRRORS_MAX], *more = NULL;
	struct glk_imports *imports;
	struct rig rig;
	int wrong = 0;

	prepare(&rig, NULL, &mirror[0]);
	imports = &rig.cache.imports;
	for (int i = 1; i < GLK_MIRRORS_MAX; i++)
		wrong += glk_mirror_new(imports, &mirror[i]) != 0;
	ok(!wrong, "%d mirrors", GLK_MIRRORS_MAX);
	is_int(glk_mirror_new(imports, &more), -ENOMEM, "and no more");
	is_int(rig_error().error_class, GLAKE_ERROR_LIMIT, "  which is a limit");
	is_int(glk_mirror_end(imports, mirror[7]), 0, "one is ended");
	is_int(glk_mirror_new(imports, &mirror[7]), 0, "and another one made");
	for (int i = 0; i < GLK_MIRRORS_MAX; i++)
		wrong += glk_mirror_end(imports, mirror[i]) != 0;
	is_int(wrong, 0, "none was ended before");
	rig_close(&rig, 0);
}

/* A mirror with one page that is open at the end is one that was left. */
static void test_left(void)
{
	struct glake_mirror *mirror;
	uint64_t block, addr = 0;
	struct rig rig;
	struct out x;

	prepare(&rig, NULL, &mirror);
	block = rig_single(&rig, PAGE, rig.stream[0]);
	x = list(&rig, block);
	is_int(opens(&x, mirror, &addr), 0, "one block is open");
	unlist(&x);
	is_int(rig_free(&rig, block, rig.stream[0]), 0, "what it shows is freed");
	rig_close(&rig, 1);
}

/* Each call of opening fails once: nothing is left of it, and the next one works. */
static void test_faults(void)
{
	static const char *const names[] = {
		"import_fd", "map", "set_access", "release", "reserve", "unmap"};
	struct glake_mirror *mirror;
	uint64_t block, addr = 0, passed, failed;
	int open_files = files(), err, wrong = 0, struck = 0;
	struct rig rig;
	struct out x, old;
	char fault[64];

	for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
		struck = 0;
		failed = 1;
		for (int i = 1; failed && i < 8; i++) {
			prepare(&rig, NULL, &mirror);
			block = rig_alloc(&rig, 3 * PAGE, rig.stream[0]);
			x = list(&rig, block);
			old = x;
			if (!strcmp(names[n], "unmap")) {
				opens(&old, mirror, &addr);
				closes(&old, mirror, addr);
				for (size_t p = 0; p < x.count; p++)
					x.piece[p].number += 1000;
			}
			snprintf(fault, sizeof(fault), "%s:nth=%d", names[n], i);
			glk_fault_set(rig.drv, fault);
			err = opens(&x, mirror, &addr);
			glk_fault_count(rig.drv, &passed, &failed);
			glk_fault_set(rig.drv, "off");
			struck += failed > 0;
			wrong += !failed == !!err;
			if (!err)
				wrong += closes(&x, mirror, addr) != 0;
			wrong += opens(&x, mirror, &addr) != 0;
			wrong += closes(&x, mirror, addr) != 0;
			unlist(&x);
			wrong += glk_mirror_end(&rig.cache.imports, mirror) != 0;
			rig_close(&rig, 1);
			wrong += files() != open_files;
		}
		ok(struck && !wrong, "%s fails, %d times in turn", names[n], struck);
	}
}

int main(void)
{
	tap_plan_later();
	test_again();
	test_twice();
	test_bound();
	test_change();
	test_far();
	test_few();
	test_peers();
	test_many();
	test_left();
	test_faults();
	return tap_done();
}
