/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_SVG_H
#define GLK_TOOL_SVG_H

/*
 * What the pictures have in common: one SVG file that needs nothing else, readable on light
 * and on dark ground. Classes there always are: ground, quiet (text), grid, axis.
 */
#include <stdio.h>

/* The opening tag, the styles with those of the picture, for light and for dark, and the
 * ground. The picture ends with "</svg>". */
void svg_head(
	FILE *file, double width, double height, const char *light, const char *dark);

/* A text as the content of an element. */
void svg_text(FILE *file, const char *text);

#endif
