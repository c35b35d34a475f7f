/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A look of glakectl top for programs: one line, bytes and rates as numbers. */
#include "base/json.h"
#include "tool/top.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static void add_rates(struct glk_json *json, const struct top_row *row)
{
	/* what is no number is null */
	glk_json_add_figure(json, "allocs_per_s", row->known ? row->allocs_s : NAN, 6);
	glk_json_add_figure(json, "misses_per_s", row->known ? row->misses_s : NAN, 6);
	glk_json_add_figure(
		json, "hit_share", row->known && row->hit >= 0 ? row->hit : NAN, 6);
	glk_json_key(json, "rungs_since");
	glk_json_object(json);
	for (size_t i = 0; i < row->rungs; i++)
		glk_json_add_uint(json, row->rung[i].name, row->rung[i].since);
	glk_json_end(json);
}

static void add_row(struct glk_json *json, const struct top_row *row)
{
	glk_json_object(json);
	glk_json_add_int(json, "pid", row->pid);
	glk_json_add_text(json, "program", row->program);
	if (row->err) {
		glk_json_add_text(json, "failed", row->why);
	} else if (row->gpu >= 0) {
		glk_json_add_int(json, "gpu", row->gpu);
		glk_json_add_uint(json, "live_bytes", row->live);
		glk_json_add_uint(json, "reserved_bytes", row->reserved);
		glk_json_add_uint(json, "away_bytes", row->away);
		glk_json_add_uint(json, "placed_bytes", row->placed);
		glk_json_add_uint(json, "host_held_bytes", row->host_held);
		add_rates(json, row);
	}
	glk_json_end(json);
}

int top_print_json(const struct top_sample *sample)
{
	struct glk_json json;

	glk_json_init(&json, stdout, 0);
	glk_json_object(&json);
	glk_json_key(&json, "rows");
	glk_json_array(&json);
	for (size_t i = 0; i < sample->count; i++)
		add_row(&json, &sample->rows[i]);
	glk_json_end(&json);
	glk_json_add_text(&json, "ended", sample->ended);
	glk_json_end(&json);
	return glk_json_fini(&json) ? -EIO : 0;
}
