/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The public face of planners of serving engines: see glake/planner.h. */
#include "kv/planner.h"
#include "base/error.h"
#include "base/sized.h"

#include <errno.h>
#include <inttypes.h>

static int check(const struct glake_planner *p)
{
	return p ? 0 : glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no planner");
}

static int check_request(const struct glake_planner *p, uint32_t id)
{
	int err = check(p);

	if (!err && (id >= p->o.requests || !p->request[id].live || p->request[id].ended))
		err = glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "there is no request %" PRIu32, id);
	return err;
}

static int is_wrong(const char *what, uint64_t has, uint64_t most)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"a planner of %" PRIu64 " %s: 1 to %" PRIu64, has, what, most);
}

/* Also no NaN. */
static bool is_cost(double ns)
{
	return ns >= 0 && ns < 1e18;
}

static int check_options(const struct glake_planner_options *o)
{
	const struct glake_planner_cost *c = &o->cost;

	if (!o->layers || o->layers > GLAKE_PLANNER_LAYERS_MAX)
		return is_wrong("layers", o->layers, GLAKE_PLANNER_LAYERS_MAX);
	if (!o->requests || o->requests > GLAKE_PLANNER_REQUESTS_MAX)
		return is_wrong("requests", o->requests, GLAKE_PLANNER_REQUESTS_MAX);
	if (!o->layer_bytes || o->layer_bytes > UINT32_MAX)
		return is_wrong("bytes a token and layer", o->layer_bytes, UINT32_MAX);
	if (!o->memory || o->memory > UINT64_MAX / 2)
		return is_wrong("bytes", o->memory, UINT64_MAX / 2);
	if (!(o->out > 0) || !(o->back > 0) || o->out > 1e9 || o->back > 1e9)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "a link carries something both ways");
	if (!is_cost(c->prompt) || !is_cost(c->prompt_token) ||
		!is_cost(c->prompt_square) || !is_cost(c->step) ||
		!is_cost(c->step_sequence) || !is_cost(c->step_token))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a cost is 0 or more ns");
	if (o->policy < GLAKE_PLANNER_LAYERS || o->policy > GLAKE_PLANNER_SWAP)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "there is no policy %d", o->policy);
	return 0;
}

int glake_planner_open(
	const struct glake_planner_options *options, struct glake_planner **ret_planner)
{
	struct glake_planner_options o = {.sz = sizeof(o)};
	int err;

	if (!options || !ret_planner)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a planner of nothing");
	err = glk_sized_in(options, &o, sizeof(o));
	if (!err)
		err = check_options(&o);
	return err ? err : glk_planner_new(&o, ret_planner);
}

void glake_planner_close(struct glake_planner *planner)
{
	glk_planner_free(planner);
}

int glake_planner_submit(struct glake_planner *planner, int64_t now,
	const struct glake_planner_request *request, uint32_t *ret_id)
{
	struct glake_planner_request r = {.sz = sizeof(r)};
	int err = check(planner);

	if (!err && (!request || !ret_id))
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no request");
	if (!err)
		err = glk_sized_in(request, &r, sizeof(r));
	if (!err && (!r.prompt || !r.generated || r.first < 0 || r.token < 0))
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a request has a token or more of each kind, and is in no hurry "
			"before its time");
	return err ? err : glk_planner_submit(planner, now, &r, ret_id);
}

int glake_planner_end(struct glake_planner *planner, int64_t now, uint32_t id)
{
	int err = check_request(planner, id);

	return err ? err : glk_planner_end(planner, now, id);
}

int glake_planner_next(
	struct glake_planner *planner, int64_t now, struct glake_planner_work *ret_work)
{
	struct glake_planner_work work;
	int err = check(planner);

	if (!err && !ret_work)
		err = glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "no place for what is to be done");
	/* a size that is wrong is told before anything is under way */
	if (!err)
		err = glk_sized_out(ret_work, &planner->work, sizeof(work));
	if (!err)
		err = glk_planner_next(planner, now, &work);
	return err ? err : glk_sized_out(ret_work, &work, sizeof(work));
}

int glake_planner_done(struct glake_planner *planner, int64_t now)
{
	int err = check(planner);

	return err ? err : glk_planner_done(planner, now);
}

int glake_planner_move(
	struct glake_planner *planner, int64_t now, struct glake_planner_copy *ret_move)
{
	struct glake_planner_copy move = {0};
	int err = check(planner);

	if (!err && !ret_move)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for a move");
	if (!err)
		err = glk_sized_out(ret_move, &move, sizeof(move));
	if (!err)
		err = glk_planner_move(planner, now, &move);
	return err ? err : glk_sized_out(ret_move, &move, sizeof(move));
}

int glake_planner_moved(struct glake_planner *planner, int64_t now, uint32_t id,
	uint32_t layer, uint32_t layers, int result)
{
	int err = check(planner);

	/* one that has ended may have layers on their way */
	if (!err &&
		(id >= planner->o.requests || !planner->request[id].live || !layers ||
			layer >= planner->o.layers ||
			layers > planner->o.layers - layer || result > 0))
		err = -EINVAL;
	if (!err)
		err = glk_planner_moved(planner, now, id, layer, layers, result);
	if (err && planner)
		glk_error(err, GLAKE_ERROR_INVAL,
			"layers %" PRIu32 " and %" PRIu32 " on of request %" PRIu32
			" are not on their way",
			layer, layers, id);
	return err;
}

int glake_planner_memory(struct glake_planner *planner, int64_t now, uint64_t bytes)
{
	int err = check(planner);

	if (!err)
		glk_planner_memory(planner, now, bytes);
	return err;
}

int glake_planner_state_get(const struct glake_planner *planner, uint32_t id,
	struct glake_planner_state *ret_state)
{
	int err = check_request(planner, id);
	struct glake_planner_state state;
	const struct glk_planner_request *r;

	if (!err && !ret_state)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for a state");
	if (err)
		return err;
	r = &planner->request[id];
	state = (struct glake_planner_state){.stage = r->stage,
		.tokens = r->tokens,
		.here = r->layers[GLK_LAYER_HERE] + r->layers[GLK_LAYER_TO_LEAVE] +
			r->layers[GLK_LAYER_LEAVES],
		.flags = r->flags |
			(glk_planner_has_place(planner, r) ? 0 : GLAKE_PLANNER_NO_ROOM),
		.until = r->until,
		.ends = r->ends};
	return glk_sized_out(ret_state, &state, sizeof(state));
}

int glake_planner_figures_get(
	const struct glake_planner *planner, struct glake_planner_figures *ret_figures)
{
	struct glake_planner_figures f;
	int err = check(planner);

	if (!err && !ret_figures)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL, "no place for figures");
	if (err)
		return err;
	f = planner->figures;
	f.waiting = planner->waits.count;
	f.running = planner->runs.count;
	f.away = planner->away.count;
	f.memory = planner->o.memory;
	f.used = planner->used;
	f.host = planner->host;
	f.prompt_factor = planner->factor[GLAKE_PLANNER_PROMPT];
	f.step_factor = planner->factor[GLAKE_PLANNER_STEP];
	return glk_sized_out(ret_figures, &f, sizeof(f));
}
