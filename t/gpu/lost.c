/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A GPU lost to an illegal access (fault 9): a kernel writes to a page that it may only read.
 * The error sticks to the context, so this is a program of its own. Queries say DEVICE_LOST,
 * and the memory can still be given back.
 */
#include "gpu.h"

/* poke(address, value): writes one word. */
static const char poke_ptx[] = ".version 7.0\n"
			       ".target sm_70\n"
			       ".address_size 64\n"
			       ".visible .entry poke(.param .u64 a, .param .u32 v)\n"
			       "{\n"
			       ".reg .b64 %rd<3>;\n"
			       ".reg .b32 %r<2>;\n"
			       "ld.param.u64 %rd1, [a];\n"
			       "ld.param.u32 %r1, [v];\n"
			       "cvta.to.global.u64 %rd2, %rd1;\n"
			       "st.global.u32 [%rd2], %r1;\n"
			       "ret;\n"
			       "}\n";

#define JIT_ABSENT 221 /* CUDA_ERROR_JIT_COMPILER_NOT_FOUND */

static struct glk_drv *drv;
static struct gpu_extra cuda;
static void *poke;

static int poke_at(uint64_t addr, uint32_t value, struct CUstream_st *stream)
{
	void *arguments[] = {&addr, &value};
	int result;

	cuda.context_set(cuda.primary);
	result = cuda.launch(poke, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
	cuda.context_set(NULL);
	return result;
}

static void poke_load(void)
{
	void *module = NULL;
	int result;

	cuda.context_set(cuda.primary);
	result = cuda.module_load(&module, poke_ptx);
	if (!result)
		result = cuda.module_function(&poke, module, "poke");
	cuda.context_set(NULL);
	if (result == JIT_ABSENT)
		tap_skip_all(
			"no kernel: the driver has no JIT compiler installed beside it");
	if (result) {
		tap_note("CUresult %d", result);
		tap_bail("the kernel cannot be loaded");
	}
}

static void lost(int err, const char *what)
{
	is_int(err, -ENODEV, what);
	gpu_why();
	is_int(gpu_class(), GLAKE_ERROR_DEVICE_LOST, "because the GPU is lost");
}

int main(void)
{
	struct glk_grant grant = {{GLK_PLACE_GPU, 0}, GLK_ACCESS_READ};
	struct glk_drv_event *event = NULL, *another = NULL;
	struct CUstream_st *stream = NULL;
	struct glk_stream_facts facts;
	uint64_t span = 0, page = 0, spare = 0;
	size_t free = 0, total = 0;
	uint32_t word = 0;
	int err;

	drv = gpu_open();
	cuda = gpu_extra();
	poke_load();
	tap_plan_later();
	must(drv->ops->stream_new(drv, 0, &stream), "no stream");
	must(drv->ops->event_new(drv, 0, &event), "no event");
	must(drv->ops->reserve(drv, 2 * PAGE, PAGE, &span), "no addresses");
	must(drv->ops->create(drv, grant.who, PAGE, 0, &page), "no page");
	must(gpu_map(drv, 0, span, PAGE, page), "no mapping");

	is_int(poke_at(span + 64, 0xc0ffee, stream), 0, "a kernel writes");
	is_done(drv->ops->copy(drv, (uintptr_t)&word, span + 64, 4, stream),
		"read it back");
	is_done(drv->ops->stream_sync(drv, 0, stream), "wait");
	is_int(word, 0xc0ffee, "written");

	is_done(drv->ops->set_access(drv, span, PAGE, &grant, 1),
		"make the page read-only");
	poke_at(span + 64, 1, stream);
	drv->ops->event_record(drv, event, stream);
	lost(drv->ops->stream_sync(drv, 0, stream), "a kernel writes to it");
	lost(drv->ops->event_query(drv, event), "a query");
	lost(drv->ops->memory_info(drv, 0, &free, &total), "memory info");
	err = drv->ops->stream_facts(drv, 0, stream, &facts);
	ok(err == 0 || err == -ENODEV, "facts of the stream or lost: %d", err);
	err = drv->ops->stream_owner(drv, 0, stream);
	ok(err == 0 || err == -ENODEV, "its owner or lost: %d", err);
	err = drv->ops->event_new(drv, 0, &another);
	ok(err == 0 || err == -ENODEV, "a new event is made or refused: %d", err);
	if (!err)
		drv->ops->event_free(drv, another);
	err = drv->ops->event_free(drv, event);
	ok(err == 0 || err == -ENODEV, "the first event ends or is lost: %d", err);

	is_done(drv->ops->create(drv, grant.who, PAGE, 0, &spare),
		"a page can still be made");
	is_done(drv->ops->release(drv, spare), "and released");
	is_done(drv->ops->unmap(drv, span, PAGE), "the mapping goes");
	is_done(drv->ops->release(drv, page), "the page goes");
	is_done(drv->ops->unreserve(drv, span, 2 * PAGE), "the addresses go");
	err = drv->ops->close(drv);
	ok(err == 0 || err == -ENODEV, "close ends or says it is lost: %d", err);
	return tap_done();
}
