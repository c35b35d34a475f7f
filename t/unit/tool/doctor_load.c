/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loading for glakectl doctor: every answer by a libkmod that is made up here, and by the real one
 * names that no kernel has, with a configuration that blacklists them and has commands for them.
 * Nothing is loaded.
 */
#include "unit/tool/machine.h"

#include "tool/doctor_load.h"

/* A libkmod for one pair of modules; a pointer to a module is a pointer to its name. */
static struct {
	int lookup;	      /* its answer */
	bool found;	      /* what it finds */
	int insert;	      /* the answer to loading */
	const char *command;  /* runs in its place */
	const char *stops_at; /* the dependency that it gets to */
	bool soft;	      /* the command is of a module that it can do without */
	bool live[2];	      /* are in the kernel */
	bool takes;	      /* loading makes them so */
	int calls;
	unsigned int flags;
} fake;

static const char *const names[2] = {"nvidia", "nvidia_uvm"};

static struct kmod_list *fake_next(
	const struct kmod_list *list, const struct kmod_list *current)
{
	(void)list, (void)current;
	return NULL;
}

static int fake_state(const struct kmod_module *module)
{
	size_t which = strcmp((const char *)module, names[0]) ? 1 : 0;

	return fake.live[which] ? (int)KMOD_MODULE_LIVE : -ENOENT;
}

static struct kmod_module *fake_module(const struct kmod_list *entry)
{
	return (struct kmod_module *)entry;
}

static const char *fake_name(const struct kmod_module *module)
{
	return (const char *)module;
}

static int fake_lookup(struct kmod_ctx *ctx, const char *name, struct kmod_list **list)
{
	(void)ctx;
	if (fake.found)
		*list = (struct kmod_list *)name;
	return fake.lookup;
}

static int fake_by_name(
	struct kmod_ctx *ctx, const char *name, struct kmod_module **ret_module)
{
	(void)ctx;
	*ret_module = (struct kmod_module *)name;
	return 0;
}

static int fake_insert(struct kmod_module *module, unsigned int flags,
	const char *options,
	int (*run_install)(struct kmod_module *, const char *, void *), const void *data,
	void (*print_action)(struct kmod_module *, bool, const char *))
{
	size_t which = strcmp((const char *)module, names[0]) ? 1 : 0;

	(void)options, (void)data;
	fake.calls++;
	fake.flags = flags;
	if (fake.insert > 0)
		return fake.insert;
	print_action(
		fake.stops_at ? (struct kmod_module *)fake.stops_at : module, false, "");
	if (fake.command && !fake.soft)
		return run_install(module, fake.command, NULL);
	if (fake.command && run_install(module, fake.command, NULL))
		print_action(module, false, "");
	fake.live[which] |= fake.takes;
	return fake.insert;
}

static struct kmod_module *fake_unref(struct kmod_module *module)
{
	return module;
}

static int fake_unref_list(struct kmod_list *list)
{
	(void)list;
	return 0;
}

static void fake_log(struct kmod_ctx *ctx,
	void (*log_fn)(
		void *, int, const char *, int, const char *, const char *, va_list),
	const void *data)
{
	(void)ctx, (void)log_fn, (void)data;
}

static const struct doctor_kmod made_up = {
	.kmod_list_next = fake_next,
	.kmod_module_get_initstate = fake_state,
	.kmod_module_get_module = fake_module,
	.kmod_module_get_name = fake_name,
	.kmod_module_new_from_lookup = fake_lookup,
	.kmod_module_new_from_name = fake_by_name,
	.kmod_module_probe_insert_module = fake_insert,
	.kmod_module_unref = fake_unref,
	.kmod_module_unref_list = fake_unref_list,
	.kmod_set_log_fn = fake_log,
};

static void load(void)
{
	doctor_load_names(&made_up, NULL, names, facts.loads);
	facts.load = true;
	judge();
}

static void answers(void)
{
	static const struct {
		int err;
		const char *text, *advice;
	} all[] = {
		{-EPERM, "nvidia: the kernel lets nobody load it: locked down",
			"Secure Boot"},
		{-EKEYREJECTED, "refuses its signature", "sign it"},
		{-ENOKEY, "does not know the key", "enrol"},
		{-ENOENT, "unknown symbol", "dmesg"},
		{-ENOEXEC, "another kernel", "install"},
		{-ENODEV, "no GPU", "NVRM"},
		{-ENOSYS, "can load no modules", "kernel that can"},
		{-EINVAL, "refuses to start", "modprobe.d"},
		{-ENOMEM, "not loaded: Cannot allocate memory", "dmesg"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		memset(&fake, 0, sizeof(fake));
		fake.found = true;
		fake.insert = all[i].err;
		load();
		is("load.nvidia", DOCTOR_PROBLEM, all[i].text, all[i].advice);
		is("load.nvidia_uvm", DOCTOR_PROBLEM, "not tried", "load.nvidia");
		is_int(fake.calls, 1, "nothing is tried twice");
		fake.stops_at = "ecdh_generic";
		load();
		is("load.nvidia", DOCTOR_PROBLEM,
			"ecdh_generic, which it depends on: ", all[i].advice);
	}
}

static void outcomes(void)
{
	memset(&fake, 0, sizeof(fake));
	load();
	is("load.nvidia", DOCTOR_PROBLEM, "no module nvidia", "install NVIDIA's driver");
	for (int i = 0; i < 2; i++) {
		fake.lookup = i ? -ENOSYS : -ENOENT;
		load();
		is("load.nvidia", DOCTOR_PROBLEM, "no module nvidia",
			"install NVIDIA's driver");
	}
	fake.lookup = -EACCES;
	load();
	is("load.nvidia", DOCTOR_PROBLEM,
		"nvidia could not be looked for: Permission denied", "modprobe.d");
	is_int(fake.calls, 0, "what is not there is not loaded");
	fake.lookup = 0;
	fake.found = true;
	fake.insert = KMOD_PROBE_APPLY_BLACKLIST;
	load();
	is("load.nvidia", DOCTOR_PROBLEM, "nvidia is blacklisted", "modprobe nvidia");
	is("load.nvidia_uvm", DOCTOR_PROBLEM, "not tried", "load.nvidia");
	is_int(fake.flags, KMOD_PROBE_APPLY_BLACKLIST, "nothing is forced");
	fake.insert = 0;
	load();
	is("load.nvidia", DOCTOR_PROBLEM, "no error, and yet nvidia is not there",
		"modprobe.d");
	fake.command = "exit 3";
	load();
	is("load.nvidia", DOCTOR_PROBLEM, "nvidia ended with status 3: exit 3",
		"modprobe.d");
	fake.command = "kill -9 $$";
	load();
	is("load.nvidia", DOCTOR_PROBLEM, "status 137", "modprobe.d");
	fake.command = "test \"$MODPROBE_MODULE\" = nvidia";
	load();
	is("load.nvidia", DOCTOR_PROBLEM, "its install command is test", "modprobe.d");
	fake.soft = true;
	fake.command = "exit 3";
	fake.insert = -ENODEV;
	load();
	is("load.nvidia", DOCTOR_PROBLEM, "nvidia: it found no GPU", "NVRM");
	fake.command = NULL;
	fake.takes = true;
	fake.insert = -EEXIST;
	load();
	is("load.nvidia", DOCTOR_OK, "nvidia was loaded", "");
	is("load.nvidia_uvm", DOCTOR_OK, "nvidia_uvm was loaded", "");
	none("load.nodes");
	fake.calls = 0;
	load();
	is("load.nvidia", DOCTOR_OK, "was already there", "");
	is("load.nvidia_uvm", DOCTOR_OK, "was already there", "");
	is_int(fake.calls, 0, "what is there is left alone");
	has_problems(0, 0);
	fake.live[1] = fake.takes = false;
	fake.insert = -ENOENT;
	load();
	is("load.nvidia", DOCTOR_OK, "was already there", "");
	is("load.nvidia_uvm", DOCTOR_PROBLEM, "nvidia_uvm: unknown symbol", "dmesg");
	for (size_t i = 0; i < 2; i++)
		facts.loads[i] = (struct doctor_load){.how = DOCTOR_LOAD_NO_LIBKMOD};
	judge();
	is("load.nvidia", DOCTOR_PROBLEM, "without libkmod.so.2", "install it");
	facts.load = false;
	judge();
	none("load.nvidia");
	none("load.nvidia_uvm");
}

static void make_program(struct tree *tree, const char *path, const char *text)
{
	tree_set(tree, "maker", text);
	if (chmod(path, 0700))
		tap_bail("no right to a file of ours");
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

/* By the real libkmod: its lookup, its configuration, its flags. */
static void for_real(struct tree *tree)
{
	static const char *const none_such[2] = {"glake_none", "glake_uvm_none"};
	static const char *const kept_away[2] = {"glake_black", "glake_uvm_none"};
	static const char *const replaced[2] = {"glake_cmd", "glake_uvm_none"};
	char modules[128], conf[128];
	const char *const confs[] = {conf, NULL};
	struct doctor_kmod kmod;
	struct kmod_ctx *ctx;

	if (doctor_kmod_find(&kmod)) {
		tap_skip("the real libkmod", "libkmod.so.2 is not installed");
		return;
	}
	tree_append(tree, "modules/", "", 0);
	tree_set(tree, "conf/one.conf",
		"install glake_black /bin/true\nblacklist glake_black\n"
		"install glake_cmd exit 7\n");
	snprintf(modules, sizeof(modules), "%s/modules", tree->dir);
	snprintf(conf, sizeof(conf), "%s/conf", tree->dir);
	ctx = kmod.kmod_new(modules, confs);
	if (!ctx)
		tap_bail("libkmod gives no context");
	doctor_load_names(&kmod, ctx, none_such, facts.loads);
	is_int(facts.loads[0].how, DOCTOR_LOAD_NO_MODULE, "libkmod knows no such module");
	doctor_load_names(&kmod, ctx, kept_away, facts.loads);
	is_int(facts.loads[0].how, DOCTOR_LOAD_BLACKLISTED, "it keeps a module away");
	doctor_load_names(&kmod, ctx, replaced, facts.loads);
	is_int(facts.loads[0].how, DOCTOR_LOAD_COMMAND,
		"and runs a command in its place");
	is_int(facts.loads[0].status, 7, "which fails");
	is_str(facts.loads[0].tried, "glake_cmd", "of this module");
	is_int(facts.loads[1].how, DOCTOR_LOAD_NOT_TRIED, "and the other is not tried");
	kmod.kmod_unref(ctx);
}

int main(void)
{
	struct tree tree;

	tap_plan_later();
	fit(&tree);
	look(&tree);
	answers();
	outcomes();
	without_cuda("the driver finds no GPU");
	nodes(&tree);
	for_real(&tree);
	tree_close(&tree);
	return tap_done();
}
