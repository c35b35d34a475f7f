/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page of a report: one file of HTML that asks for nothing else, and says so itself by its
 * policy of content. Everything can be read without its script, which only tells what lies under
 * the pointer.
 */
#include "tool/report.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>

static void put_lines(FILE *file, const char *const *lines)
{
	for (; *lines; lines++)
		fprintf(file, "%s\n", *lines);
}

static void put_head(const struct report *report, FILE *file)
{
	fprintf(file,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		"style-src 'unsafe-inline'; script-src '%s'; base-uri 'none'; "
		"form-action 'none'\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
		report_script_hash);
	report_put_text(file, report->trace.name);
	fputs(": GPU memory</title>\n<style>\n", file);
	put_lines(file, report_style);
	fputs("</style>\n</head>\n<body>\n<main>\n<h1><bdi>", file);
	report_put_text(file, report->trace.name);
	fputs("</bdi>: GPU memory</h1>\n", file);
}

static uint64_t calls_of(const struct replay_repeat *pass)
{
	uint64_t calls = 0;

	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		calls += pass->driver.calls[i];
	return calls;
}

static const char *device_of(const struct report *report)
{
	return report->result.backend[0] == 's' ? "the software device" : "CUDA";
}

static void put_number(FILE *file, uint64_t count, const char *one)
{
	report_put_count(file, count);
	fprintf(file, " %s%s", one, count == 1 ? "" : "s");
}

static void put_job(const struct report *report, FILE *file)
{
	const struct trace *trace = &report->trace;

	fputs("<p>The job made ", file);
	put_number(file, trace->blocks, "allocation");
	fputs(" and ", file);
	put_number(file, trace->count - trace->blocks, "free");
	fputs(" on ", file);
	put_number(file, trace->streams, "stream");
	fputs(" and ", file);
	put_number(file, trace->threads, "thread");
	if (!report->by_event) {
		fputs(", in ", file);
		report_put_figure(file, figure_ns((double)trace->job_us * 1e3));
	}
	fputs(". At its peak ", file);
	report_put_bytes(file, trace->peak_live);
	fputs(" were live; its largest block has ", file);
	report_put_bytes(file, report->largest);
	fputs(".", file);
	if (trace->header.program[0]) {
		fputs(" It was recorded from <code><bdi>", file);
		report_put_text(file, trace->header.program);
		fputs("</bdi></code>.", file);
	}
	fputs("</p>\n", file);
}

static void put_passes(const struct report *report, FILE *file)
{
	const struct replay_result *result = &report->result;
	const struct replay_repeat *first = &result->repeat[0];
	const struct replay_repeat *last = &result->repeat[result->repeats - 1];

	fprintf(file, "<p>Replayed on %s, glake reserved ", device_of(report));
	report_put_bytes(file, result->peak_reserved);
	fprintf(file, " for it, <strong>x%.4f</strong> of that. The first pass made ",
		report_ratio(report, result->peak_reserved));
	put_number(file, calls_of(first), "driver call");
	fputs(", which took ", file);
	report_put_figure(file, figure_ns((double)first->driver.now_ns));
	fputs(report->result.backend[0] == 's' ? " on the clock of its model" : "", file);
	if (report->trace.job_us)
		fprintf(file, ", %.2f&#160;%% of the job's time",
			(double)first->driver.now_ns /
				((double)report->trace.job_us * 10));
	fputs("; the second, with the memory at hand, made ", file);
	put_number(file, calls_of(last), "call");
	fputs(" in ", file);
	report_put_figure(file, figure_ns((double)last->driver.now_ns));
	if (last->hits + last->misses)
		fprintf(file,
			". The quick bins served %.1f&#160;%% of the allocations of the "
			"second pass",
			(double)last->hits * 100 / (double)(last->hits + last->misses));
	fputs(".</p>\n", file);
}

static void begin_warning(FILE *file)
{
	fputs("<p class=\"warning\"><strong>Note:</strong> ", file);
}

/* What stands between the figures and the truth. */
static void put_warnings(const struct report *report, FILE *file)
{
	const struct trace *trace = &report->trace;

	if (trace->broken) {
		begin_warning(file);
		fputs("the trace is cut off or broken; this is of what came before.</p>\n",
			file);
	}
	if (trace->skipped) {
		begin_warning(file);
		report_put_count(file, trace->skipped);
		fputs(" of ", file);
		put_number(file, trace->rows, "row");
		fputs(" of the trace could not be used and were left out.</p>\n", file);
	}
	if (trace->dropped) {
		begin_warning(file);
		put_number(file, trace->dropped, "event");
		fputs(" of the program could not be recorded and are missing.</p>\n",
			file);
	}
	if (!report->result.ok) {
		begin_warning(file);
		fputs("the replay failed: ", file);
		report_put_text(file, report->result.failure);
		fputs("</p>\n", file);
	}
	for (size_t i = 0; i < report->points; i++) {
		if (report->point[i].ok || report->point[i].chosen)
			continue;
		begin_warning(file);
		fprintf(file, "the replay with target %s failed.</p>\n",
			report_target(&report->point[i]).text);
	}
}

static void begin_card(FILE *file, const char *name)
{
	fprintf(file, "<div><dt>%s</dt><dd>", name);
}

static void end_card(FILE *file)
{
	fputs("</dd></div>\n", file);
}

static void put_cards(const struct report *report, FILE *file)
{
	const struct replay_result *result = &report->result;

	fputs("<dl class=\"cards\">\n", file);
	begin_card(file, "Events");
	report_put_count(file, report->trace.count);
	end_card(file);
	begin_card(file, "Peak live");
	report_put_bytes(file, report->trace.peak_live);
	end_card(file);
	begin_card(file, "Reserved");
	report_put_bytes(file, result->peak_reserved);
	end_card(file);
	begin_card(file, "Reserved / live");
	fprintf(file, "x%.4f", report_ratio(report, result->peak_reserved));
	end_card(file);
	begin_card(file, "Largest block");
	report_put_bytes(file, report->largest);
	end_card(file);
	begin_card(file, "Driver calls, first pass");
	report_put_count(file, calls_of(&result->repeat[0]));
	end_card(file);
	begin_card(file, "Driver calls, second pass");
	report_put_count(file, calls_of(&result->repeat[result->repeats - 1]));
	end_card(file);
	begin_card(file, "Streams");
	report_put_count(file, report->trace.streams);
	end_card(file);
	fputs("</dl>\n", file);
}

static void begin_section(FILE *file, const char *title, const char *words)
{
	fprintf(file, "<section>\n<h2>%s</h2>\n", title);
	if (words)
		fprintf(file, "<p class=\"quiet\">%s</p>\n", words);
}

static void put_frontier_words(const struct report *report, FILE *file)
{
	fputs("<p class=\"quiet\">", file);
	if (report->points > 1)
		fputs("A point is a replay under a value of <code>policy.target</code>, orange the "
		      "one that is configured. ",
			file);
	else
		fputs("<code>--frontier&#160;yes</code> adds replays under other values of "
		      "<code>policy.target</code>. ",
			file);
	if (report->options->recorded)
		fputs("A line is what another allocator reserved.", file);
	else
		fputs("A trace does not tell what the allocator of its program reserved; "
		      "<code>--recorded</code> adds that.",
			file);
	fputs("</p>\n", file);
}

static void put_sections(const struct report *report, FILE *file)
{
	begin_section(file, "Memory over time",
		"Reserved is what glake held in the first pass of its replay; what is shaded "
		"above live is held and not in use.");
	report_put_timeline(report, file);
	fputs("</section>\n", file);
	begin_section(file, "Sizes", NULL);
	report_put_sizes(report, file);
	fputs("</section>\n", file);
	begin_section(file, "Lifetimes", NULL);
	report_put_ages(report, file);
	fputs("</section>\n", file);
	begin_section(file, "Streams", NULL);
	report_put_streams(report, file);
	fputs("</section>\n", file);
	begin_section(file, "The frontier: memory against driver time", NULL);
	put_frontier_words(report, file);
	report_put_frontier(report, file);
	fputs("</section>\n", file);
	begin_section(file, "Driver calls", NULL);
	report_put_calls(report, file);
	fputs("</section>\n", file);
}

/* In JSON '<' stands in texts alone, so it can be written otherwise everywhere; then no text can
 * end the element. 0 or -ENOMEM. */
static int put_data(const struct report *report, FILE *file)
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	struct glk_json json;
	int err = -ENOMEM;

	if (!memory)
		return err;
	glk_json_init(&json, memory, 0);
	report_put_data(report, true, &json);
	err = glk_json_fini(&json);
	if (fclose(memory) || err) {
		free(text);
		return -ENOMEM;
	}
	fputs("<script type=\"application/json\" id=\"data\">", file);
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '<')
			fputs("\\u003c", file);
		else
			putc(text[i], file);
	}
	fputs("</script>\n", file);
	free(text);
	return 0;
}

int report_put_page(const struct report *report, FILE *file)
{
	int err;

	put_head(report, file);
	put_cards(report, file);
	put_warnings(report, file);
	put_job(report, file);
	put_passes(report, file);
	put_sections(report, file);
	fprintf(file, "<footer class=\"quiet\"><p>glakectl %s", glake_version_string());
	if (report->result.backend[0] == 's')
		fputs(". The software device stands in for a GPU: it keeps the rules of the "
		      "driver and adds up what each call costs on an H200",
			file);
	fputs(".</p></footer>\n</main>\n", file);
	err = put_data(report, file);
	fputs("<script>\n", file);
	put_lines(file, report_script);
	fputs("</script>\n</body>\n</html>\n", file);
	return err;
}
