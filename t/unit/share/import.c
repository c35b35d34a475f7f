/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages under descriptors and back again: lists that are none, and every call that fails. */
#include "unit/cache/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PAGE (8 * MIB)
#define MOST 64
#define SIZE (3 * PAGE + 3 * MIB)
#define STEP 100003 /* bytes between two that are looked at */
/* Of a block of that size behind one of 5 MiB: half of the page they share, three large ones and
 * what is left. */
#define PIECES 5

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
	struct glake_piece piece[MOST];
	struct glk_pin pin;
};

static int export(struct rig *rig, uint64_t addr, struct out *out)
{
	int err;

	if (glk_cache_pin(&rig->cache, addr, false, &out->pin))
		tap_bail(rig_error().text);
	err = glk_share_export(
		rig->drv, glk_pin_page, &out->pin, out->pin.count, out->piece);
	if (err)
		glk_cache_unpin(&rig->cache, addr);
	return err;
}

static void close_all(struct out *out)
{
	for (uint32_t i = 0; i < out->pin.count; i++)
		close(out->piece[i].fd);
}

static int import(struct rig *rig, const struct out *out, uint64_t *ret_addr)
{
	return glk_import(
		&rig->cache.imports, out->piece, out->pin.count, out->pin.size, ret_addr);
}

static int import_end(struct rig *rig, uint64_t addr)
{
	return glk_import_end(&rig->cache.imports, addr, rig->stream[0]);
}

/* A block over five pages, begun in the middle of one; `single` for one of one handle. */
static uint64_t prepare(struct rig *rig, const char *const *settings, bool single)
{
	uint64_t addr;

	rig_open(rig, settings);
	rig_stream(rig);
	rig_alloc(rig, 5 * MIB, rig->stream[0]);
	addr = single ? rig_single(rig, SIZE, rig->stream[0])
		      : rig_alloc(rig, SIZE, rig->stream[0]);
	for (size_t i = 0; i < SIZE; i += STEP)
		at(addr)[i] = (unsigned char)(i / STEP % 251);
	return addr;
}

static bool same(uint64_t addr, uint64_t other)
{
	bool same = true;

	for (size_t i = 0; i < SIZE; i += STEP)
		same &= at(addr)[i] == i / STEP % 251 && at(other)[i] == at(addr)[i];
	at(other)[SIZE - 1] = 77;
	same &= at(addr)[SIZE - 1] == 77;
	at(addr)[0] = 78;
	same &= at(other)[0] == 78;
	at(addr)[0] = 0;
	return same;
}

static void test_same(bool single)
{
	uint64_t addr, other = 0, third = 0;
	int before = files();
	struct out out;
	struct rig rig;

	addr = prepare(&rig, NULL, single);
	is_int(export(&rig, addr, &out), 0, single ? "contiguous" : "over five pages");
	is_int(out.pin.count, single ? 1 : PIECES, "  its pieces");
	is_int(files() - before, (int)out.pin.count + 1, "  a descriptor each");
	is_int(import(&rig, &out, &other), 0, "  imported");
	is_int(import(&rig, &out, &third), 0, "  and again");
	close_all(&out);
	ok(other != addr && third != addr && other != third, "  at addresses of its own");
	ok(same(addr, other) && same(other, third), "  it is the same memory");
	rig_work(&rig, other, SIZE, rig.stream[0]);
	is_int(import_end(&rig, other), 0, "  ended");
	is_int(import_end(&rig, other), -ENOENT, "  once");
	is_int(import_end(&rig, third + 1), -ENOENT, "  and not by its inside");
	rig_free(&rig, addr, rig.stream[0]);
	is_int(import_end(&rig, third), 0, "  the other one, after the block was freed");
	is_int(glk_load_relaxed(&rig.cache.imports.slab.live), 0, "  no entry is left");
	glk_cache_unpin(&rig.cache, addr);
	is_sound(&rig, "  the books agree");
	rig_close(&rig, 1);
	is_int(files(), before, "  no descriptor is left");
}

/* Each list is refused, and nothing of it is kept. */
static void test_lists(void)
{
	struct out good, bad;
	struct rig rig;
	uint64_t addr, other = 5;
	int before;

	addr = prepare(&rig, (const char *const[]){"soft.gpus=2", NULL}, false);
	export(&rig, addr, &good);
	before = files();
#define refused(change, err, what)                                                       \
	do {                                                                             \
		bad = good;                                                              \
		change;                                                                  \
		is_int(import(&rig, &bad, &other), err, what);                           \
		tap_note("%s", rig_error().text);                                        \
	} while (0)
	refused(bad.piece[1].flags = 2, -E2BIG, "a flag that is not known");
	refused(bad.piece[1].flags = 1, -EINVAL, "a flag that is not that of all");
	refused(bad.piece[3].reserved = 1, -E2BIG, "content that is not known");
	refused(bad.piece[1].page_size = 0, -EINVAL, "a page of no bytes");
	refused(bad.piece[1].page_size = PAGE + 4096, -EINVAL, "one of odd ones");
	refused(bad.piece[1].page_size = SIZE_MAX & ~(PAGE - 1), -EINVAL, "one of all");
	refused(bad.piece[1].page_size = PAGE / 2, -EINVAL, "one too short");
	refused(bad.piece[1].page_size = PAGE * 2, -EINVAL, "one too long");
	refused(bad.piece[1].length = 0, -EINVAL, "a piece of nothing");
	refused(bad.piece[1].length = PAGE - 1, -EINVAL, "a hole");
	refused(bad.piece[1].offset = 1, -EINVAL, "a hole in front");
	refused(bad.piece[0].offset = SIZE_MAX, -EINVAL, "an offset beyond all");
	refused(bad.piece[0].length = SIZE_MAX, -EINVAL, "a length beyond all");
	refused(bad.piece[0] = good.piece[1], -EINVAL, "pieces that have more bytes");
	refused(bad.pin.size--, -EINVAL, "a byte less than they have");
	refused(bad.pin.size = 0, -EINVAL, "nothing");
	refused(bad.pin.count--, -EINVAL, "a piece less");
	refused(bad.piece[2].fd = -1, -EINVAL, "a descriptor that is none");
	refused(bad.piece[2].fd = 200, -EINVAL, "one that is not open");
	refused(bad.piece[2].fd = STDERR_FILENO, -EINVAL, "one of something else");
	refused((bad.piece[1].page_size *= 2, bad.piece[1].length *= 2,
			bad.pin.size += PAGE),
		-EINVAL, "a page of twice its size");
	has_str(rig_error().text, "piece 1: the page does not have 16777216 bytes",
		"  is told as that");
	refused((bad.piece[1].page_size /= 2, bad.piece[1].length /= 2,
			bad.pin.size -= PAGE / 2),
		-EINVAL, "one of half its size");
	is_int((int64_t)other, 5, "the output is left alone");
	is_int(files(), before, "no descriptor is left");
	/* the same page twice is no mistake that could be told from a block of two */
	bad = good;
	bad.piece[2].fd = good.piece[1].fd;
	is_int(import(&rig, &bad, &other), 0, "one page twice");
	at(other)[PAGE - good.piece[0].offset + 9] = 99;
	ok(at(other)[2 * PAGE - good.piece[0].offset + 9] == 99, "is there twice");
	is_int(import_end(&rig, other), 0, "and goes");
	close_all(&good);
	glk_cache_unpin(&rig.cache, addr);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Memory of another GPU is not taken for that of this one. */
static void test_place(void)
{
	struct glk_place gpu1 = {GLK_PLACE_GPU, 1};
	struct glake_piece piece = {.page_size = PAGE, .length = PAGE};
	uint64_t page = 0, other = 0;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.gpus=2", NULL});
	rig.drv->ops->create(rig.drv, gpu1, PAGE, GLK_PAGE_EXPORT_FD, &page);
	rig.drv->ops->export_fd(rig.drv, page, &piece.fd);
	is_int(glk_import(&rig.cache.imports, &piece, 1, PAGE, &other), -EINVAL,
		"memory of GPU 1 imported as that of GPU 0");
	has_str(rig_error().text, "piece 0 is memory of GPU 1, not of GPU 0",
		"  says so");
	close(piece.fd);
	rig.drv->ops->release(rig.drv, page);
	rig_close(&rig, 0);
}

static bool reaches(struct rig *rig, uint64_t addr)
{
	bool may = !glk_soft_work(rig->drv, 1, NULL, addr, SIZE, true);

	glk_soft_run_all(rig->drv);
	return may;
}

static bool reads(struct rig *rig, uint64_t addr, int device)
{
	return !glk_soft_work(rig->drv, device, NULL, addr, SIZE, false);
}

static void test_peers(void)
{
	uint64_t addr, first = 0, second = 0, third = 0;
	struct out out;
	struct rig rig;

	addr = prepare(&rig, (const char *const[]){"soft.gpus=2", NULL}, false);
	export(&rig, addr, &out);
	import(&rig, &out, &first);
	ok(!reaches(&rig, first), "an import is not for GPU 1");
	is_int(glk_cache_peer(&rig.cache, 1, true), 0, "GPU 1 may use all memory");
	ok(reaches(&rig, first), "the import too");
	import(&rig, &out, &second);
	ok(reaches(&rig, second), "and one that is made later");
	glk_fault_set(rig.drv, "set_access:nth=3");
	is_int(glk_cache_peer(&rig.cache, 1, false), -EIO, "taking that away fails");
	glk_fault_set(rig.drv, "off");
	ok(reaches(&rig, first) && reaches(&rig, second), "and changes nothing");
	is_int(glk_cache_peer(&rig.cache, 1, false), 0, "taken away");
	ok(!reaches(&rig, first) && !reaches(&rig, second), "from both");
	for (uint32_t n = 0; n < out.pin.count; n++)
		out.piece[n].flags = GLAKE_PIECE_READ;
	import(&rig, &out, &third);
	is_int(glk_cache_peer(&rig.cache, 1, true), 0, "given again");
	ok(!reaches(&rig, third) && reads(&rig, third, 1) && reads(&rig, third, 0),
		"what may be read alone is read by both");
	is_int(glk_cache_peer(&rig.cache, 1, false), 0, "and taken away");
	ok(!reads(&rig, third, 1) && reads(&rig, third, 0), "from the other one");
	close_all(&out);
	/* not ended: the end of the GPU does it, and counts them */
	rig_close(&rig, 5);
}

/* A stream that captures, one that is none: the import is there as before. */
static void test_end(void)
{
	struct CUstream_st *stream;
	uint64_t addr, other = 0;
	struct out out;
	struct rig rig;

	addr = prepare(&rig, (const char *const[]){"soft.streams=stepped", NULL}, false);
	export(&rig, addr, &out);
	import(&rig, &out, &other);
	close_all(&out);
	stream = rig_stream(&rig);
	rig_capture(&rig, stream);
	is_int(glk_import_end(&rig.cache.imports, other, stream), -EBUSY,
		"ended on a stream that captures");
	is_int(rig_error().error_class, GLAKE_ERROR_CAPTURE, "  its class");
	ok(rig_capture_end(&rig, stream), "  the capture lives");
	is_int(glk_import_end(
		       &rig.cache.imports, other, (struct CUstream_st *)(uintptr_t)0x777),
		-EINVAL, "on what is no stream");
	at(other)[5] = 1;
	rig_work(&rig, other, SIZE, stream);
	is_int(glk_import_end(&rig.cache.imports, other, stream), 0,
		"on a stream with work, which is waited for");
	glk_cache_unpin(&rig.cache, addr);
	rig_close(&rig, 2);
}

/* What a driver answers to each unmap of imports, in their order. */
static struct {
	const struct glk_drv_ops *usual;
	int answer[3];
	int asked;
} unmaps;

static int unmap_refused(struct glk_drv *drv, uint64_t addr, size_t size)
{
	int err = unmaps.answer[unmaps.asked++];

	return err ? err : unmaps.usual->unmap(drv, addr, size);
}

/* The end of three imports, of which the driver keeps some. */
static void ends(int first, int second, int third, int want, int asked, const char *what)
{
	struct glk_imports imports = {0};
	struct glk_drv_ops ops;
	uint64_t addr, other[3];
	size_t live = 0;
	struct out out;
	struct rig rig;

	addr = prepare(&rig, NULL, true);
	export(&rig, addr, &out);
	glk_imports_init(&imports, rig.drv, rig.cache.node, 0);
	for (int i = 0; i < 3; i++)
		if (glk_import(
			    &imports, out.piece, out.pin.count, out.pin.size, &other[i]))
			tap_bail(rig_error().text);
	close_all(&out);
	ops = *rig.drv->ops;
	ops.unmap = unmap_refused;
	unmaps.usual = rig.drv->ops;
	unmaps.asked = 0;
	memcpy(unmaps.answer, (int[]){first, second, third}, sizeof(unmaps.answer));
	rig.drv->ops = &ops;
	is_int(glk_imports_fini(&imports, &live), want, what);
	is_int(unmaps.asked, asked, "  so many are asked for");
	rig.drv->ops = unmaps.usual;
	for (int i = 0; i < 3; i++) {
		if (i < asked && !unmaps.answer[i])
			continue;
		rig.drv->ops->unmap(rig.drv, other[i], out.piece[0].page_size);
		rig.drv->ops->unreserve(rig.drv, other[i], out.piece[0].page_size);
	}
	is_int((int64_t)live, 3, "  all were live");
	glk_cache_unpin(&rig.cache, addr);
	rig_close(&rig, 2);
}

static void test_ends(void)
{
	ends(0, 0, 0, 0, 3, "all imports go");
	ends(0, -EIO, 0, -EIO, 3, "one that is kept is told of, and the others go");
	ends(-EIO, -ENOMEM, 0, -EIO, 3, "the first error is told");
	ends(0, -ENODEV, 0, -ENODEV, 2, "a device that is lost is asked no more");
}

/* What an exporter or an importer does, under faults. */
struct scene {
	const char *name;
	int (*act)(struct rig *rig, uint64_t addr, struct out *out, uint64_t *other);
};

static int act_export(struct rig *rig, uint64_t addr, struct out *out, uint64_t *other)
{
	struct out again;
	int err = export(rig, addr, &again);

	if (err)
		return err;
	close_all(&again);
	return glk_cache_unpin(&rig->cache, addr);
}

static int act_import(struct rig *rig, uint64_t addr, struct out *out, uint64_t *other)
{
	return import(rig, out, other);
}

static int act_end(struct rig *rig, uint64_t addr, struct out *out, uint64_t *other)
{
	int err = import_end(rig, *other);

	/* what the driver kept is nobody's */
	return err == -ENOENT ? 0 : err;
}

static const struct scene scenes[] = {
	{"export", act_export}, {"import", act_import}, {"end of an import", act_end}};

static bool strike(const struct scene *scene, const char *fault, bool *ret_struck)
{
	uint64_t addr, other = 0, passed = 0, failed = 0;
	int before = files(), held, err, left;
	bool gone = false, fine;
	struct rig_end end;
	struct out out;
	struct rig rig;

	addr = prepare(&rig, NULL, false);
	left = 2;
	export(&rig, addr, &out);
	if (scene->act == act_end)
		import(&rig, &out, &other);
	held = files();
	if (glk_fault_set(rig.drv, fault))
		tap_bail(rig_error().text);
	err = scene->act(&rig, addr, &out, &other);
	glk_fault_count(rig.drv, &passed, &failed);
	glk_fault_set(rig.drv, "off");
	*ret_struck = failed > 0;
	fine = !err || err == -EIO || err == -ENOMEM || err == -ENODEV;
	fine &= scene->act == act_end || err || failed == 0;
	/* the software device keeps a descriptor for each page that it does not let go */
	fine &= scene->act == act_end || files() - held == (err || !other ? 0 : PIECES) ||
		strstr(fault, "unmap") || strstr(fault, "release") ||
		strstr(fault, "from") || strstr(fault, "sticky");
	/* without the fault it works; what was kept is not there twice */
	if (scene->act == act_end) {
		gone = import_end(&rig, other) == -ENOENT;
		fine &= gone || err;
	} else {
		if (other)
			fine &= !import_end(&rig, other);
		other = 0;
		fine &= !scene->act(&rig, addr, &out, &other);
		fine &= !other || (same(addr, other) && !import_end(&rig, other));
	}
	close_all(&out);
	glk_cache_unpin(&rig.cache, addr);
	fine &= rig_is_sound(&rig);
	end = rig_end(&rig);
	fine &= !end.cache && !end.device && (int)end.live == left;
	fine &= files() == before;
	if (!fine)
		tap_note("%s, %s: %d; end %d, %d, %zu live; %d files; %s", scene->name,
			fault, err, end.cache, end.device, end.live, files() - before,
			rig_error().text);
	return fine;
}

static void test_faults(const struct scene *scene)
{
	static const char *const calls[] = {"reserve", "unreserve", "import_fd",
		"export_fd", "page_place", "map", "release", "set_access", "unmap",
		"stream_owner", "stream_facts", "stream_sync"};
	static const char *const ways[] = {"nth=%d:err=EIO", "nth=%d:err=ENOMEM",
		"from=%d:err=EIO", "nth=%d:sticky=1"};
	char fault[64], way[48];
	bool fine = true;
	int runs = 0;

	for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			bool struck = true;

			for (int n = 1; struck; n++, runs++) {
				snprintf(way, sizeof(way), ways[w], n);
				snprintf(fault, sizeof(fault), "%s:%s", calls[c], way);
				fine &= strike(scene, fault, &struck);
			}
		}
	}
	for (int n = 1, struck = 1; struck; n++, runs++) {
		bool hit = false;

		snprintf(fault, sizeof(fault), "any:nth=%d:sticky=1", n);
		fine &= strike(scene, fault, &hit);
		struck = hit;
	}
	ok(fine, "%s: each call fails, %d runs", scene->name, runs);
}

/* Tables that cannot be had. */
static void test_tables(void)
{
	uint64_t addr, other = 5;
	struct out out;
	struct rig rig;

	addr = prepare(&rig, NULL, false);
	glk_region_fail_after(1);
	is_int(export(&rig, addr, &out), -ENOMEM, "no host memory to export");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_HOST, "  its class");
	glk_region_fail_after(0);
	export(&rig, addr, &out);
	glk_region_fail_after(1);
	is_int(import(&rig, &out, &other), -ENOMEM, "none to import");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_HOST, "  its class");
	glk_region_fail_after(0);
	is_int((int64_t)other, 5, "the output is left alone");
	is_int(import(&rig, &out, &other), 0, "then it works");
	close_all(&out);
	rig_close(&rig, 3);
}

int main(void)
{
	tap_plan_later();
	test_same(false);
	test_same(true);
	test_lists();
	test_place();
	test_peers();
	test_end();
	test_tables();
	test_ends();
	/* hundreds of GPUs are opened and closed */
	for (size_t i = 0; i < sizeof(scenes) / sizeof(*scenes); i++) {
		if (!tap_storms_take_long())
			test_faults(&scenes[i]);
	}
	return tap_done();
}
