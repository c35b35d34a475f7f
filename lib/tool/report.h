/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_REPORT_H
#define GLK_TOOL_REPORT_H

/*
 * glakectl report: what is gathered of a trace, and the parts of the page that shows it. The page
 * has figures in sums and classes only, so its size does not grow with the number of events.
 */
#include "tool/figure.h"
#include "tool/replay.h"

#define REPORT_PASSES	    2
#define REPORT_RECORDED_MAX 8
#define REPORT_POINTS_MAX   8
#define REPORT_AUTO_MAX	    250000 /* events that are replayed under other targets unasked */
#define REPORT_STREAMS	    50	   /* rows of their table */
#define REPORT_SIZES	    64	   /* classes of sizes: from a power of two to the next */
#define REPORT_AGES	    11 /* classes of lifetimes: tenfold, then longer, then not freed */
#define REPORT_AGE_LONGER   9
#define REPORT_AGE_NEVER    10

/* What another allocator held for the same job: no format of traces has it. */
struct report_recorded {
	char name[64];
	uint64_t bytes;
};

struct report_options {
	struct glk_tool_context context;
	const char *file, *output; /* output "-": stdout; NULL: none */
	int gpu;
	bool lenient;
	enum { REPORT_AUTO, REPORT_YES, REPORT_NO } frontier;
	size_t recorded;
	struct report_recorded record[REPORT_RECORDED_MAX];
};

struct report_size {
	uint64_t blocks, bytes;
	uint64_t at_peak;	   /* bytes live when most was live */
	uint64_t age[REPORT_AGES]; /* blocks */
};

struct report_stream {
	uint64_t id, allocations, frees, bytes;
	uint64_t live, peak, at_peak; /* of what was allocated on it */
};

/* A replay under one value of policy.target. */
struct report_point {
	double target; /* 0: auto */
	bool chosen;   /* the replay that the rest of the page is about */
	bool ok;
	uint64_t reserved;
	double first_ms, later_ms; /* driver time of the passes */
};

/* A target as people write it: x1.05, or auto. */
struct report_target {
	char text[32];
};
struct report_target report_target(const struct report_point *point);

struct report {
	const struct report_options *options;
	struct trace trace;
	struct replay_options replay;
	struct replay_result result;
	struct report_size size[REPORT_SIZES];
	struct report_stream *streams; /* most bytes first */
	size_t peak_event;
	uint64_t largest;
	bool by_event; /* all times are the same, so the axis of time counts events */
	size_t points;
	struct report_point point[REPORT_POINTS_MAX]; /* by target */
};

/* Sums up the trace. 0 or -ENOMEM. */
int report_sum_up(struct report *report);
/* Replays the trace, and under other targets. 0 or -errno after a message. */
int report_replay(struct report *report);
void report_fini(struct report *report);

/* Where an event lies on the axis of time, and the end of it: us, or events. */
double report_at(const struct report *report, size_t event);
double report_end(const struct report *report);
/* Bytes as a multiple of the peak of live. */
double report_ratio(const struct report *report, uint64_t bytes);

/* All figures of the page; the lists of its timeline where `timeline` is true. */
struct glk_json;
void report_put_data(const struct report *report, bool timeline, struct glk_json *json);

/* The page, and its parts. 0 or -ENOMEM. */
int report_put_page(const struct report *report, FILE *file);
void report_put_timeline(const struct report *report, FILE *file);
void report_put_frontier(const struct report *report, FILE *file);
void report_put_sizes(const struct report *report, FILE *file);
void report_put_ages(const struct report *report, FILE *file);
void report_put_streams(const struct report *report, FILE *file);
void report_put_calls(const struct report *report, FILE *file);

/* A text as the content of an element or of an attribute in double quotes: bytes that are not
 * UTF-8, and characters that a page must not have, become U+FFFD. */
void report_put_text(FILE *file, const char *text);
/* Figures whose parts stay on one line. */
void report_put_count(FILE *file, uint64_t count);
void report_put_bytes(FILE *file, uint64_t bytes);
void report_put_figure(FILE *file, struct figure figure);
/* A cell of a table, with a bar as long as its share of the largest. */
void report_put_bar(FILE *file, double share);
/* The head of a table in a box of its own: its caption and columns, NULL at their end. */
void report_put_table(FILE *file, const char *caption, const char *const *columns);

/* Made from report.css and report.js. */
extern const char *const report_style[], *const report_script[]; /* NULL at their end */
extern const char report_script_hash[];

#endif
