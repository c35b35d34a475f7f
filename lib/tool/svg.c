/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The parts that all pictures share: see svg.h. */
#include "tool/svg.h"

void svg_text(FILE *file, const char *text)
{
	for (; *text; text++) {
		if (*text == '<' || *text == '>' || *text == '&')
			fprintf(file, "&#%d;", *text);
		else if ((unsigned char)*text < ' ')
			fputc('?', file);
		else
			fputc(*text, file);
	}
}

void svg_begin_text(FILE *file, double x, double y, const char *class, const char *anchor,
	const char *more)
{
	fprintf(file, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>",
		class, x, y, anchor, more);
}

void svg_head(FILE *file, const struct svg_style *style, const char *title)
{
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 %g %g\" "
		"width=\"%g\" height=\"%g\" font-family=\"system-ui, sans-serif\" "
		"font-size=\"13\">\n<title>",
		style->width, style->height, style->width, style->height);
	svg_text(file, title);
	fprintf(file,
		"</title>\n<style>\n"
		".ground { fill: #ffffff } text { fill: #1f2328 } .quiet { fill: #59636e }\n"
		".grid { stroke: #d1d9e0; stroke-width: 1 }\n"
		".axis { stroke: #59636e; stroke-width: 1 }\n"
		".halo { paint-order: stroke; stroke: #ffffff; stroke-width: 3; "
		"stroke-linejoin: round }\n"
		"%s"
		"@media (prefers-color-scheme: dark) {\n"
		".ground { fill: #0d1117 } text { fill: #e6edf3 } .quiet { fill: #9198a1 }\n"
		".grid { stroke: #30363d } .axis { stroke: #9198a1 } .halo { stroke: #0d1117 }\n"
		"%s"
		"}\n"
		"</style>\n"
		"<rect class=\"ground\" width=\"%g\" height=\"%g\"/>\n",
		style->light, style->dark, style->width, style->height);
}
