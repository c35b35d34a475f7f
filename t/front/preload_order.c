/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Other libraries that stand in front of the driver: one that is preloaded too (preload_wrap.c),
 * named before ours or after it, and one that patches the code of functions as UCX does. The
 * argument is who comes first of those that are preloaded: wrap, ours, or none.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_calls.h"

#include <sys/mman.h>
#include <unistd.h>

static int wrapped(const char *name)
{
	int *count = dlsym(RTLD_DEFAULT, name);

	return count ? *count : -1;
}

static void wraps(const struct calls *cu, bool before)
{
	const struct fake_state *fake = driver_state();
	fake_address ptr = 0;

	is_int(cu->cuMemAlloc(&ptr, MIB), 0, "a block");
	is_int(wrapped("wrap_allocs"), before,
		before ? "comes by the first" : "is ours to give");
	is_int(cu->cuMemAlloc(&ptr, 0), 1, "what is refused");
	is_int(wrapped("wrap_allocs"), before + 1, "comes by it");
	is_int(fake->count("cuMemAlloc_v2"), 1, "  and the driver");
	is_int(cu->cuMemFree(ptr), 0, "a free");
	is_int(wrapped("wrap_frees"), before, "goes the same way");
	srand(1);
	rand();
	is_int(wrapped("wrap_rands"), 1, "and functions of others find their next one");
}

#ifdef __x86_64__
/*
 * Puts a jump at the beginning of a function, and takes it away for the time of a call of what
 * was there: the simplest of the ways in which functions are patched.
 */
struct patch {
	unsigned char *code, saved[13];
	void *to;
	int calls;
};

static void patch_write(struct patch *p, bool in)
{
	unsigned char jump[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
	uintptr_t page = (uintptr_t)p->code & ~(uintptr_t)4095;

	memcpy(jump + 2, &p->to, 8);
	mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy(p->code, in ? jump : p->saved, sizeof(jump));
	mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
}

static void patch_in(struct patch *p, void *code, void *to)
{
	p->code = code;
	p->to = to;
	memcpy(p->saved, code, sizeof(p->saved));
	patch_write(p, true);
}

static struct patch on_alloc, on_free, on_map;

static fake_result patched_alloc(fake_address *ret, size_t size)
{
	fake_result (*fn)(fake_address *, size_t);
	fake_result result;

	memcpy(&fn, &on_alloc.code, sizeof(fn));
	on_alloc.calls++;
	patch_write(&on_alloc, false);
	result = fn(ret, size);
	patch_write(&on_alloc, true);
	return result;
}

static fake_result patched_free(fake_address ptr)
{
	fake_result (*fn)(fake_address);
	fake_result result;

	memcpy(&fn, &on_free.code, sizeof(fn));
	on_free.calls++;
	patch_write(&on_free, false);
	result = fn(ptr);
	patch_write(&on_free, true);
	return result;
}

static fake_result patched_map(fake_address address, size_t size, size_t offset,
	unsigned long long page, unsigned long long flags)
{
	fake_result (*fn)(
		fake_address, size_t, size_t, unsigned long long, unsigned long long);
	fake_result result;

	memcpy(&fn, &on_map.code, sizeof(fn));
	on_map.calls++;
	patch_write(&on_map, false);
	result = fn(address, size, offset, page, flags);
	patch_write(&on_map, true);
	return result;
}

/* Bytes of an instruction that UCX 1.22 can move to another place; 0 for any other. */
static int movable(const unsigned char *code)
{
	static const unsigned char frame[] = {0x48, 0x89, 0xe5};
	static const unsigned char room[] = {0x48, 0x83, 0xec},
				   much[] = {0x48, 0x81, 0xec};

	if ((code[0] & 0xf0) == 0x50) /* push, pop */
		return 1;
	if (code[0] == 0x41 && (code[1] & 0xf0) == 0x50) /* of the newer registers */
		return 2;
	if (!memcmp(code, frame, 3)) /* mov %rsp, %rbp */
		return 3;
	if (!memcmp(code, room, 3)) /* sub, %rsp */
		return 4;
	if ((code[0] & 0xf8) == 0xb8) /* mov of a number */
		return 5;
	return memcmp(code, much, 3) ? 0 : 7;
}

/* A jump takes five bytes, and what it is written over has to go elsewhere. */
static void can_be_patched(const char *name)
{
	const unsigned char *code = dlsym(RTLD_DEFAULT, name);
	int length = 0, next = 1;

	while (code && length < 5 && next) {
		next = movable(code + length);
		length += next;
	}
	ok(code && length >= 5, "%s can be moved", name);
	if (code && length < 5)
		tap_note("%02x %02x %02x %02x %02x %02x %02x %02x", code[0], code[1],
			code[2], code[3], code[4], code[5], code[6], code[7]);
}

static void all_can_be_patched(void)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuMemAllocPitch_v2",
		"cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFree_v2",
		"cuMemFreeAsync"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		can_be_patched(names[i]);
}

static void patches(const struct calls *cu)
{
	struct calls by_proc = calls_by_proc_v2();
	fake_address ptr = 0, other = 0;

	all_can_be_patched();
	/* As UCX finds them: the first of the name there is. */
	patch_in(&on_alloc, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), (void *)patched_alloc);
	patch_in(&on_free, dlsym(RTLD_DEFAULT, "cuMemFree_v2"), (void *)patched_free);
	patch_in(&on_map, dlsym(RTLD_DEFAULT, "cuMemMap"), (void *)patched_map);
	is_int(cu->cuMemAlloc(&ptr, 64 * MIB), 0, "a block");
	is_int(by_proc.cuMemAlloc(&other, 64 * MIB), 0,
		"and one of who came in another way");
	is_int(on_alloc.calls, 2, "both are seen");
	ok(on_map.calls > 0, "and so is what the library maps");
	is_int(cu->cuMemFree(other), 0, "freed");
	is_int(by_proc.cuMemFree(ptr), 0, "freed");
	is_int(on_free.calls, 2, "seen");
	is_int(driver_state()->count("cuMemAlloc_v2"), 0, "and ours");
}
#else
static void patches(const struct calls *cu)
{
	tap_skip("patched functions", "written for x86-64");
}
#endif

int main(int count, char **arguments)
{
	const char *first = count > 1 ? arguments[1] : "none";
	struct calls cu;

	tap_plan_later();
	cu = calls_by_symbol();
	calls_use(&cu, 0);
	if (strcmp(first, "none"))
		wraps(&cu, !strcmp(first, "wrap"));
	else
		patches(&cu);
	return tap_done();
}
