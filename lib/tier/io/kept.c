/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What links carry is known from an earlier process, and kept for later ones: see link.h and rates.h. */
#include "tier/io/link.h"

#include "driver/driver.h"

#include <stdio.h>

static bool name(struct glk_io *io, int gpu, struct glk_rate *ret)
{
	struct glake_device info = {.sz = sizeof(info)};

	*ret = (struct glk_rate){.version = glk_drv_version(io->drv)};
	if (io->drv->ops->device_info(io->drv, gpu, &info))
		return false;
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", info.uuid);
	return *ret->uuid;
}

static double rate_of(uint32_t mb)
{
	return (double)mb / 1000;
}

static void set(struct glk_io_gpu *g, const struct glk_rate *rate)
{
	g->down.rate = g->up.rate = rate_of(rate->host);
	g->leave.rate = g->come.rate = rate_of(rate->peer);
	for (int turn = 0; turn < GLK_IO_WAYS; turn++)
		if (g->uplink[turn] && g->uplink[turn]->rate < g->down.rate)
			g->uplink[turn]->rate = g->down.rate;
}

void glk_link_recall(struct glk_io *io)
{
	struct glk_rate rates[GLK_IO_GPUS], *some = NULL;
	char path[GLK_RATES_PATH];

	if (!*io->rates || !glk_rates_path(io->rates, path, sizeof(path)))
		return;
	for (int gpu = 0; gpu < io->gpus; gpu++)
		name(io, gpu, &rates[gpu]);
	glk_rates_read(path, rates, (size_t)io->gpus);
	for (int gpu = 0; gpu < io->gpus; gpu++) {
		io->gpu[gpu].measured = rates[gpu].host; /* a line has both */
		if (io->gpu[gpu].measured)
			some = &rates[gpu];
	}
	/* one that lent nothing has links like the others, as far as is known */
	for (int gpu = 0; gpu < io->gpus && some; gpu++)
		set(&io->gpu[gpu], io->gpu[gpu].measured ? &rates[gpu] : some);
}

size_t glk_link_news(struct glk_io *io, struct glk_rate *rates)
{
	size_t count = 0;

	if (!io->news || !*io->rates)
		return 0;
	io->news = false;
	for (int gpu = 0; gpu < io->gpus; gpu++) {
		const struct glk_io_gpu *g = &io->gpu[gpu];

		if (!g->certain || g->due || !name(io, gpu, &rates[count]))
			continue;
		rates[count].host = (uint32_t)(g->down.rate * 1000);
		rates[count++].peer = (uint32_t)(g->leave.rate * 1000);
	}
	return count;
}
