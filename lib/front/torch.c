/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The functions that PyTorch calls for every tensor. They are thin: a tensor that finds its
 * block in the quick bins costs glake_alloc and a few instructions.
 *
 * PyTorch calls them with a size of 0 for empty tensors, frees NULL, and records streams on
 * memory that is not ours. At a free it hands over a size, a device and a stream that it looked
 * up in a table of its own and that may be those of an older block: the size and the device are
 * not looked at, and a stream too many is harmless, since the block knows its own.
 *
 * Nothing here throws at a free or at a record: those run in destructors.
 */
#include "front/torch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define KIB 1024.
#define MIB ((double)(1 << 20))
#define GIB ((double)(1 << 30))

void glake_torch_init(int devices)
{
	char text[GLAKE_ERROR_TEXT_MAX + 128];
	struct glake *ctx;

	/* with 0 an allocator is made; the GPUs are not used yet */
	if (devices <= 0)
		return;
	glk_torch_profile_find();
	ctx = glake_torch_context();
	if (ctx && glake_device_count(ctx) >= devices)
		return;
	if (ctx)
		snprintf(text, sizeof(text), "glake sees %d GPUs and PyTorch %d",
			glake_device_count(ctx), devices);
	else
		snprintf(text, sizeof(text), "glake could not be opened: %s",
			glake_torch_why());
	glk_torch_raise(false, text);
}

/* A size as PyTorch writes it in its own message, which programs look for. */
static const char *in_words(size_t size, char text[64])
{
	static const char *const units[] = {"KiB", "MiB", "GiB"};
	double amount = (double)size / KIB;
	int unit = 0;

	if (size >> 60)
		return "more than 1EB memory";
	if (size <= (size_t)KIB) {
		snprintf(text, 64, "%zu bytes", size);
		return text;
	}
	for (; unit < 2 && amount > KIB; unit++)
		amount /= KIB;
	snprintf(text, 64, "%.2f %s", amount, units[unit]);
	return text;
}

/* Why there is no memory, as PyTorch would say it, with what the library knows. */
static void memory_text(struct glake *ctx, size_t size, int device,
	const struct glake_error *error, char *ret_text, size_t room)
{
	struct glake_device gpu = {.sz = sizeof(gpu)};
	struct glake_stats stats = {.sz = sizeof(stats)};
	char words[64], helps[GLAKE_ERROR_TEXT_MAX] = "";

	glake_device_get(ctx, device, &gpu);
	glake_stats_get(ctx, device, &stats);
	glake_refusal_text(ctx, device, GLAKE_REFUSAL_ADVICE, helps, sizeof(helps), NULL);
	snprintf(ret_text, room,
		"CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity "
		"of %.2f GiB of which %.2f GiB is free. glake holds %.2f GiB, of which "
		"%.2f GiB is live; its budget is %.2f GiB. %s (%s)%s%s",
		in_words(size, words), device, (double)gpu.memory / GIB,
		(double)gpu.free / GIB, (double)stats.reserved / GIB,
		(double)stats.live / GIB,
		(double)(stats.budget < gpu.memory ? stats.budget : gpu.memory) / GIB,
		error->text, glake_error_class_name(error->error_class),
		*helps ? ". What would have helped: " : "", helps);
}

void glake_torch_refusal(size_t size, int device, char *ret_text, size_t room)
{
	struct glake_error error = {.sz = sizeof(error)};
	struct glake *ctx = glake_torch_context();

	glake_last_error(&error);
	if (!ctx)
		snprintf(ret_text, room, "glake could not be opened: %s",
			glake_torch_why());
	else if (error.err == -ENOMEM)
		memory_text(ctx, size, device, &error, ret_text, room);
	else
		snprintf(ret_text, room, "glake has no %.2f MiB for GPU %d: %s (%s)",
			(double)size / MIB, device, error.text,
			glake_error_class_name(error.error_class));
}

static void refuse(struct glake *ctx, size_t size, int device, struct CUstream_st *stream)
{
	struct glake_device gpu = {.sz = sizeof(gpu)};
	struct glake_error error = {.sz = sizeof(error)};
	char text[GLAKE_TORCH_REFUSAL_MAX];
	bool no_memory;

	glake_last_error(&error);
	no_memory = ctx && error.err == -ENOMEM;
	glake_torch_refusal(size, device, text, sizeof(text));
	if (no_memory && glk_torch_history_on() && !glake_device_get(ctx, device, &gpu))
		glk_torch_history_oom(gpu.free, size, device, stream);
	glk_torch_raise(no_memory, text);
}

/* For those who look on. */
static inline void note_given(struct glake *ctx, void *ptr, size_t size, int device,
	struct CUstream_st *stream, bool asks_python)
{
	if (glk_torch_history_on())
		glk_torch_history_alloc(ptr, size, device, stream, asks_python);
	if (glk_torch_profile_on())
		glk_torch_profile_tell(ctx, ptr, (int64_t)size, device);
	if (asks_python && glk_torch_names_on())
		glk_torch_name(ctx, ptr);
}

int glake_torch_request(
	size_t size, int device, struct CUstream_st *stream, void **ret_ptr)
{
	struct glake *ctx = glake_torch_context();
	int err = ctx ? glake_alloc(ctx, device, size, stream, 0, ret_ptr) : -ENODEV;

	if (!err && glk_torch_names_on())
		glk_torch_name(ctx, *ret_ptr);
	return err;
}

void glake_torch_tell(void *ptr, size_t size, int device, struct CUstream_st *stream)
{
	if (!glk_torch_history_on())
		return;
	if (size)
		glk_torch_history_alloc(ptr, size, device, stream, true);
	else
		glk_torch_history_free(ptr);
}

void *glake_torch_alloc(size_t size, int device, struct CUstream_st *stream)
{
	struct glake *ctx = glake_torch_context();
	void *ptr = NULL;

	if (!size)
		return NULL;
	if (glk_torch_pools_open())
		glk_torch_pool_choose(device, stream);
	if (!ctx || glake_alloc(ctx, device, size, stream, 0, &ptr)) {
		refuse(ctx, size, device, stream);
		return NULL;
	}
	if (!glk_torch_peers_known(device))
		glk_torch_peers_meet(ctx, device);
	note_given(ctx, ptr, size, device, stream, true);
	return ptr;
}

void glake_torch_free(void *ptr, size_t size, int device, struct CUstream_st *stream)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = ptr ? glake_torch_context() : NULL;
	bool told;

	if (!ctx)
		return;
	/* before the block can be given again */
	if (glk_torch_history_on())
		glk_torch_history_free(ptr);
	told = glk_torch_profile_on() && !glake_query(ctx, ptr, &block) &&
		block.base == ptr;
	/* An old stream that is none of this GPU, or none at all any more. */
	if (glake_free(ctx, ptr, stream) &&
		(glake_query(ctx, ptr, &block) || block.base != ptr ||
			glake_free(ctx, ptr, block.stream)))
		return;
	if (told)
		glk_torch_profile_tell(ctx, ptr, -(int64_t)block.size, block.device);
}

/* For callers that no exception may reach, with streams of their own: NULL is an answer. They may
 * hold a lock that a thread wants which holds Python's, so that is not waited for here. */
void *glake_torch_try_alloc(size_t size, int device, struct CUstream_st *stream)
{
	struct glake *ctx = glake_torch_context();
	void *ptr = NULL;

	glk_torch_pool_choose_none();
	if (!size || !ctx || glake_alloc(ctx, device, size, stream, 0, &ptr))
		return NULL;
	note_given(ctx, ptr, size, device, stream, false);
	return ptr;
}

/* In the order of the stream that the block was given to. */
void glake_torch_give_back(void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = glake_torch_context();

	if (ptr && ctx && !glake_query(ctx, ptr, &block) && block.base == ptr)
		glake_torch_free(ptr, 0, block.device, block.stream);
}

void glake_torch_reset(void)
{
	struct glake *ctx = glake_torch_opened() ? glake_torch_context() : NULL;

	for (int i = 0; ctx && i < glake_device_count(ctx); i++)
		glake_trim(ctx, i, 0, NULL);
}

/* The least that can be had is one byte, so that a fraction of 0 refuses every tensor. */
void glake_torch_memory_fraction(double fraction, int device)
{
	struct glake_device gpu = {.sz = sizeof(gpu)};
	struct glake *ctx = glake_torch_context();
	size_t bytes = SIZE_MAX;

	if (!ctx || !(fraction >= 0) || glake_device_get(ctx, device, &gpu))
		return;
	if (fraction < 1)
		bytes = (size_t)((double)gpu.memory * fraction);
	glake_budget_set(ctx, device, bytes ? bytes : 1);
}

/* The start of what an address lies in. What is none of ours is a memory of its own. */
void *glake_torch_base_alloc(void *ptr, size_t *ret_size)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = glake_torch_context();

	if (!ptr || !ctx || glake_query(ctx, ptr, &block)) {
		block.base = ptr;
		block.given = 0;
	}
	if (ret_size)
		*ret_size = block.given;
	return block.base;
}

/* Of a view or of a part PyTorch names the tensor's first byte, which may lie inside. */
int glake_torch_record_stream(void *ptr, struct CUstream_st *stream)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = glake_torch_context();
	int err = ptr && ctx ? glake_use(ctx, ptr, stream) : 0;

	/* memory of others is as well ordered as it is without glake */
	if (!err || glake_query(ctx, ptr, &block))
		return 0;
	return block.base == ptr ? err : glake_use(ctx, block.base, stream);
}
