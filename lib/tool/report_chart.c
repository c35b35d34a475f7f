/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The two pictures of a report. Curves are drawn into a box that is stretched to the width of the
 * window; what is written beside them is text of the page, placed in percent, so that it keeps
 * its size on a telephone and on paper.
 */
#include "tool/report.h"

#include <math.h>

#define WIDTH  4000.0 /* of the box of the curves */
#define HEIGHT 1000.0
#define TICKS  6

/* An axis from `low` on: its tick number i stands at low + i * step and says tick / unit. */
struct axis {
	double low, high, step, unit;
	const char *name; /* of the unit */
};

static double share_of(const struct axis *axis, double value)
{
	return (value - axis->low) / (axis->high - axis->low);
}

/* Ends with a tick above the highest value. */
static struct axis rising_axis(double low, double highest, double unit, const char *name)
{
	struct axis axis = {.low = low, .unit = unit, .name = name};

	axis.step = figure_round_up((highest - low) / unit / (TICKS - 1)) * unit;
	axis.high = low + (floor((highest - low) * 1.04 / axis.step) + 1) * axis.step;
	return axis;
}

static struct axis memory_axis(const struct report *report)
{
	uint64_t highest = report->result.peak_reserved;
	const char *name;
	double unit;

	if (report->trace.peak_live > highest)
		highest = report->trace.peak_live;
	name = figure_unit(highest, &unit);
	return rising_axis(0, (double)highest, unit, name);
}

/* Ends where the job does. */
static struct axis time_axis(const struct report *report)
{
	static const struct {
		double from_us, us;
		const char *name;
	} units[] = {{10800e6, 3600e6, "h"}, {600e6, 60e6, "min"}, {1e6, 1e6, "s"},
		{1e3, 1e3, "ms"}, {0, 1, "us"}};
	struct axis axis = {.high = report_end(report), .unit = 1, .name = "events"};
	size_t i = 0;

	if (!report->by_event) {
		while (axis.high < units[i].from_us)
			i++;
		axis.unit = units[i].us;
		axis.name = units[i].name;
	}
	axis.step = figure_round_up(axis.high / axis.unit / TICKS) * axis.unit;
	return axis;
}

static size_t ticks_of(const struct axis *axis)
{
	return (size_t)((axis->high - axis->low) / axis->step + 1e-6) + 1;
}

static double tick_of(const struct axis *axis, size_t i)
{
	return axis->low + (double)i * axis->step;
}

static void put_ticks(const struct axis *axis, bool across, FILE *file)
{
	fprintf(file, "<div class=\"%s\">", across ? "x" : "y");
	for (size_t i = 0; i < ticks_of(axis); i++) {
		/* 1.1 - 1 and the like are not exact */
		double value = round(tick_of(axis, i) / axis->unit * 1e6) / 1e6;

		fprintf(file, "<span style=\"%s:%.2f%%\">", across ? "left" : "bottom",
			share_of(axis, tick_of(axis, i)) * 100);
		report_put_figure(file, figure_count(value));
		fputs("</span>", file);
	}
	fputs("</div>\n", file);
}

/* The box of the curves, with lines at the ticks of the axis that goes up. */
static void begin_box(const struct axis *up, const char *label, FILE *file)
{
	fprintf(file,
		"<div class=\"plot\"><svg viewBox=\"0 0 %g %g\" preserveAspectRatio=\"none\" "
		"role=\"img\" aria-label=\"%s\">\n<path class=\"grid\" d=\"",
		WIDTH, HEIGHT, label);
	for (size_t i = 0; i < ticks_of(up); i++)
		fprintf(file, "M0 %.1fH%g", (1 - share_of(up, tick_of(up, i))) * HEIGHT,
			WIDTH);
	fputs("\"/>\n", file);
}

/* Nothing changes between two events, so a curve is steps, to the end of the job. */
static void put_steps(const struct report *report, const struct axis *time,
	const struct axis *memory, bool reserved, bool area, FILE *file)
{
	fprintf(file, "M0 %g", HEIGHT);
	for (size_t i = 0; i < report->result.samples; i++) {
		const struct replay_sample *sample = &report->result.sample[i];
		uint64_t bytes = reserved ? sample->reserved : sample->live;

		fprintf(file, "H%.1fV%.1f",
			share_of(time, report_at(report, sample->event)) * WIDTH,
			(1 - share_of(memory, (double)bytes)) * HEIGHT);
	}
	fprintf(file, "H%g", WIDTH);
	if (area)
		fprintf(file, "V%gZ", HEIGHT);
}

static void put_curve(const struct report *report, const struct axis *time,
	const struct axis *memory, const char *class, FILE *file)
{
	bool between = class[0] == 'b', reserved = between || class[0] == 'r';
	bool area = between || class[0] == 'a';

	fprintf(file, "<path class=\"%s\" d=\"", class);
	put_steps(report, time, memory, reserved, area, file);
	if (between)
		put_steps(report, time, memory, false, true, file);
	fputs("\"/>\n", file);
}

void report_put_timeline(const struct report *report, FILE *file)
{
	static const char *const curves[] = {"between", "area", "live", "reserved"};
	struct axis memory = memory_axis(report), time = time_axis(report);

	fprintf(file,
		"<figure class=\"chart\" id=\"timeline\">\n"
		"<p class=\"legend\"><span class=\"key live\">live</span> "
		"<span class=\"key between\">reserved, not live</span> "
		"<span class=\"key reserved\">reserved</span></p>\n"
		"<p class=\"unit\">%s</p>\n",
		memory.name);
	put_ticks(&memory, false, file);
	begin_box(&memory, "Live and reserved memory over the time of the job", file);
	for (size_t i = 0; i < sizeof(curves) / sizeof(curves[0]); i++)
		put_curve(report, &time, &memory, curves[i], file);
	fputs("</svg><div id=\"cursor\" hidden></div></div>\n", file);
	put_ticks(&time, true, file);
	fprintf(file,
		"<figcaption>%s%s</figcaption>\n</figure>\n"
		"<p id=\"moments\" hidden><label for=\"moment\">At</label> "
		"<input type=\"range\" id=\"moment\" min=\"0\" max=\"%zu\" value=\"0\"> "
		"<output id=\"said\" for=\"moment\"></output></p>\n",
		report->by_event ? "" : "time of the job, ", time.name,
		report->result.samples - 1);
}

static double all_ms(const struct report_point *point)
{
	return point->first_ms + point->later_ms;
}

/* Whether another point needs less of the one and not more of the other. */
static bool is_beaten(const struct report *report, const struct report_point *point)
{
	for (size_t i = 0; i < report->points; i++) {
		const struct report_point *other = &report->point[i];

		if (other->reserved <= point->reserved &&
			all_ms(other) <= all_ms(point) &&
			(other->reserved < point->reserved ||
				all_ms(other) < all_ms(point)))
			return true;
	}
	return false;
}

/* The next point of the frontier with more memory than `above`, or NULL. */
static const struct report_point *next_of_front(
	const struct report *report, uint64_t above)
{
	const struct report_point *next = NULL;

	for (size_t i = 0; i < report->points; i++) {
		const struct report_point *point = &report->point[i];

		if (point->reserved > above && !is_beaten(report, point) &&
			(!next || point->reserved < next->reserved))
			next = point;
	}
	return next;
}

static void put_front(const struct report *report, const struct axis *ratio,
	const struct axis *time, FILE *file)
{
	const struct report_point *point = next_of_front(report, 0);
	char letter = 'M';

	fputs("<path class=\"front\" d=\"", file);
	for (; point; point = next_of_front(report, point->reserved), letter = 'L')
		fprintf(file, "%c%.1f %.1f", letter,
			share_of(ratio, report_ratio(report, point->reserved)) * WIDTH,
			(1 - share_of(time, all_ms(point))) * HEIGHT);
	fputs("\"/>\n</svg>\n", file);
}

/* The lines of recorded allocators, of which the time is not known. */
static void put_recorded(
	const struct report *report, const struct axis *ratio, FILE *file)
{
	for (size_t i = 0; i < report->options->recorded; i++) {
		const struct report_recorded *record = &report->options->record[i];
		double x = share_of(ratio, report_ratio(report, record->bytes)) * 100;

		fprintf(file,
			"<div class=\"recorded%s\" style=\"left:%.2f%%\"><span "
			"style=\"top:%.1fem\">",
			x > 60 ? " near" : "", x, (double)i * 1.5);
		report_put_text(file, record->name);
		fputs("</span></div>\n", file);
	}
}

/* A point has its target beside it unless that of another one stands there. */
static void put_points(const struct report *report, const struct axis *ratio,
	const struct axis *time, FILE *file)
{
	double labels[REPORT_POINTS_MAX][2];
	size_t labelled = 0;

	for (size_t i = 0; i < report->points; i++) {
		const struct report_point *point = &report->point[i];
		double x = share_of(ratio, report_ratio(report, point->reserved)) * 100;
		double y = share_of(time, all_ms(point)) * 100;
		bool free = true;

		for (size_t k = 0; k < labelled; k++)
			free = free &&
				(fabs(labels[k][0] - x) > 14 ||
					fabs(labels[k][1] - y) > 9);
		fprintf(file,
			"<div class=\"point%s%s\" style=\"left:%.2f%%;bottom:%.2f%%\" "
			"title=\"target %s\">",
			point->chosen ? " chosen" : "", x > 80 ? " near" : "", x, y,
			report_target(point).text);
		if (free || point->chosen) {
			fprintf(file, "<span>%s</span>", report_target(point).text);
			labels[labelled][0] = x;
			labels[labelled++][1] = y;
		}
		fputs("</div>\n", file);
	}
}

static void put_picture(const struct report *report, FILE *file)
{
	const struct report_options *options = report->options;
	double least = 1, most = 1.001, slowest = 0.1;
	struct axis ratio, time;

	for (size_t i = 0; i < report->points; i++) {
		double over = report_ratio(report, report->point[i].reserved);

		most = fmax(most, over);
		/* of a replay that was not served */
		least = fmin(least, floor(over * 10) / 10);
		slowest = fmax(slowest, all_ms(&report->point[i]));
	}
	for (size_t i = 0; i < options->recorded; i++)
		most = fmax(most, report_ratio(report, options->record[i].bytes));
	ratio = rising_axis(least, most, 1, "");
	time = rising_axis(0, slowest, 1, "ms");
	fputs("<figure class=\"chart\" id=\"frontier\">\n<p class=\"unit\">ms</p>\n",
		file);
	put_ticks(&time, false, file);
	begin_box(&time, "Reserved memory against driver time", file);
	put_front(report, &ratio, &time, file);
	put_recorded(report, &ratio, file);
	put_points(report, &ratio, &time, file);
	fputs("</div>\n", file);
	put_ticks(&ratio, true, file);
	fputs("<figcaption>reserved, as a multiple of peak live, against driver time of both "
	      "passes</figcaption>\n</figure>\n",
		file);
}

static void put_row(
	const struct report *report, uint64_t bytes, uint64_t most, FILE *file)
{
	fputs("</th>", file);
	report_put_bar(file, (double)bytes / (double)most);
	report_put_bytes(file, bytes);
	fprintf(file, "</td><td>x%.4f</td>", report_ratio(report, bytes));
}

static void put_rows(const struct report *report, FILE *file)
{
	const struct report_options *options = report->options;
	uint64_t most = 1;

	for (size_t i = 0; i < options->recorded; i++)
		most = options->record[i].bytes > most ? options->record[i].bytes : most;
	for (size_t i = 0; i < report->points; i++)
		most = report->point[i].reserved > most ? report->point[i].reserved
							: most;
	for (size_t i = 0; i < options->recorded; i++) {
		fputs("<tr><th scope=\"row\">recorded: ", file);
		report_put_text(file, options->record[i].name);
		put_row(report, options->record[i].bytes, most, file);
		fputs("<td>not known</td><td>not known</td></tr>\n", file);
	}
	for (size_t i = 0; i < report->points; i++) {
		const struct report_point *point = &report->point[i];

		fprintf(file, "<tr><th scope=\"row\">glake, target %s%s%s",
			report_target(point).text, point->chosen ? ", as configured" : "",
			point->ok ? "" : ": requests were not served");
		put_row(report, point->reserved, most, file);
		fputs("<td>", file);
		report_put_figure(file, figure_ns(point->first_ms * 1e6));
		fputs("</td><td>", file);
		report_put_figure(file, figure_ns(point->later_ms * 1e6));
		fputs("</td></tr>\n", file);
	}
}

void report_put_frontier(const struct report *report, FILE *file)
{
	static const char *const columns[] = {"Allocator", "Reserved", "Over peak live",
		"Driver time, first pass", "Second pass", NULL};

	if (report->points > 1 || report->options->recorded)
		put_picture(report, file);
	report_put_table(file, "Reserved memory and driver time", columns);
	put_rows(report, file);
	fputs("</tbody></table></div>\n", file);
}
