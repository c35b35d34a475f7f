/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tool/feature.h"

#include "tool/report.h"
#include "tool/tool.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef GLK_XXHASH
#define HAS_XXHASH true
#else
#define HAS_XXHASH false
#endif
#ifdef GLK_LZ4
#define HAS_LZ4 true
#else
#define HAS_LZ4 false
#endif
#ifdef GLK_SODIUM
#define HAS_SODIUM true
#else
#define HAS_SODIUM false
#endif
#ifdef GLK_PROBES
#define HAS_PROBES true
#else
#define HAS_PROBES false
#endif

static const struct feature {
	const char *name;
	const char *build; /* the package that it is built with */
	bool built;
	const char *
		library; /* what it loads where it runs, or one of two; "preload.so" and so on lie beside */
	const char *module; /* or imports */
	const char *run;    /* what brings that */
} features[] = {
	{"a GPU", NULL, true, "libcuda.so.1", NULL, "the NVIDIA driver"},
	{"glakectl run, LD_PRELOAD", NULL, true, "libglake-preload.so", NULL,
		"all of glake, built or installed"},
	{"PyTorch and other Python", NULL, true, "libglake-torch.so", NULL,
		"all of glake, built or installed"},
	{"NUMA nodes", NULL, true, "libnuma.so.1", NULL, "libnuma1"},
	{"kernel modules", NULL, true, "libkmod.so.2", NULL, "libkmod2"},
	{"rpc.socket", NULL, true, "libjson-c.so.5", NULL, "libjson-c5"},
	{"tier.compress", "liblz4-dev", HAS_LZ4, "liblz4.so.1", NULL, "liblz4-1"},
	{"security.level=3", "libsodium-dev", HAS_SODIUM,
		"libsodium.so.26 libsodium.so.23", NULL, "libsodium23, libsodium26"},
	{"tier.verify", "libxxhash-dev", HAS_XXHASH, NULL, NULL, NULL},
	{"probes", "systemtap-sdt-dev", HAS_PROBES, NULL, NULL, NULL},
	{"glakectl ps, stat, map", NULL, true, NULL, "json", "python3"},
	{"the window of glakectl top", NULL, true, NULL, "curses", "python3"},
	{"glakectl report, draw", NULL, true, NULL, "matplotlib", "python3-matplotlib"},
	{"glakectl export", NULL, true, NULL, "prometheus_client",
		"python3-prometheus-client"},
};

#define COUNT (sizeof(features) / sizeof(*features))

/* Names of those modules that Python has, a space behind each; none without Python. */
static void ask_python(char *modules, size_t size)
{
	/* the folder one is in is looked into for none of them */
	static const char question[] =
		"python3 -c 'import sys\n"
		"sys.path[:1] = []\n"
		"import importlib.util\n"
		"for name in (\"json\", \"curses\", \"matplotlib\", \"prometheus_client\"):\n"
		"    if importlib.util.find_spec(name):\n"
		"        print(name, end=\" \")' 2>/dev/null";
	FILE *python = popen(question, "re");
	size_t length = python ? fread(modules, 1, size - 1, python) : 0;

	modules[length] = '\0';
	if (python)
		pclose(python);
}

static bool has_library(const char *names)
{
	char path[PATH_MAX], name[64], *left = name, *one;
	void *handle = NULL;

	if (!strncmp(names, "libglake-", strlen("libglake-")))
		return glk_tool_find_library(names, path);
	snprintf(name, sizeof(name), "%s", names);
	while (!handle && (one = strsep(&left, " ")))
		handle = dlopen(one, RTLD_LAZY | RTLD_LOCAL);
	if (handle)
		dlclose(handle);
	return handle != NULL;
}

static bool is_found(const struct feature *one, const char *modules)
{
	char word[64];

	snprintf(word, sizeof(word), "%s ", one->module ? one->module : "");
	return one->built && (!one->library || has_library(one->library)) &&
		(!one->module || strstr(modules, word));
}

void glk_feature_add(struct glk_json *json)
{
	char modules[128];

	ask_python(modules, sizeof(modules));
	glk_json_key(json, "features");
	glk_json_array(json);
	for (size_t i = 0; i < COUNT; i++) {
		glk_json_object(json);
		glk_json_add_text(json, "name", features[i].name);
		glk_json_add_bool(json, "found", is_found(&features[i], modules));
		glk_json_add_text(json, "build_package",
			features[i].build ? features[i].build : "");
		glk_json_add_text(
			json, "run_package", features[i].run ? features[i].run : "");
		glk_json_end(json);
	}
	glk_json_end(json);
}

int glk_feature_print(void)
{
	struct report report;

	if (report_begin(&report, false))
		return GLK_TOOL_FAILED;
	glk_json_object(&report.json);
	glk_feature_add(&report.json);
	glk_json_end(&report.json);
	return report_end(&report);
}
