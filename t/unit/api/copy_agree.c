/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a copy has borrowed of links is given back once it has ended, by whatever is called next. */
#include "unit/api/copy_rig.h"

#include <stdlib.h>
#include <unistd.h>

#define AGREE MANY, "io.agree=always"

static int look(const struct glake_figure *figure, void *arg)
{
	if (figure->device == 1 && !strcmp(figure->name, "link_borrowed_shares"))
		*(int64_t *)arg = (int64_t)figure->value;
	return 0;
}

static int64_t shares(void)
{
	int64_t found = -1;

	glake_figures(ctx, look, &found);
	return found;
}

static unsigned borrowed(void)
{
	return glk_load_relaxed(&context->io.borrowed);
}

/* A copy that is under way, to be ended. */
static struct glake_copy_job *begin_copy(void)
{
	struct glake_copy_job *job = NULL;

	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, &job), 0, "a copy");
	is_int(borrowed(), 3, "borrows the links of the others");
	glake_trim(ctx, 0, 0, NULL);
	is_int(borrowed(), 3, "as long as it is under way");
	glk_soft_hold(context->drv, 0, stream, false);
	return job;
}

static void given_back(void)
{
	static const char *const settings[] = {AGREE, NULL};
	struct glake_copy_job *job;
	void *far = NULL;

	begin(settings);
	glake_alloc(ctx, 1, MIB, NULL, 0, &far);
	job = begin_copy();
	is_int(shares(), 4, "which the figures tell");
	is_int(glake_copy_wait(job, -1), 0, "a wait for its end");
	is_int(borrowed(), 0, "gives them back");
	is_int(shares(), 0, "as the figures tell");
	glake_copy_close(job);
	job = begin_copy();
	sync_stream();
	is_int(state_of(job).stage, GLAKE_COPY_DONE, "a question");
	is_int(borrowed(), 0, "does too");
	glake_copy_close(job);
	glake_copy_close(begin_copy());
	sync_stream();
	glake_trim(ctx, 0, 0, NULL);
	is_int(borrowed(), 0, "and a trim");
	glake_copy_close(begin_copy());
	sync_stream();
	glake_copy(ctx, gpu, host, 1, stream, GLAKE_COPY_DIRECT, NULL);
	is_int(borrowed(), 0, "and another copy");
	glake_copy_close(begin_copy());
	sync_stream();
	is_int(glake_suspend(ctx, 0, NULL) | glake_resume(ctx, 0, NULL), 0, "a suspension");
	is_int(borrowed(), 0, "too");
	glake_free(ctx, far, NULL);
	end();
}

/* Two contexts of a process are to each other as two processes. */
static void contexts(void)
{
	static const char *const settings[] = {AGREE, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *second = NULL;
	void *theirs = NULL;

	begin(settings);
	ok(round_trip(3 * MIB) && context->io.gpu[1].relayed, "all links for one context");
	glk_io_rest(&context->io);
	context->io.gpu[1].relayed = context->io.gpu[2].relayed = 0;
	if (glake_open(&options, &second) || glake_alloc(second, 1, MIB, NULL, 0, &theirs))
		tap_bail("no second context");
	ok(round_trip(3 * MIB) && !context->io.gpu[1].relayed && context->io.gpu[2].relayed,
		"but not that of a GPU which another one uses");
	glake_free(second, theirs, NULL);
	glake_close(second, NULL);
	ok(round_trip(3 * MIB) && context->io.gpu[1].relayed, "until that one is closed");
	end();
}

/* A GPU that cannot be named is nobody's to agree on. */
static void nameless(void)
{
	static const char *const settings[] = {AGREE, NULL};

	begin(settings);
	glk_fault_set(context->drv, "device_info:from=1:err=EIO");
	ok(round_trip(3 * MIB) && !borrowed(), "where GPUs have no names nothing is borrowed");
	ok(context->io.gpu[1].relayed, "and copies go over all links");
	glk_fault_set(context->drv, "off");
	end();
}

int main(void)
{
	char folder[] = "/tmp/glake-copy-XXXXXX", name[64];

	tap_plan_later();
	copy_rig_start();
	if (!mkdtemp(folder))
		tap_bail("no folder");
	setenv("XDG_RUNTIME_DIR", folder, 1);
	given_back();
	contexts();
	nameless();
	snprintf(name, sizeof(name), "%s/glake/links", folder);
	ok(!unlink(name), "there is a file to agree by");
	*strrchr(name, '/') = '\0';
	rmdir(name);
	rmdir(folder);
	return tap_done();
}
