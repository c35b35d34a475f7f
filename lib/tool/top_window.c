/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The window of glakectl top. Everything is drawn anew from the last look, whatever the size of the
 * terminal is then; with five lines there are the sum, the head and what fits between them and the
 * line of messages. Colour adds nothing that is not there without.
 */
#include "base/clock.h"
#include "tool/tool.h"
#include "tool/top.h"

#include <curses.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MIN INT64_C(100000000)
#define INTERVAL_MAX INT64_C(60000000000)
#define KEY_ESCAPE   27
#define SAID_LOOKS   5 /* so long a message stays */

static const char *const help[] = {
	"h ?       this help",
	"q         end",
	"p space   pause, go on",
	"s S       sort by the next, by the last",
	"+ -       look more often, less often",
	"up down   choose a line (k j)",
	"enter     only its process, with details",
	"esc a     all processes",
	"r         look now",
};

#define HELP_LINES ((int)(sizeof(help) / sizeof(help[0])))

struct window {
	struct top_sample sample;
	struct top_wanted *wanted;
	int64_t interval;
	int room;
	bool paused, helps, ends;
	size_t chosen, from; /* a row of those shown, the first on the screen */
	pid_t one;	     /* 0: all */
	char said[160];
	int said_looks;
};

/* Row number `index` of those that are shown; NULL past the last. */
static const struct top_row *row_at(const struct window *w, size_t index)
{
	for (size_t i = 0; i < w->sample.count; i++)
		if ((!w->one || w->sample.rows[i].pid == w->one) && !index--)
			return &w->sample.rows[i];
	return NULL;
}

static size_t rows(const struct window *w)
{
	size_t count = 0;

	for (size_t i = 0; i < w->sample.count; i++)
		count += !w->one || w->sample.rows[i].pid == w->one;
	return count;
}

static void put(int y, attr_t attributes, const char *line)
{
	int x, width, height;

	getmaxyx(stdscr, height, width);
	if (y >= height)
		return;
	attr_on(attributes, NULL);
	mvaddnstr(y, 0, line, width);
	if (attributes & A_REVERSE)
		for (x = (int)strlen(line); x < width; x++)
			addch(' ');
	attr_off(attributes, NULL);
}

/* What there is to say, or how it is shown. */
static void draw_last_line(const struct window *w, int y, int width)
{
	char line[TOP_WIDTH_MAX];

	if (*w->said)
		snprintf(line, sizeof(line), "%s", w->said);
	else if (w->one && !rows(w))
		snprintf(line, sizeof(line), "process %d is not there; a: all", w->one);
	else
		snprintf(line, sizeof(line), "%s%gs by %s%s  h help  q end",
			w->paused ? "paused  " : "", (double)w->interval / 1e9,
			top_sort_name(w->wanted->sort), w->one ? "  a all" : "");
	line[width < TOP_WIDTH_MAX ? width : TOP_WIDTH_MAX - 1] = '\0';
	put(y, *w->said ? A_BOLD : A_DIM, line);
}

/* Under the rows of one process, as far as there is room. */
static void draw_details(const struct window *w, int y, int end, int width)
{
	char line[TOP_WIDTH_MAX];
	const struct top_row *row;

	for (size_t i = 0; y < end && (row = row_at(w, i)); i++)
		for (int j = 0; y < end && top_detail_line(row, j, width, line); j++)
			put(y++, 0, line);
}

static void draw_rows(struct window *w, int y, int end, int width)
{
	size_t count = rows(w), room = end > y ? (size_t)(end - y) : 0;
	char line[TOP_WIDTH_MAX];

	if (w->chosen >= count)
		w->chosen = count ? count - 1 : 0;
	if (w->from > w->chosen)
		w->from = w->chosen;
	if (room && w->chosen >= w->from + room)
		w->from = w->chosen - room + 1;
	if (w->from && w->from + room > count)
		w->from = count > room ? count - room : 0;
	for (size_t i = w->from; i < count && y < end; i++) {
		top_row_line(row_at(w, i), width, line);
		put(y++, i == w->chosen ? A_REVERSE : 0, line);
	}
	if (w->one)
		draw_details(w, y + 1, end, width);
	if (!count && !w->one)
		put(y, 0, "no process has a socket; rpc.socket=yes makes one");
}

static void draw(struct window *w)
{
	char line[TOP_WIDTH_MAX];
	int height, width;

	getmaxyx(stdscr, height, width);
	erase();
	if (w->helps) {
		for (int i = 0; i < HELP_LINES; i++)
			put(i, 0, help[i]);
	} else {
		top_sum_line(&w->sample, width, line);
		put(0, A_BOLD, line);
		top_head_line(width, line);
		put(1, (has_colors() ? COLOR_PAIR(1) : 0) | A_UNDERLINE, line);
		draw_rows(w, 2, height - 1, width);
		draw_last_line(w, height - 1, width);
	}
	refresh();
}

static void say(struct window *w, const char *text)
{
	snprintf(w->said, sizeof(w->said), "%s", text);
	w->said_looks = SAID_LOOKS;
}

static int look(struct window *w)
{
	int err = top_sample_take(w->room, w->wanted, &w->sample);

	if (err)
		return err;
	if (*w->sample.ended)
		say(w, w->sample.ended);
	else if (w->said_looks && !--w->said_looks)
		*w->said = '\0';
	return 0;
}

static void sort(struct window *w, int step)
{
	int next = ((int)w->wanted->sort + step + TOP_SORTS) % TOP_SORTS;

	w->wanted->sort = (enum top_sort)next;
	top_sample_sort(&w->sample, w->wanted->sort);
}

static void change_interval(struct window *w, bool faster)
{
	w->interval = faster ? w->interval / 2 : w->interval * 2;
	if (w->interval < INTERVAL_MIN)
		w->interval = INTERVAL_MIN;
	if (w->interval > INTERVAL_MAX)
		w->interval = INTERVAL_MAX;
}

static void choose_process(struct window *w)
{
	const struct top_row *row = row_at(w, w->chosen);

	w->one = row ? row->pid : w->one;
	w->chosen = w->from = 0;
}

/* True: it is time to look again. */
static bool take_key(struct window *w, int key)
{
	w->helps = w->helps ? key == KEY_RESIZE : key == 'h' || key == '?';
	switch (key) {
	case 'q':
		w->ends = true;
		break;
	case 'p':
	case ' ':
		w->paused = !w->paused;
		break;
	case 's':
		sort(w, 1);
		break;
	case 'S':
		sort(w, -1);
		break;
	case '+':
	case '=':
		change_interval(w, true);
		break;
	case '-':
		change_interval(w, false);
		break;
	case KEY_UP:
	case 'k':
		w->chosen -= w->chosen > 0;
		break;
	case KEY_DOWN:
	case 'j':
		w->chosen++;
		break;
	case KEY_ENTER:
	case '\n':
	case '\r':
		choose_process(w);
		break;
	case KEY_ESCAPE:
	case 'a':
		w->one = 0;
		break;
	case 'r':
		return true;
	default:
		break;
	}
	return false;
}

/* The terminal, which is an end of each wait then. */
static bool has_gone(void)
{
	struct pollfd polled = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&polled, 1, 0) > 0 && polled.revents & (POLLHUP | POLLERR | POLLNVAL);
}

/* Keys, until it is time to look again. */
static void attend(struct window *w)
{
	int64_t until = glk_clock_ns() + w->interval;
	bool looks = false;
	int key;

	while (!w->ends && !looks) {
		int64_t left = w->paused ? INTERVAL_MAX : until - glk_clock_ns();

		if (left <= 0)
			break;
		draw(w);
		timeout((int)(left / 1000000) + 1);
		key = getch();
		if (key == ERR) {
			w->ends = has_gone();
			continue;
		}
		looks = take_key(w, key);
		if (glk_clock_ns() + w->interval < until)
			until = glk_clock_ns() + w->interval;
	}
}

int top_window(int room, struct top_wanted *wanted, int64_t interval_ns, unsigned count)
{
	struct window w = {.wanted = wanted, .interval = interval_ns, .room = room};
	SCREEN *screen = newterm(NULL, stdout, stdin);
	const char *term = getenv("TERM");
	int err = 0;

	if (!screen) {
		glk_tool_say(
			"top: ncurses knows no terminal TERM=%s; --batch prints tables",
			term ? term : "");
		return GLK_TOOL_FAILED;
	}
	set_escdelay(50);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	if (has_colors()) {
		start_color();
		use_default_colors();
		init_pair(1, COLOR_CYAN, -1);
	}
	for (unsigned i = 0; !w.ends && !err && (!count || i < count); i++) {
		err = look(&w);
		if (!err)
			attend(&w);
	}
	endwin();
	delscreen(screen);
	top_sample_fini(&w.sample);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}
