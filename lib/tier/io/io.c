/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the copies of a context share: who lends its link, the lock and whose turn it is, links that were borrowed.
 * See io.h.
 *
 * Turns	a mutex goes to whom it suits, which is mostly the thread that has just given it up. So calls are counted
 *		before they take the lock and when they have it, and who gives way waits until all that were on
 *		their way then have come. He is on his way himself meanwhile, so two that do so take turns; of all
 *		who wait the first one waits for nobody
 * Borrowed	what is borrowed for a copy stays so while copies are on their way, and is given back by the next
 *		call that finds they have ended
 */
#include "tier/io/io.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "tier/io/link.h"
#include "tier/io/stage.h"

#include <errno.h>
#include <string.h>

/* A number and what follows it; -1: none. */
static int number(const char **text)
{
	int value = 0, digits = 0;

	for (; **text >= '0' && **text <= '9' && digits < 4; (*text)++, digits++)
		value = value * 10 + (**text - '0');
	return digits ? value : -1;
}

static uint64_t bits(int first, int last)
{
	return (last == 63 ? UINT64_MAX : (UINT64_C(1) << (last + 1)) - 1) &
		~((UINT64_C(1) << first) - 1);
}

/* One part of the list; the text behind it, or NULL. */
static const char *part(const char *at, uint64_t *lend)
{
	int first = number(&at), last = first;

	if (*at == '-') {
		at++;
		last = number(&at);
	}
	if (first < 0 || last < first || last >= GLK_IO_GPUS)
		return NULL;
	*lend |= bits(first, last);
	if (*at == ',')
		return at[1] ? at + 1 : NULL;
	return *at ? NULL : at;
}

int glk_io_lend(const char *text, int gpus, uint64_t *ret_lend)
{
	const char *at = text;
	uint64_t lend = 0;

	if (!strcmp(text, "all"))
		lend = UINT64_MAX;
	while (!lend || at != text) {
		if (!*at)
			break;
		at = part(at, &lend);
		if (!at)
			return glk_error(-EINVAL, GLAKE_ERROR_CONFIG,
				"io.lend = %s: it is 'all', or numbers of GPUs as '0,2-3'",
				text);
	}
	/* GPUs that are not there lend nothing */
	*ret_lend = lend & bits(0, gpus - 1);
	return 0;
}

int glk_io_lend_check(const char *text)
{
	uint64_t lend;

	return glk_io_lend(text, GLK_IO_GPUS, &lend);
}

/* GPUs of the software device are each process's own. */
static void agree(struct glk_io *io, const struct glk_conf *conf)
{
	bool is_real = strcmp(glk_drv_name(io->drv), "soft") != 0;
	bool on = conf->io_agree == GLK_AGREE_ALWAYS ||
		(conf->io_agree == GLK_AGREE_AUTO && io->lend && is_real);

	glk_agree_init(&io->agree, on, conf->io_agree == GLK_AGREE_ALWAYS,
		conf->io_lend_to ? io->lend : 0);
}

int glk_io_init(struct glk_io *io, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int gpus)
{
	uint64_t named;
	int err;

	*io = (struct glk_io){.drv = drv,
		.pool = pool,
		.gpus = gpus,
		.piece = conf->io_piece,
		.staging = conf->io_staging,
		.least = conf->io_least};
	err = gpus ? glk_io_lend(conf->io_lend, gpus, &io->lend) : 0;
	if (err)
		return err;
	if (gpus && strcmp(conf->io_lend, "all") &&
		!glk_io_lend(conf->io_lend, GLK_IO_GPUS, &named) && named != io->lend)
		glk_warn(
			"io.lend = %s: of these GPUs those that are not there lend nothing",
			conf->io_lend);
	glk_lock_init(&io->lock, GLK_RANK_COPY);
	pthread_cond_init(&io->passed, NULL);
	agree(io, conf);
	err = glk_bounce_init(&io->bounce, drv, pool, conf, gpus);
	if (err || !io->lend)
		goto out;
	io->gpu = glk_region_new((size_t)gpus * sizeof(*io->gpu));
	io->groups = glk_region_new(GLK_IO_WAYS * GLK_IO_GPUS * sizeof(*io->groups));
	if (!io->gpu || !io->groups)
		err = -ENOMEM;
out:
	if (err)
		glk_io_fini(io);
	return err;
}

void glk_io_fini(struct glk_io *io)
{
	if (!io->drv)
		return;
	glk_bounce_fini(&io->bounce);
	if (io->gpu)
		glk_stage_fini(io);
	glk_agree_fini(&io->agree);
	glk_link_probe_end(io);
	if (io->gpu)
		glk_region_free(io->gpu, (size_t)io->gpus * sizeof(*io->gpu));
	if (io->groups)
		glk_region_free(
			io->groups, GLK_IO_WAYS * GLK_IO_GPUS * sizeof(*io->groups));
	pthread_cond_destroy(&io->passed);
	glk_lock_fini(&io->lock);
	*io = (struct glk_io){0};
}

/* ---- Turns ---- */

static void has_come(struct glk_io *io)
{
	io->come++;
	if (io->waiting)
		pthread_cond_broadcast(&io->passed);
}

void glk_io_enter(struct glk_io *io)
{
	glk_add_relaxed(&io->coming, 1u);
	glk_lock(&io->lock);
	has_come(io);
}

void glk_io_pause(struct glk_io *io)
{
	io->planning++;
	glk_lock_pause(&io->lock);
}

void glk_io_resume(struct glk_io *io)
{
	glk_add_relaxed(&io->coming, 1u);
	glk_lock_resume(&io->lock);
	io->planning--;
	has_come(io);
}

static void let_pass(struct glk_io *io)
{
	unsigned before = glk_add_relaxed(&io->coming, 1u);

	io->planning++;
	io->waiting++;
	while ((int)(before - io->come) > 0)
		glk_lock_wait(&io->lock, &io->passed);
	io->waiting--;
	io->planning--;
	has_come(io);
}

void glk_io_give_way(struct glk_io *io)
{
	if (glk_clock_ns() - io->since < GLK_IO_TURN_NS)
		return;
	if (glk_load_relaxed(&io->coming) != io->come) {
		let_pass(io);
	} else {
		glk_io_pause(io);
		glk_io_resume(io);
	}
	io->since = glk_clock_ns();
}

/* ---- What is borrowed ---- */

void glk_io_rest(struct glk_io *io)
{
	if (!glk_load_relaxed(&io->borrowed))
		return;
	/* who holds the lock then may wait for a stream, and that one for the caller */
	if (glk_add_seq_cst(&io->queueing, 0)) {
		glk_xchg_seq_cst(&io->owed, true);
		if (glk_add_seq_cst(&io->queueing, 0))
			return;
	}
	glk_io_enter(io);
	for (int gpu = 0; gpu < io->gpus; gpu++)
		for (int turn = 0; turn < GLK_IO_WAYS; turn++)
			glk_link_rest(io, gpu, turn);
	glk_unlock(&io->lock);
}

void glk_io_use(struct glk_io *io, int gpu)
{
	glk_io_enter(io);
	glk_link_use(io, gpu);
	glk_unlock(&io->lock);
}

void glk_io_forked(struct glk_io *io)
{
	glk_agree_fini(&io->agree);
}
