/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of figures by name: see glake/figures.h. */
#include "api/figures.h"

#include "api/context.h"
#include "api/uvm.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/json.h"
#include "base/slab.h"

#include <glake/version.h>

#include <errno.h>
#include <string.h>

static int make_room(
	struct glake *const *handles, size_t count, struct glk_gathered *gathered)
{
	struct glk_context *context;
	size_t gpus = 0;

	*gathered = (struct glk_gathered){0};
	for (size_t i = 0; i < count; i++) {
		int err = glk_context_get(handles[i], &context);

		if (err)
			return err;
		gpus += (size_t)context->devices;
	}
	/* there are no more nodes than GPUs */
	gathered->size = count * sizeof(struct glk_figures_context) +
		gpus * (sizeof(struct glk_figures_gpu) + sizeof(struct glk_figures_node));
	gathered->contexts = gathered->size ? glk_region_new(gathered->size) : NULL;
	gathered->gpus = (struct glk_figures_gpu *)(void *)(gathered->contexts + count);
	gathered->nodes = (struct glk_figures_node *)(void *)(gathered->gpus + gpus);
	return gathered->contexts || !count ? 0 : -ENOMEM;
}

static void gather_times(struct glk_cache *cache, struct glake_histogram *to)
{
	static const struct {
		enum glk_figures_times to;
		enum glk_timed from;
	} of[] = {{GLK_FIGURES_REQUEST, GLK_TIMED_REQUEST},
		{GLK_FIGURES_FREE, GLK_TIMED_FREE}, {GLK_FIGURES_HOLD, GLK_TIMED_HOLD},
		{GLK_FIGURES_WAIT_MEMORY, GLK_TIMED_WAIT},
		{GLK_FIGURES_SPILL, GLK_TIMED_SPILL},
		{GLK_FIGURES_FETCH, GLK_TIMED_FETCH},
		{GLK_FIGURES_EARLY, GLK_TIMED_EARLY}, {GLK_FIGURES_LATE, GLK_TIMED_LATE}};

	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
		glk_times_read(&cache->times[of[i].from], &to[of[i].to]);
	glk_times_read(&cache->streams.waited, &to[GLK_FIGURES_WAIT_STREAMS]);
}

/* The node of a number, among those there are or behind them. */
static struct glk_figures_node *node_of(
	struct glk_figures_node *nodes, size_t *count, int number)
{
	size_t i = 0;

	while (i < *count && nodes[i].number != number)
		i++;
	if (i < *count)
		return &nodes[i];
	nodes[i].number = number;
	if (number < 0)
		snprintf(nodes[i].name, sizeof(nodes[i].name), "unknown");
	else
		snprintf(nodes[i].name, sizeof(nodes[i].name), "%d", number);
	++*count;
	return &nodes[i];
}

static void add_node(struct glk_figures_node *to, const struct glake_stats *s)
{
	uint64_t here = s->placed - s->placed_peer;
	uint64_t used = s->store_used + s->packed_held + here;

	to->held += s->host_held;
	to->store += s->store;
	to->store_used += s->store_used;
	to->placed += here;
	to->spare += s->host_held > used ? s->host_held - used : 0;
}

static void gather_gpu(struct glk_cache *cache, struct glk_figures_gpu *to)
{
	to->device = cache->device;
	glk_cache_figures(cache, &to->stats);
	glk_cache_survey(cache, &to->survey);
	gather_times(cache, to->times);
	glk_figures_derive(to);
}

static void gather_io(struct glk_io *io, struct glk_figures_gpu *to)
{
	const struct glk_io_gpu *g;
	int cancel;

	if (!io->lend)
		return;
	cancel = glk_cancel_off();
	glk_io_enter(io);
	g = &io->gpu[to->device];
	to->io = (struct glk_figures_io){.staging = g->size,
		.relayed = g->relayed,
		.shares = g->ring[GLK_IO_DOWN].shares + g->ring[GLK_IO_UP].shares,
		.host_rate = (uint64_t)(g->down.rate * 1e9),
		.peer_rate = (uint64_t)(g->leave.rate * 1e9)};
	glk_unlock(&io->lock);
	glk_cancel_restore(cancel);
}

static int gather_one(struct glake *handle, struct glk_figures_context *to,
	struct glk_figures_gpu *gpus, struct glk_figures_node *nodes)
{
	const struct glk_times *times;
	struct glk_context *context;
	int err = glk_context_get(handle, &context);

	if (err)
		return err;
	/* what a tick is, is the better known the later */
	glk_times_settle();
	to->number = glk_context_number(handle);
	to->driver = glk_drv_name(context->drv);
	to->gpus = gpus;
	to->nodes = nodes;
	for (int i = 0; i < context->devices; i++) {
		struct glk_cache *cache = &context->caches[i];

		/* pairs with: the release in glk_cache_start */
		if (!glk_load_acquire(&cache->started))
			continue;
		gather_gpu(cache, &gpus[to->count]);
		gather_io(&context->io, &gpus[to->count]);
		if (cache->host)
			add_node(node_of(nodes, &to->node_count, cache->host->place.id),
				&gpus[to->count].stats);
		to->count++;
	}
	to->has_managed = glk_managed_figures(context, &to->managed);
	times = context->drv->ops->times(context->drv);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		glk_times_read(&times[i], &to->times[i]);
	return context->drv->ops->figures(context->drv, &to->calls);
}

int glk_gather(struct glake *const *handles, size_t count, struct glk_gathered *ret)
{
	struct glk_figures_node *nodes;
	struct glk_figures_gpu *gpus;
	struct glk_gathered gathered;
	int err = make_room(handles, count, &gathered);

	gpus = gathered.gpus;
	nodes = gathered.nodes;
	for (size_t i = 0; i < count && !err; i++) {
		struct glk_figures_context *one = &gathered.contexts[i];

		err = gather_one(handles[i], one, gpus, nodes);
		gpus += one->count;
		nodes += one->node_count;
	}
	if (err) {
		glk_gather_end(&gathered);
		return err;
	}
	gathered.figures =
		(struct glk_figures){.contexts = gathered.contexts, .count = count};
	*ret = gathered;
	return 0;
}

void glk_gather_end(struct glk_gathered *gathered)
{
	if (gathered->contexts)
		glk_region_free(gathered->contexts, gathered->size);
	gathered->contexts = NULL;
}

struct taker {
	glake_figure_fn fn;
	void *arg;
};

static int hand_out(const struct glk_figures_context *context,
	const struct glake_figure *figure, void *arg)
{
	const struct taker *taker = arg;

	return taker->fn(figure, taker->arg);
}

int glake_figures(struct glake *ctx, glake_figure_fn fn, void *arg)
{
	struct taker taker = {fn, arg};
	struct glk_gathered gathered;
	int err;

	if (!fn)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no function to take the figures");
	err = glk_gather(&ctx, 1, &gathered);
	if (err)
		return err;
	err = glk_figures_walk(&gathered.figures, hand_out, &taker);
	glk_gather_end(&gathered);
	return err;
}

/* A text that is bounded, and counted beyond that. */
struct sink {
	char *buffer;
	size_t size, used;
};

static ssize_t fill(void *cookie, const char *bytes, size_t size)
{
	struct sink *sink = cookie;

	if (sink->used < sink->size)
		memcpy(sink->buffer + sink->used, bytes,
			size < sink->size - sink->used ? size : sink->size - sink->used);
	sink->used += size;
	return (ssize_t)size;
}

int glk_figures_print(const struct glk_figures *figures, int format, char *buffer,
	size_t size, size_t *ret_length)
{
	struct sink sink = {.buffer = buffer, .size = buffer ? size : 0};
	FILE *file = fopencookie(&sink, "w", (cookie_io_functions_t){.write = fill});
	struct glk_json json;

	if (!file)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"no memory of the host to write figures with");
	/* a child that is forked meanwhile has nothing to write out when it ends */
	setvbuf(file, NULL, _IONBF, 0);
	if (format == GLAKE_FIGURES_JSON) {
		glk_json_init(&json, file, 0);
		glk_json_object(&json);
		glk_json_add_text(&json, "version", GLAKE_VERSION_STRING);
		glk_figures_json(figures, &json);
		glk_json_end(&json);
		glk_json_fini(&json);
	} else {
		glk_figures_prometheus(figures, file);
	}
	fclose(file);
	if (buffer && sink.used >= size)
		return glk_error(-ENOSPC, GLAKE_ERROR_INVAL,
			"%zu bytes of figures are more than the buffer has room for",
			sink.used);
	if (buffer)
		buffer[sink.used] = '\0';
	*ret_length = sink.used;
	return 0;
}

int glake_figures_text(
	struct glake *ctx, int format, char *buffer, size_t size, size_t *ret_length)
{
	struct glk_gathered gathered;
	size_t length;
	int err;

	if (format != GLAKE_FIGURES_JSON && format != GLAKE_FIGURES_PROMETHEUS)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no format %d", format);
	if (!buffer && !ret_length)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for the text");
	err = glk_gather(&ctx, 1, &gathered);
	if (err)
		return err;
	err = glk_figures_print(&gathered.figures, format, buffer, size, &length);
	glk_gather_end(&gathered);
	if (!err && ret_length)
		*ret_length = length;
	return err;
}
