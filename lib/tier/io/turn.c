/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who holds the lock of copies, and for how long: see io.h. A mutex goes to whom it suits, which is
 * mostly the thread that has just given it up. So calls are counted before they take it and when they have
 * it, and who gives way waits until all that were on their way then have come. He is on his way himself
 * meanwhile, so two that do so take turns; of all who wait the first one waits for nobody.
 */
#include "tier/io/io.h"

#include "base/clock.h"

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
