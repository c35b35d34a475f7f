/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_SVG_H
#define GLK_TOOL_SVG_H

/*
 * What the pictures have in common: one SVG file that needs nothing else, readable on light
 * and on dark ground. Classes there always are: ground, quiet (text), halo (text that stands out
 * from what lies under it), grid, axis.
 */
#include <stdio.h>

struct svg_style {
	double width, height;
	const char *light, *dark; /* rules of the picture, beside those of all */
};

/* The opening tag, the title, the styles and the ground. The picture ends with "</svg>". */
void svg_head(FILE *file, const struct svg_style *style, const char *title);

/* The beginning of a text, up to its content: where, a class or "", "start", "middle" or "end",
 * and more attributes or "". It ends with "</text>". */
void svg_begin_text(FILE *file, double x, double y, const char *class, const char *anchor,
	const char *more);

/* A text as the content of an element. */
void svg_text(FILE *file, const char *text);

#endif
