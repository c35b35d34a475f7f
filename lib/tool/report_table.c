/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tables of a report: sizes, lifetimes, streams, driver calls. */
#include "tool/report.h"

#include <math.h>

#define SHADES	  7 /* of the picture of lifetimes, as in report.css */
#define SMALL	  9 /* classes of sizes below this share a row: to 512 B */
#define AGES_ROWS ((REPORT_SIZES - SMALL) / 2 + 2)

static void end_table(FILE *file)
{
	fputs("</tbody></table></div>\n", file);
}

/* The head of a row: a power of two as it is, or the small sizes. */
static void put_size(unsigned class, FILE *file)
{
	static const char *const units[] = {
		"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

	if (class < SMALL)
		fputs("<tr><th scope=\"row\">&lt; 512&#160;B</th>", file);
	else
		fprintf(file, "<tr><th scope=\"row\">%u&#160;%s</th>", 1u << class % 10,
			units[class / 10]);
}

/* A cell with an amount of bytes, and its bar. */
static void put_share(FILE *file, uint64_t bytes, uint64_t largest)
{
	report_put_bar(file, largest ? (double)bytes / (double)largest : 0);
	if (bytes)
		report_put_bytes(file, bytes);
	fputs("</td>", file);
}

/* The rows of the table: sizes by class, the small ones all in that of the largest of them. */
static struct report_size row_of(const struct report *report, unsigned class)
{
	struct report_size row = report->size[class];

	for (unsigned i = 0; class == SMALL - 1 && i < class; i++) {
		row.blocks += report->size[i].blocks;
		row.at_peak += report->size[i].at_peak;
		/* of blocks below 512 B that is far from 64 bits */
		row.bytes += report->size[i].bytes;
	}
	return row;
}

static struct report_size largest_of(const struct report *report)
{
	struct report_size most = {0};

	for (unsigned i = SMALL - 1; i < REPORT_SIZES; i++) {
		struct report_size row = row_of(report, i), *size = &row;

		most.blocks = size->blocks > most.blocks ? size->blocks : most.blocks;
		most.bytes = size->bytes > most.bytes ? size->bytes : most.bytes;
		most.at_peak =
			size->at_peak > most.at_peak ? size->at_peak : most.at_peak;
	}
	return most;
}

void report_put_sizes(const struct report *report, FILE *file)
{
	static const char *const columns[] = {
		"Size from", "Blocks", "Bytes, all together", "Live at the peak", NULL};
	struct report_size most = largest_of(report);
	unsigned first = SMALL - 1, last = REPORT_SIZES - 1;

	while (!row_of(report, first).blocks)
		first++;
	while (!row_of(report, last).blocks)
		last--;
	report_put_table(
		file, "Blocks by size: each row up to the size of the next", columns);
	for (unsigned i = first; i <= last; i++) {
		struct report_size row = row_of(report, i);

		put_size(i, file);
		report_put_bar(file, (double)row.blocks / (double)most.blocks);
		if (row.blocks)
			report_put_count(file, row.blocks);
		fputs("</td>", file);
		put_share(file, row.bytes, most.bytes);
		put_share(file, row.at_peak, most.at_peak);
		fputs("</tr>\n", file);
	}
	end_table(file);
}

/* Blocks by lifetime and size, two classes of sizes a row, the small ones in the first. */
struct ages {
	uint64_t blocks[AGES_ROWS][REPORT_AGES], most;
	unsigned top, bottom, left,
		right; /* what is not empty, without those not freed */
};

static void gather_ages(const struct report *report, struct ages *ages)
{
	*ages = (struct ages){.top = AGES_ROWS, .left = REPORT_AGES};
	for (unsigned i = 0; i < REPORT_SIZES; i++) {
		unsigned row = i < SMALL ? 0 : (i - SMALL) / 2 + 1;

		for (unsigned age = 0; age < REPORT_AGES; age++) {
			uint64_t *blocks = &ages->blocks[row][age];

			*blocks += report->size[i].age[age];
			if (!*blocks)
				continue;
			ages->most = *blocks > ages->most ? *blocks : ages->most;
			ages->bottom = row;
			if (ages->top == AGES_ROWS)
				ages->top = row;
			if (age == REPORT_AGE_NEVER)
				continue;
			ages->left = age < ages->left ? age : ages->left;
			ages->right = age > ages->right ? age : ages->right;
		}
	}
}

static void put_age(const struct report *report, unsigned age, FILE *file)
{
	static const char *const times[] = {"&lt; 10 us", "&lt; 100 us", "&lt; 1 ms",
		"&lt; 10 ms", "&lt; 0.1 s", "&lt; 1 s", "&lt; 10 s", "&lt; 100 s",
		"&lt; 1000 s", "longer", "not freed"};
	double limit = 10;

	fputs("<th scope=\"col\">", file);
	if (!report->by_event || age >= REPORT_AGE_LONGER) {
		fputs(times[age], file);
	} else {
		for (unsigned i = 0; i < age; i++)
			limit *= 10;
		fputs("&lt; ", file);
		report_put_figure(file, figure_count(limit));
	}
	fputs("</th>", file);
}

/* Darker by the logarithm: a class of ten blocks can be seen beside one of a million. */
static unsigned shade(uint64_t blocks, uint64_t most)
{
	double share = most > 1 ? log((double)blocks) / log((double)most) : 1;

	return 1 + (unsigned)(share * (SHADES - 1) + 0.5);
}

static void put_age_cell(const struct ages *ages, unsigned row, unsigned age, FILE *file)
{
	uint64_t blocks = ages->blocks[row][age];

	if (!blocks) {
		fputs("<td></td>", file);
		return;
	}
	fprintf(file, "<td class=\"shade%u\">", shade(blocks, ages->most));
	report_put_count(file, blocks);
	fputs("</td>", file);
}

void report_put_ages(const struct report *report, FILE *file)
{
	struct ages ages;

	gather_ages(report, &ages);
	fputs("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Lifetimes\">"
	      "<table class=\"ages\"><caption>Blocks by size and by ",
		file);
	fputs(report->by_event ? "the number of events that they lived for"
			       : "the time that they lived for",
		file);
	fputs("</caption>\n<thead><tr><th scope=\"col\">Size from</th>", file);
	for (unsigned age = ages.left; age <= ages.right; age++)
		put_age(report, age, file);
	put_age(report, REPORT_AGE_NEVER, file);
	fputs("</tr></thead>\n<tbody>\n", file);
	for (unsigned row = ages.top; row <= ages.bottom; row++) {
		put_size(row ? SMALL + 2 * (row - 1) : 0, file);
		for (unsigned age = ages.left; age <= ages.right; age++)
			put_age_cell(&ages, row, age, file);
		put_age_cell(&ages, row, REPORT_AGE_NEVER, file);
		fputs("</tr>\n", file);
	}
	end_table(file);
}

static void put_stream(const struct report_stream *stream, uint64_t most, FILE *file)
{
	if (stream->id)
		fprintf(file, "<tr><th scope=\"row\">0x%llx</th><td>",
			(unsigned long long)stream->id);
	else
		fputs("<tr><th scope=\"row\">default</th><td>", file);
	report_put_count(file, stream->allocations);
	fputs("</td><td>", file);
	report_put_count(file, stream->frees);
	fputs("</td>", file);
	put_share(file, stream->bytes, most);
	fputs("<td>", file);
	report_put_bytes(file, stream->peak);
	fputs("</td><td>", file);
	report_put_bytes(file, stream->at_peak);
	fputs("</td></tr>\n", file);
}

void report_put_streams(const struct report *report, FILE *file)
{
	static const char *const columns[] = {"Stream", "Allocations", "Frees",
		"Bytes, all together", "Its own peak", "Live at the peak", NULL};
	size_t count = report->trace.streams, shown = count;

	if (shown > REPORT_STREAMS)
		shown = REPORT_STREAMS;
	report_put_table(file, "Streams, most bytes first", columns);
	for (size_t i = 0; i < shown; i++)
		put_stream(&report->streams[i], report->streams[0].bytes, file);
	end_table(file);
	if (count > shown)
		fprintf(file, "<p class=\"quiet\">And %zu more streams.</p>\n",
			count - shown);
}

void report_put_calls(const struct report *report, FILE *file)
{
	static const char *const columns[] = {
		"Call", "First pass", "Time", "Second pass", "Time", NULL};
	const struct replay_result *result = &report->result;

	report_put_table(file, "Calls of the driver", columns);
	for (int call = 0; call < GLAKE_CALL_COUNT; call++) {
		uint64_t all = 0;

		for (size_t i = 0; i < result->repeats; i++)
			all += result->repeat[i].driver.calls[call];
		if (!all)
			continue;
		fprintf(file, "<tr><th scope=\"row\">%s</th>", glake_call_name(call));
		for (size_t i = 0; i < result->repeats; i++) {
			const struct glake_driver_stats *driver =
				&result->repeat[i].driver;

			fputs("<td>", file);
			report_put_count(file, driver->calls[call]);
			fputs("</td><td>", file);
			report_put_figure(file, figure_ns((double)driver->ns[call]));
			fputs("</td>", file);
		}
		fputs("</tr>\n", file);
	}
	end_table(file);
}
