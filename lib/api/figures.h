/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_FIGURES_H
#define GLK_API_FIGURES_H

/* Figures of contexts, gathered and written. Inside this folder. */
#include "watch/figures.h"

struct glake;

struct glk_gathered {
	struct glk_figures figures;
	struct glk_figures_context
		*contexts; /* and what is behind them: a region of `size` */
	struct glk_figures_gpu *gpus;
	struct glk_figures_node *nodes;
	size_t size;
};

/* Of open contexts, in this order. 0; -ESTALE, -ENODEV, -ENOMEM with a record. */
int glk_gather(struct glake *const *handles, size_t count, struct glk_gathered *ret);
void glk_gather_end(struct glk_gathered *gathered);

/* As glake_figures_text(). */
int glk_figures_print(const struct glk_figures *figures, int format, char *buffer,
	size_t size, size_t *ret_length);

#endif
