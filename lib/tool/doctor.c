/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl doctor: whether this machine is fit for glake, and what to do where it is not. Where
 * info lists what there is, this says what it means. A driver that is absent, a library that does
 * not open and a configuration that is refused are findings like all others.
 */
#include "tool/doctor.h"

#include "base/json.h"
#include "tool/tool.h"

#include <glake/conf.h>
#include <glake/context.h>
#include <glake/memory.h>

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COMMAND "doctor"

static const struct option long_options[] = {
	{"driver", required_argument, NULL, 'd'},
	{"conf", required_argument, NULL, 'c'},
	{"load", no_argument, NULL, 'l'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl doctor [OPTION]...\n"
	"\n"
	"Says whether this machine is fit for glake: driver, kernel modules, NUMA, limits,\n"
	"each GPU, and the configuration. Each line is ok, note or problem; what to do about\n"
	"a note or a problem stands below it. A small block is allocated on each GPU.\n"
	"Exit status: 0 no problem, perhaps notes; 1 a problem; 2 wrong usage.\n"
	"\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -l, --load                   first load nvidia and nvidia_uvm; as root\n"
	"  -j, --json                   the report as JSON\n"
	"  -h, --help                   this text\n";

void doctor_add(struct doctor *doctor, enum doctor_status status, const char *name,
	const char *format, ...)
{
	struct doctor_check *check;
	va_list args;

	/* hundreds of GPUs, all alike: what does not fit is not forgotten, but said */
	if (doctor->count == DOCTOR_CHECKS) {
		doctor->left_out = true;
		return;
	}
	check = &doctor->checks[doctor->count++];
	check->status = status;
	check->part = doctor->part;
	snprintf(check->name, sizeof(check->name), "%s", name);
	va_start(args, format);
	vsnprintf(check->text, sizeof(check->text), format, args);
	va_end(args);
	/* variables and files of others are quoted, and shall not steer the terminal */
	for (char *at = check->text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 127)
			*at = '?';
}

void doctor_advise(struct doctor *doctor, const char *format, ...)
{
	struct doctor_check *check = &doctor->checks[doctor->count - 1];
	va_list args;

	if (doctor->left_out)
		return;
	va_start(args, format);
	vsnprintf(check->advice, sizeof(check->advice), format, args);
	va_end(args);
}

static void judge_conf(const struct doctor_facts *facts, struct doctor *doctor)
{
	unsigned int findings = facts->conf_errors + facts->conf_warnings;

	doctor->part = "Configuration";
	if (!findings) {
		doctor_add(doctor, DOCTOR_OK, "conf", "%s", facts->conf_text);
		return;
	}
	doctor_add(doctor, facts->conf_errors ? DOCTOR_PROBLEM : DOCTOR_NOTE, "conf",
		"%s%s", facts->conf_text, findings > 1 ? "; and more" : "");
	doctor_advise(doctor, "'glakectl conf check' tells all that is wrong with it");
}

void doctor_judge(const struct doctor_facts *facts, struct doctor *doctor)
{
	doctor_judge_load(facts, doctor);
	doctor_judge_driver(facts, doctor);
	doctor_judge_parameters(facts, doctor);
	doctor_judge_gpus(facts, doctor);
	doctor_judge_host(facts, doctor);
	judge_conf(facts, doctor);
}

size_t doctor_count(const struct doctor *doctor, enum doctor_status status)
{
	size_t count = 0;

	for (size_t i = 0; i < doctor->count; i++)
		count += doctor->checks[i].status == status;
	return count;
}

/*
 * What glakectl doctor judges. Nothing here fails: what cannot be had is a fact too. On each GPU a
 * small block is allocated and given back, for a driver promises more than it keeps: only pages
 * that were made tell what pages can do.
 */

#define TRIAL 1024 /* bytes */

static void try_gpu(struct glake *ctx, int index, struct doctor_gpu *gpu)
{
	struct glake_block block = {.sz = sizeof(block)};
	void *ptr = NULL;

	gpu->device.sz = sizeof(gpu->device);
	gpu->err = glake_device_get(ctx, index, &gpu->device);
	if (!gpu->err)
		gpu->err = glake_alloc(ctx, index, TRIAL, NULL, 0, &ptr);
	if (!gpu->err)
		gpu->err = glake_query(ctx, ptr, &block);
	if (gpu->err)
		glk_tool_keep_error(gpu->err, gpu->failure, sizeof(gpu->failure));
	gpu->can = block.can;
	if (ptr)
		glake_free(ctx, ptr, NULL);
}

static void take_gpus(struct glake *ctx, struct doctor_facts *facts)
{
	int count = glake_device_count(ctx);

	if (count <= 0)
		return;
	facts->gpus = calloc((size_t)count, sizeof(*facts->gpus));
	if (!facts->gpus)
		return;
	facts->gpu_count = count;
	for (int i = 0; i < count; i++)
		try_gpu(ctx, i, &facts->gpus[i]);
}

static void on_finding(const struct glake_conf_finding *finding, void *arg)
{
	struct doctor_facts *facts = arg;
	bool worse = finding->error && !facts->conf_errors;

	if (finding->error)
		facts->conf_errors++;
	else
		facts->conf_warnings++;
	if (facts->conf_text[0] && !worse)
		return;
	snprintf(facts->conf_text, sizeof(facts->conf_text), "%s%s%s%s%s",
		*finding->file ? finding->file : "--conf", *finding->key ? ": " : "",
		finding->key, ": ", finding->text);
}

static void check_conf(const struct glk_tool_context *wanted, struct doctor_facts *facts)
{
	struct glake_options options = {
		.sz = sizeof(options), .settings = wanted->settings};
	int err = glake_conf_check(&options, on_finding, facts);
	const char *path = glake_conf_path();

	if (err && !facts->conf_errors) {
		facts->conf_errors++;
		glk_tool_keep_error(err, facts->conf_text, sizeof(facts->conf_text));
	} else if (!facts->conf_text[0]) {
		snprintf(facts->conf_text, sizeof(facts->conf_text), "%s%s", path,
			access(path, F_OK) ? " is not there, and need not be" : "");
	}
}

/* Whether the software device is what is meant, by an option or by the configuration. */
static bool wants_soft(const struct glk_tool_context *wanted, struct glake *ctx)
{
	struct glake_conf_value value;

	if (wanted->backend == GLAKE_BACKEND_SOFT)
		return true;
	return ctx && wanted->backend == GLAKE_BACKEND_AUTO &&
		!glk_tool_value(ctx, "driver", "backend", &value) &&
		!strcmp(value.text, "soft");
}

static void open_context(
	const struct glk_tool_context *wanted, struct doctor_facts *facts)
{
	struct glake_options options = {
		.sz = sizeof(options),
		.backend = wanted->backend,
		.no_soft_warning = 1, /* the report says so */
		.settings = wanted->settings,
	};
	struct glake_conf_value value;
	struct glake *ctx = NULL;
	int err = glake_open(&options, &ctx);

	if (err) {
		ctx = NULL;
		glk_tool_keep_error(err, facts->failure, sizeof(facts->failure));
	}
	facts->soft_wanted = wants_soft(wanted, ctx);
	if (err)
		return;
	facts->opened = true;
	facts->soft = glake_backend(ctx) == GLAKE_BACKEND_SOFT;
	facts->driver.sz = sizeof(facts->driver);
	glake_driver_get(ctx, &facts->driver);
	if (!glk_tool_value(ctx, "pool", "export", &value))
		snprintf(facts->export, sizeof(facts->export), "%s", value.text);
	/* the software device in place of a GPU is looked at only where it is meant */
	if (!facts->soft || facts->soft_wanted)
		take_gpus(ctx, facts);
	glake_close(ctx, NULL);
}

static void doctor_facts_gather(
	const struct glk_tool_context *wanted, bool load, struct doctor_facts *ret_facts)
{
	struct doctor_facts *facts = ret_facts;
	struct glake_node node = {.sz = sizeof(node)};

	*facts = (struct doctor_facts){.parameter = glake_parameter_get, .load = load};
	if (load)
		doctor_load_both(facts);
	facts->visible = getenv("CUDA_VISIBLE_DEVICES");
	check_conf(wanted, facts);
	/* The driver may load a module and make nodes when it is first used. */
	open_context(wanted, facts);
	facts->host.sz = sizeof(facts->host);
	glake_host_get(&facts->host);
	for (size_t i = 0; i < sizeof(facts->modules) / sizeof(*facts->modules); i++) {
		facts->modules[i].sz = sizeof(facts->modules[i]);
		glake_module_get(i, &facts->modules[i]);
	}
	facts->tools.sz = sizeof(facts->tools);
	glake_uvm_tools_get(&facts->tools);
	while (!glake_node_get(facts->node_count, &node)) {
		if (facts->node_count < DOCTOR_NODES)
			facts->nodes[facts->node_count] = node;
		facts->node_count++;
	}
}

/*
 * The report of glakectl doctor: on a terminal broken to its width, in a pipe a check and an
 * advice to a line, so that grep finds both whole.
 */

#define FRONT  30 /* columns for a status and a name before the text */
#define NARROW 64 /* below this the text has lines of its own */
#define INDENT 4
#define LEAST  20 /* columns for words; a narrower terminal breaks them itself */

const char *doctor_status_name(enum doctor_status status)
{
	static const char *const names[] = {"ok", "note", "problem"};

	return names[status];
}

/* Words from column `indent` on, where later lines begin too. */
static void print_words(const char *text, unsigned int indent, unsigned int columns)
{
	size_t column = indent, length;

	for (; *text; text += length, text += strspn(text, " ")) {
		length = strcspn(text, " ");
		if (column > indent && columns && column + 1 + length > columns) {
			printf("\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			putchar(' ');
			column++;
		}
		printf("%.*s", (int)length, text);
		column += length;
	}
	putchar('\n');
}

static void print_check(const struct doctor_check *check, unsigned int columns)
{
	bool narrow = columns && columns < NARROW;
	unsigned int indent = narrow ? INDENT : FRONT;
	const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
	bool coloured = columns && term && strcmp(term, "dumb") && !(plain && *plain);
	int n;

	if (columns && columns < indent + LEAST)
		columns = indent + LEAST;
	if (coloured) /* green, yellow or red */
		printf("\033[3%cm", "231"[check->status]);
	n = printf("  %-7s", doctor_status_name(check->status));
	n += printf("%s  %s", coloured ? "\033[m" : "", check->name) - 3 * coloured;
	if (narrow || n >= (int)indent)
		printf("\n%*s", (int)indent, "");
	else
		printf("%*s", (int)indent - n, "");
	print_words(check->text, indent, columns);
	if (!*check->advice)
		return;
	printf("%*s> ", (int)indent, "");
	print_words(check->advice, indent + 2, columns);
}

static void print_verdict(const struct doctor *doctor, unsigned int columns)
{
	size_t problems = doctor_count(doctor, DOCTOR_PROBLEM);
	size_t notes = doctor_count(doctor, DOCTOR_NOTE);
	char text[128];

	snprintf(text, sizeof(text),
		"This machine is %sfit for glake: %zu problem%s, %zu note%s",
		problems ? "not " : "", problems, problems == 1 ? "" : "s", notes,
		notes == 1 ? "" : "s");
	putchar('\n');
	print_words(text, 0, columns);
}

static void doctor_print_report(const struct doctor *doctor, unsigned int columns)
{
	const char *part = NULL;

	printf("glake %s\n", glake_version_string());
	for (size_t i = 0; i < doctor->count; i++) {
		const struct doctor_check *check = &doctor->checks[i];

		if (part != check->part)
			printf("\n%s\n", check->part);
		part = check->part;
		print_check(check, columns);
	}
	if (doctor->left_out) {
		putchar('\n');
		print_words("There is more than fits into this report.", 0, columns);
	}
	print_verdict(doctor, columns);
}

static int doctor_print_json(const struct doctor *doctor)
{
	struct glk_json json;

	glk_json_init(&json, stdout, 2);
	glk_json_array(&json);
	for (size_t i = 0; i < doctor->count; i++) {
		const struct doctor_check *check = &doctor->checks[i];

		glk_json_object(&json);
		glk_json_add_text(&json, "name", check->name);
		glk_json_add_text(&json, "status", doctor_status_name(check->status));
		glk_json_add_text(&json, "text", check->text);
		glk_json_add_text(&json, "advice", check->advice);
		glk_json_end(&json);
	}
	glk_json_end(&json);
	return glk_json_fini(&json) ? 1 : 0;
}

/* Of the terminal that stdout is; 0 if it is none. */
static unsigned int columns(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO))
		return 0;
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

static int report(const struct glk_tool_context *wanted, bool load)
{
	struct doctor *doctor = calloc(1, sizeof(*doctor));
	struct doctor_facts facts;
	bool unfit, unsaid = false;

	if (!doctor) {
		glk_tool_say("no memory for a report");
		return GLK_TOOL_FAILED;
	}
	doctor_facts_gather(wanted, load, &facts);
	doctor_judge(&facts, doctor);
	free(facts.gpus);
	if (wanted->json)
		unsaid = doctor_print_json(doctor);
	else
		doctor_print_report(doctor, columns());
	unfit = doctor_count(doctor, DOCTOR_PROBLEM);
	free(doctor);
	return unfit || unsaid ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

int glk_tool_doctor(int argc, char **argv)
{
	struct glk_tool_context wanted = {.quiet = true};
	bool load = false;
	int c, status = 0;

	while (!status && (c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		if (c == 'l')
			load = true;
		else
			status = glk_tool_take_option(&wanted, COMMAND, c);
	}
	if (status)
		return status;
	if (optind < argc)
		return glk_tool_usage(
			COMMAND, "no argument is expected, not '%s'", argv[optind]);
	if (load && (geteuid() || getuid())) { /* nor may a program that is setuid */
		glk_tool_say("doctor: only root may load modules; without --load the "
			     "report is for all");
		return GLK_TOOL_FAILED;
	}
	return report(&wanted, load);
}
