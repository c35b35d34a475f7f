/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glakectl conf as a person and as a program meet it: texts, JSON, exit status. */
#include "tool/tool.h"
#include "unit/base/conf_found.h"

#include <getopt.h>
#include <glake/conf.h>

static char out[1 << 16], err[4096];

static void read_back(FILE *file, char *text, size_t size)
{
	rewind(file);
	text[fread(text, 1, size - 1, file)] = '\0';
	fclose(file);
}

/* Runs "conf" and the words up to NULL; the exit status. Keeps what it wrote. */
static int run(const char *const *words)
{
	FILE *to_out = tmpfile(), *to_err = tmpfile();
	int was_out = dup(STDOUT_FILENO), was_err = dup(STDERR_FILENO);
	char copy[16][128], *argv[17] = {NULL};
	int argc = 0, status;

	if (!to_out || !to_err || was_out < 0 || was_err < 0)
		tap_bail("no temporary file");
	for (; words[argc]; argc++) {
		snprintf(copy[argc], sizeof(copy[argc]), "%s", words[argc]);
		argv[argc] = copy[argc];
	}
	fflush(stdout);
	dup2(fileno(to_out), STDOUT_FILENO);
	dup2(fileno(to_err), STDERR_FILENO);
	optind = 0;
	status = glk_tool_finish(glk_tool_conf(argc, argv));
	dup2(was_out, STDOUT_FILENO);
	dup2(was_err, STDERR_FILENO);
	close(was_out);
	close(was_err);
	read_back(to_out, out, sizeof(out));
	read_back(to_err, err, sizeof(err));
	return status;
}

#define RUN(...) run((const char *const[]){"conf", __VA_ARGS__, NULL})

static void check(void)
{
	char want[1024];

	write_text("[pool]\nbudget = 1GiB\n");
	is_int(RUN("check", found_path), GLK_TOOL_OK, "a file that is right");
	snprintf(want, sizeof(want), "%s; ok\n", found_path);
	is_str(out, want, "one line says so");
	is_str(err, "", "nothing else");

	write_text("[pool]\nbudget = 8MX\nbugdet = 1\n");
	is_int(RUN("check", found_path, "-c", "soft.gpus=0"), GLK_TOOL_FAILED, "errors");
	snprintf(want, sizeof(want),
		"%s:2: error: pool.budget: '8MX' is not a size, nor a part; right is 0 ... 16TiB, "
		"or above 0%% to 100%%, as 24G, 1.5GiB, 80%% or 0.8\n%s:3: warning: pool.bugdet: unknown key; did you "
		"mean pool.budget?\n--conf: error: soft.gpus: '0' is out of range; right is 1 "
		"... 64\n%s: 2 errors, 1 warning\n",
		found_path, found_path, found_path);
	is_str(out, want, "each on a line, as compilers do");

	write_text("[pool]\nbugdet = 1\n");
	is_int(RUN("check", found_path), GLK_TOOL_OK, "a warning is no failure");
	has_str(out, "; ok, with 1 warning\n", "but is counted");
	setenv("GLAKE_SOFT_GPUS", "x", 1);
	is_int(RUN("check", found_path), GLK_TOOL_FAILED, "the environment is looked at");
	has_str(out, "\nGLAKE_SOFT_GPUS: error: soft.gpus: 'x' is not", "and named");
	unsetenv("GLAKE_SOFT_GPUS");

	is_int(RUN("check", "--json", found_path), GLK_TOOL_OK, "as JSON");
	snprintf(want, sizeof(want),
		"{\n  \"file\": \"%s\",\n  \"findings\": [\n    {\n      \"severity\": "
		"\"warning\",\n      \"file\": \"%s\",\n      \"line\": 2,\n      \"key\": "
		"\"pool.bugdet\",\n      \"text\": \"unknown key; did you mean "
		"pool.budget?\"\n    }\n  ],\n  \"errors\": 0,\n  \"warnings\": 1,\n  \"ok\": "
		"true\n}\n",
		found_path, found_path);
	is_str(out, want, "every part of it");
	unlink(found_path);
	is_int(RUN("check", found_path), GLK_TOOL_FAILED, "a file that is not there");
	has_str(out, ": error: there is no such file\n", "is named");
	is_int(RUN("check", found_path, "-j"), GLK_TOOL_FAILED, "in JSON too");
	has_str(out, "\"ok\": false", "it is not ok");
}

static void show(void)
{
	is_int(RUN("show", "--default"), GLK_TOOL_OK, "the defaults");
	has_str(out, "KEY ", "a table");
	has_str(out, "\npool.small_page               2MiB     default\n", "in columns");
	is_int(RUN("show", "-d", "soft.gpus"), GLK_TOOL_OK, "one key");
	is_str(out, "KEY        VALUE  ORIGIN\nsoft.gpus  1      default\n",
		"and no other");
	is_int(RUN("show", "-dk", "soft.gpus"), GLK_TOOL_OK, "with its meaning");
	has_str(out,
		"    GPUs of the software device.\n    int: 1 ... 64\n    default: 1\n",
		"range and default");
	is_int(RUN("show", "--default", "--json", "soft.gpus"), GLK_TOOL_OK, "as JSON");
	is_str(out,
		"[\n  {\n    \"section\": \"soft\",\n    \"key\": \"gpus\",\n    \"type\": "
		"\"int\",\n    \"value\": \"1\",\n    \"default\": \"1\",\n    \"origin\": "
		"\"default\",\n    \"source\": \"\",\n    \"line\": 0,\n    \"range\": \"1 ... "
		"64\",\n    \"help\": \"GPUs of the software device.\",\n    "
		"\"environment\": \"GLAKE_SOFT_GPUS\",\n    \"changed_by\": \"\",\n    \"live\": false,\n    \"test\": true\n  }\n]\n",
		"every part of it");
	setenv("GLAKE_MAP_ALIASES", "3", 1);
	is_int(RUN("show", "map.aliases"), GLK_TOOL_OK, "the values that hold");
	has_str(out, "map.aliases  3      GLAKE_MAP_ALIASES\n", "with their origin");
	is_int(RUN("show", "map", "--json"), GLK_TOOL_OK, "a section");
	has_str(out,
		"\"value\": \"3\",\n    \"default\": \"8\",\n    \"origin\": \"environment\",\n"
		"    \"source\": \"GLAKE_MAP_ALIASES\"",
		"in JSON");
	is_int(RUN("show"), GLK_TOOL_OK, "all of them");
	ok(!strstr(out, "soft.gpus"), "but those of tests");
	setenv("GLAKE_SOFT_GPUS", "2", 1);
	RUN("show");
	has_str(out, "soft.gpus ", "unless one is set");
	unsetenv("GLAKE_SOFT_GPUS");
	has_str(out, "\nFile: ", "and the file they would be in");
	has_str(out, glake_conf_path(), "by its path");
	setenv("GLAKE_MAP_ALIASES", "many", 1);
	is_int(RUN("show"), GLK_TOOL_FAILED, "a configuration that is wrong");
	is_str(out, "", "shows nothing");
	has_str(err, "map.aliases: 'many' is not a whole number", "says why");
	is_int(RUN("show", "--json"), GLK_TOOL_FAILED, "in JSON too");
	is_str(out, "", "half a text helps nobody");
	unsetenv("GLAKE_MAP_ALIASES");
}

static void explain(void)
{
	is_int(RUN("explain", "pool.budget"), GLK_TOOL_OK, "a key is explained");
	is_str(out,
		"pool.budget\n"
		"    Most physical memory to hold on each GPU; 0 for all there is. Bytes, or a\n"
		"    part of the GPU's memory, as 80% or 0.8; nothing leaves it unset.\n"
		"    value:        0, default\n"
		"    type:         size or part\n"
		"    range:        0 ... 16TiB, or above 0% to 100%\n"
		"    default:      0\n"
		"    environment:  GLAKE_POOL_BUDGET\n"
		"    at run time:  glake_conf_set or glake_budget_set changes it, config.set "
		"does at the socket\n",
		"with all there is to know");
	setenv("GLAKE_MAP_ALIASES", "3", 1);
	is_int(RUN("explain", "GLAKE_MAP_ALIASES"), GLK_TOOL_OK, "by its variable");
	has_str(out, "map.aliases\n", "it is found");
	has_str(out, "    value:        3, GLAKE_MAP_ALIASES\n", "with its origin");
	has_str(out,
		"    at run time:  glake_conf_set changes it, config.set does at the socket\n",
		"one that may change");
	is_int(RUN("explain", "map.span"), GLK_TOOL_OK, "another");
	has_str(out, "    at run time:  as it was when the program opened glake\n",
		"that stays");
	is_int(RUN("explain", "pool.peers"), GLK_TOOL_OK,
		"one with a function of its own");
	has_str(out, "    at run time:  glake_peer_access changes it\n", "that names it");
	is_int(RUN("show", "-dk", "map.aliases"), GLK_TOOL_OK, "among all values too");
	has_str(out, "default: 8\n    may change while the program runs\n", "it is said");
	is_int(RUN("explain", "map", "soft.gpus"), GLK_TOOL_OK, "a section and a key");
	has_str(out, "map.span\n", "the first key");
	has_str(out, "\n\nmap.aliases\n", "the last");
	has_str(out, "soft.gpus\n", "and the other");
	ok(!strstr(out, "pool.budget"), "and no more");
	setenv("GLAKE_MAP_ALIASES", "many", 1);
	is_int(RUN("explain", "map.span"), GLK_TOOL_FAILED,
		"in a configuration that is wrong");
	has_str(out, "Most addresses to reserve", "what it means is told");
	has_str(out, "    value:        not known\n", "its value is not");
	has_str(err, "map.aliases: 'many' is not a whole number", "and why");
	unsetenv("GLAKE_MAP_ALIASES");
	is_int(RUN("explain"), GLK_TOOL_OK, "no key");
	has_str(out,
		"\npool.budget\n    Most physical memory to hold on each GPU\npool.small_page\n",
		"is a list, with what each does in short");
	is_int(RUN("explain", "--json", "pool.peers"), GLK_TOOL_OK, "as JSON");
	has_str(out, "\"changed_by\": \"glake_peer_access\"", "with what changes it");
	has_str(out, "\"environment\": \"GLAKE_POOL_PEERS\"", "and its variable");
}

static void nearest(const char *name, const char *meant)
{
	char want[256];

	snprintf(want, sizeof(want),
		"glakectl conf explain: there is no key or section '%s'%s; see glakectl conf "
		"explain --help\n",
		name, meant);
	is_int(RUN("explain", name), GLK_TOOL_USAGE, "a name that is none");
	is_str(err, want, "which is said, with what is near");
	is_str(out, "", "and nothing else");
}

static void unknown(void)
{
	nearest("pool.bugdet", "; did you mean pool.budget?");
	nearest("poll.budget", "; did you mean pool.budget?");
	nearest("budget", "; did you mean pool.budget?");
	nearest("pol", "; did you mean pool?");
	nearest("pool.", "; did you mean pool?");
	nearest("GLAKE_POOL_BUGDET", "; did you mean pool.budget?");
	nearest("xyzzyq", "");
	nearest("", "");
}

static void usage(void)
{
	is_int(RUN("--help"), GLK_TOOL_OK, "help");
	has_str(out, "usage: glakectl conf check", "on stdout");
	is_int(RUN("check", "--help"), GLK_TOOL_OK, "help of check");
	is_int(RUN("show", "-h"), GLK_TOOL_OK, "help of show");
	is_int(run((const char *const[]){"conf", NULL}), GLK_TOOL_USAGE, "no word");
	is_int(RUN("shwo"), GLK_TOOL_USAGE, "an unknown word");
	is_int(RUN("check", "a", "b"), GLK_TOOL_USAGE, "two files");
	is_int(RUN("check", "--default"), GLK_TOOL_USAGE, "an option of the other");
	is_int(RUN("check", "-c", "budget"), GLK_TOOL_USAGE, "a setting that is none");
	is_int(RUN("show", "pool.bugdet"), GLK_TOOL_USAGE, "an unknown key");
	is_str(out, "", "says nothing on stdout");
	has_str(err,
		"there is no key or section 'pool.bugdet'; did you mean pool.budget?",
		"but on stderr");
	is_int(RUN("explain", "--help"), GLK_TOOL_OK, "help of explain");
	is_int(RUN("explain", "--default"), GLK_TOOL_USAGE, "an option of another");
}

int main(void)
{
	tap_plan_later();
	clear_environment();
	make_folder();
	check();
	show();
	explain();
	unknown();
	usage();
	return tap_done();
}
