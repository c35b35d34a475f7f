/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What PyTorch's profiler is told: each block that is given and taken back while it listens. */
#include "front_c10.h"
#include "front_torch.h"

static void *(*alloc)(size_t, int, struct CUstream_st *);
static void (*free_)(void *, size_t, int, struct CUstream_st *);
static void (*init)(int);
static bool *listens;
static int *count;
static struct c10_report *last;

static bool said(void *ptr, int64_t size, size_t allocated, int gpu)
{
	if (last->ptr != ptr || last->size != size || last->allocated != allocated ||
		last->reserved < last->allocated || last->type != 1 ||
		last->index != gpu) {
		tap_note("%p: %lld, %zu live, %zu reserved, on %d:%d", last->ptr,
			(long long)last->size, last->allocated, last->reserved,
			last->type, last->index);
		return false;
	}
	return true;
}

static void tells(void)
{
	void *early, *a, *b;

	early = alloc(4096, 0, NULL);
	is_int(*count, 0, "nothing is told while nobody listens");
	*listens = true;
	a = alloc(5000, 0, NULL);
	ok(*count == 1 && said(a, 5000, 9096, 0),
		"a block with what is live and reserved");
	b = alloc(12 << 20, 1, NULL);
	ok(*count == 2 && said(b, 12 << 20, 12 << 20, 1), "on its own GPU");
	alloc(0, 0, NULL);
	is_int(*count, 2, "nothing of empty tensors");
	/* PyTorch may hand over the size, the GPU and the stream of an older block */
	free_(a, 77, 1, NULL);
	ok(*count == 3 && said(a, -5000, 4096, 0), "it is told of when it is freed");
	free_(a, 5000, 0, NULL);
	is_int(*count, 3, "once");
	free_(NULL, 0, 0, NULL);
	is_int(*count, 3, "and nothing of NULL");
	free_(early, 4096, 0, NULL);
	ok(*count == 4 && said(early, -4096, 0, 0), "also what was given before");
	*listens = false;
	free_(b, 12 << 20, 1, NULL);
	is_int(*count, 4, "nothing any more when it stops");
}

int main(int argc, char **argv)
{
	void *c10;

	tap_plan_later();
	load(argc, argv);
	find(alloc);
	*(void **)&free_ = dlsym(plug, "glake_torch_free");
	find(init);
	/* before PyTorch's library is there: no profiler */
	init(2);
	free_(alloc(100, 0, NULL), 100, 0, NULL);
	c10 = argc == 3 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!c10)
		tap_bail("the stand-in for libc10 cannot be loaded");
	listens = dlsym(c10, "c10_listens");
	count = dlsym(c10, "c10_count");
	last = dlsym(c10, "c10_last");
	init(2);
	tells();
	return tap_done();
}
