/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loading for glakectl doctor: what a modprobe says and ends with that is a script here. Nothing is loaded.
 */
#include "unit/tool/machine.h"

#include "tool/doctor.h"

static const char *const names[2] = {"nvidia", "nvidia_uvm"};

static void make_program(struct tree *tree, const char *path, const char *text)
{
	tree_set(tree, "maker", text);
	if (chmod(path, 0700))
		tap_bail("no right to a file of ours");
}

/* With a modprobe that is these lines. `there`: folders of modules below sys/module of the machine. */
static void load(struct tree *tree, const char *lines)
{
	char program[128], text[512], root[128];

	snprintf(program, sizeof(program), "%s/maker", tree->dir);
	snprintf(root, sizeof(root), "%s/other", tree->dir);
	snprintf(text, sizeof(text),
		"#!/bin/sh\necho \"$@\" >>%s/said\nhere=%s/sys/module\n%s\n", tree->dir,
		root, lines);
	make_program(tree, program, text);
	doctor_load_names(program, root, names, facts.loads);
	facts.load = true;
	judge();
}

static void answers(struct tree *tree)
{
	static const struct {
		const char *said, *text, *advice;
	} all[] = {
		{"could not insert 'nvidia': Operation not permitted",
			"nvidia: the kernel lets nobody load it: locked down",
			"Secure Boot"},
		{"could not insert 'nvidia': Key was rejected by service",
			"refuses its signature", "sign it"},
		{"could not insert 'nvidia': Required key not available",
			"does not know the key", "enrol"},
		{"could not insert 'nvidia': Unknown symbol in module, or unknown parameter",
			"unknown symbol", "dmesg"},
		{"could not insert 'nvidia': Exec format error", "another kernel",
			"install"},
		{"could not insert 'nvidia': Invalid module format", "another kernel",
			"install"},
		{"could not insert 'nvidia': No such device", "no GPU", "NVRM"},
		{"could not insert 'nvidia': Kernel does not have module support",
			"can load no modules", "kernel that can"},
		{"could not insert 'nvidia': Invalid argument", "refuses to start",
			"modprobe.d"},
		{"could not insert 'ecdh_generic': Cannot allocate memory",
			"it was not loaded; status 1, modprobe: could not insert "
			"'ecdh_generic': Cannot",
			"dmesg"},
		{"Module nvidia not found in directory /lib/modules/6.1",
			"there is no module", "install NVIDIA's driver"},
		{"Error running install command 'exit 3' for module nvidia: retcode 3",
			"install command failed; status 1, modprobe: Error running install "
			"command 'exit 3'",
			"modprobe.d"},
		{"", "it was not loaded; status 1", "dmesg"},
	};
	char lines[256];

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		snprintf(lines, sizeof(lines), "%s%s%s\nexit 1",
			*all[i].said ? "echo \"modprobe: " : "", all[i].said,
			*all[i].said ? "\" >&2" : "");
		load(tree, lines);
		is("load.nvidia", DOCTOR_PROBLEM, all[i].text, all[i].advice);
		is("load.nvidia_uvm", DOCTOR_PROBLEM, "not tried", "load.nvidia");
	}
}

static void outcomes(struct tree *tree)
{
	char said[160], text[512];
	FILE *file;
	size_t n;

	load(tree, "exit 0");
	is("load.nvidia", DOCTOR_PROBLEM, "no error, and yet nvidia is not there",
		"modprobe nvidia loads it");
	load(tree, "kill -9 $$");
	is("load.nvidia", DOCTOR_PROBLEM, "status 137", "dmesg");
	tree_remove(tree, "said");
	load(tree, "mkdir -p $here/$2");
	is("load.nvidia", DOCTOR_OK, "nvidia was loaded", "");
	is("load.nvidia_uvm", DOCTOR_OK, "nvidia_uvm was loaded", "");
	none("load.nodes");
	load(tree, "exit 1");
	is("load.nvidia", DOCTOR_OK, "was already there", "");
	is("load.nvidia_uvm", DOCTOR_OK, "was already there", "");
	has_problems(0, 0);
	snprintf(said, sizeof(said), "%s/said", tree->dir);
	file = fopen(said, "re");
	n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	text[n] = 0;
	is_str(text, "-b nvidia\n-b nvidia_uvm\n",
		"nothing is forced, and what is there is left alone");
	if (file)
		fclose(file);
	tree_remove(tree, "said");
	tree_remove(tree, "other/sys/module/nvidia_uvm");
	load(tree, "echo \"Unknown symbol\" >&2; exit 1");
	is("load.nvidia", DOCTOR_OK, "was already there", "");
	is("load.nvidia_uvm", DOCTOR_PROBLEM, "nvidia_uvm: unknown symbol", "dmesg");
	tree_remove(tree, "said");
	doctor_load_names("/nowhere/modprobe", tree->dir,
		(const char *const[]){"none", "none_such"}, facts.loads);
	judge();
	is("load.nvidia", DOCTOR_PROBLEM, "could not be run", "install kmod");
	tree_remove(tree, "maker");
	facts.load = false;
	judge();
	none("load.nvidia");
	none("load.nvidia_uvm");
}

static void add_gpu(struct tree *tree, int n, const char *minor, bool has_node)
{
	char path[80], text[80];

	snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/0000:%02x:00.0/information",
		n);
	snprintf(text, sizeof(text), "Model: \t\t NVIDIA H200\nDevice Minor: \t %s\n",
		minor);
	tree_set(tree, path, text);
	snprintf(path, sizeof(path), "dev/nvidia%s", minor);
	if (has_node)
		tree_set(tree, path, "");
}

/* What is missing, by what there is of GPUs, modules and nodes. */
static void missing(struct tree *tree, struct doctor_missing *ret_missing)
{
	struct glake_module modules[2] = {
		{.state = GLAKE_MODULE_OK}, {.state = GLAKE_MODULE_OK}};
	struct glake_uvm_tools tools = {.state = GLAKE_UVM_OK};
	struct doctor_missing m;
	int count = 0;

	add_gpu(tree, 1, "0", true);
	add_gpu(tree, 2, "3", true);
	doctor_find_missing(tree->dir, modules, &tools, &m);
	for (int i = 0; i < DOCTOR_MINORS; i++)
		count += m.gpu[i];
	is_int(count + m.control + m.uvm + m.tools, 0, "nothing is missing");
	add_gpu(tree, 3, "7", false);
	add_gpu(tree, 4, "200", false);
	add_gpu(tree, 5, "255", false);
	add_gpu(tree, 6, "-1", false);
	add_gpu(tree, 7, "99999999999999999999", false);
	add_gpu(tree, 8, "none", false);
	tools.state = GLAKE_UVM_NO_NODE;
	doctor_find_missing(tree->dir, modules, &tools, &m);
	for (int i = 0; i < DOCTOR_MINORS; i++)
		count += m.gpu[i];
	is_int(count, 2, "two GPUs have no node; other numbers are none");
	ok(m.gpu[7] && m.gpu[200] && !m.control && !m.uvm && m.tools,
		"and the tools have none");
	modules[0].state = GLAKE_MODULE_NO_NODE;
	modules[1].state = GLAKE_MODULE_STALE_NODE;
	doctor_find_missing(tree->dir, modules, &tools, ret_missing);
	ok(ret_missing->control && ret_missing->uvm && ret_missing->gpu[7],
		"nodes of the modules too");
	modules[0].state = modules[1].state = GLAKE_MODULE_ABSENT;
	tools.state = GLAKE_UVM_NO_MODULE;
	doctor_find_missing(tree->dir, modules, &tools, &m);
	ok(!m.gpu[7] && !m.control && !m.uvm && !m.tools,
		"nothing of what is not loaded");
}

/* A script in place of nvidia-modprobe tells what it was called with, and how it ends. */
static void nodes(struct tree *tree)
{
	struct doctor_missing none_is = {0}, all;
	char program[128], said[160], text[256];
	FILE *file;
	size_t n;

	missing(tree, &all);
	facts.load = true;
	snprintf(program, sizeof(program), "%s/maker", tree->dir);
	snprintf(said, sizeof(said), "%s/said", tree->dir);
	doctor_make_nodes(program, &none_is, &facts.made);
	doctor_look_again(&none_is, &facts.made);
	is_int(facts.made.how, DOCTOR_MADE_NEEDLESS,
		"no node is missing of what is loaded");
	doctor_make_nodes(program, &(struct doctor_missing){.tools = true}, &facts.made);
	is_int(facts.made.how, DOCTOR_MADE_NEEDLESS, "tools are no need");
	doctor_make_nodes(program, &all, &facts.made);
	doctor_look_again(&all, &facts.made);
	judge();
	is("load.nodes", DOCTOR_PROBLEM, "and so is /usr/bin/nvidia-modprobe", "install");
	snprintf(text, sizeof(text), "#!/bin/sh\necho \"$@\" >>%s\ntest -z \"$FAIL\"\n",
		said);
	make_program(tree, program, text);
	doctor_make_nodes(program, &all, &facts.made);
	doctor_look_again(&none_is, &facts.made);
	judge();
	is("load.nodes", DOCTOR_OK, "made nodes", "");
	file = fopen(said, "re");
	n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	text[n] = 0;
	is_str(text, "-c=255\n-c=7\n-c=200\n-u -c=0\n", "for each what is its own");
	if (file)
		fclose(file);
	doctor_make_nodes(program, &(struct doctor_missing){.tools = true}, &facts.made);
	doctor_look_again(&(struct doctor_missing){.tools = true}, &facts.made);
	judge();
	is("load.nodes", DOCTOR_NOTE, "there is no /dev/nvidia-uvm-tools", "NVreg_");
	doctor_make_nodes(program, &all, &facts.made);
	all.control = false;
	doctor_look_again(&all, &facts.made);
	judge();
	is("load.nodes", DOCTOR_PROBLEM, "there is no /dev/nvidia7 of", "NVreg_");
	setenv("FAIL", "1", 1);
	doctor_make_nodes(program, &all, &facts.made);
	doctor_look_again(&all, &facts.made);
	judge();
	is("load.nodes", DOCTOR_PROBLEM, "ended with status 1", "stderr");
	unsetenv("FAIL");
	tree_remove(tree, "maker");
	tree_append(tree, "maker/", "", 0);
	doctor_make_nodes(program, &all, &facts.made);
	doctor_look_again(&all, &facts.made);
	judge();
	/* where valgrind runs it, the child cannot tell and ends with 127 */
	is("load.nodes", DOCTOR_PROBLEM, "nvidia-modprobe ", "stderr");
	ok(facts.made.status == -EACCES || facts.made.status == 127,
		"a program that cannot be run");
}

int main(void)
{
	struct tree tree;

	tap_plan_later();
	fit(&tree);
	look(&tree);
	answers(&tree);
	outcomes(&tree);
	without_cuda("the driver finds no GPU");
	nodes(&tree);
	tree_close(&tree);
	return tap_done();
}
