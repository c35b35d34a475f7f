/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loading on request. libkmod is found when it is asked for, as everywhere; what it does is what
 * modprobe does, since that is made of it. Nothing is forced, nothing is unloaded, and a module that
 * this system keeps away by its configuration stays away. Nodes are made by the driver's own
 * program, which knows their rights; it loads modules too, so it is only run once they are there.
 */
#include "tool/doctor_load.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBKMOD "libkmod.so.2"
#define MAKER	"/usr/bin/nvidia-modprobe"

int doctor_kmod_find(struct doctor_kmod *ret_kmod)
{
#define NAME(name) #name,
	static const char *const names[] = {DOCTOR_KMOD(NAME)};
#undef NAME
	void *library = dlopen(LIBKMOD, RTLD_NOW), *found[sizeof(names) / sizeof(*names)];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		found[i] = library ? dlsym(library, names[i]) : NULL;
		if (!found[i])
			return -ENOENT;
	}
	memcpy(ret_kmod, found, sizeof(*ret_kmod));
	return 0;
}

/* Its exit status, as a shell has it; -errno if it could not be run. Stdout is for the report. */
static int run(const char *program, const char *const *argv)
{
	posix_spawn_file_actions_t actions;
	int err, status;
	pid_t pid;

	err = posix_spawn_file_actions_init(&actions);
	if (err)
		return -err;
	err = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (!err)
		err = posix_spawn_file_actions_adddup2(&actions, 2, 1);
	if (!err)
		err = posix_spawn(
			&pid, program, &actions, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* libkmod's functions that tell of a step get no argument of ours, or only one of them does. */
static const struct doctor_kmod *current;
static struct doctor_load *telling;

static void on_step(struct kmod_module *module, bool install, const char *options)
{
	(void)install;
	(void)options;
	*telling = (struct doctor_load){.how = telling->how};
	snprintf(telling->tried, sizeof(telling->tried), "%s",
		current->kmod_module_get_name(module));
}

static int on_command(struct kmod_module *module, const char *command, void *arg)
{
	const char *const argv[] = {"sh", "-c", command, NULL};
	int status;

	(void)arg;
	/* commands of modprobe.d(5) may ask for it */
	if (setenv("MODPROBE_MODULE", current->kmod_module_get_name(module), 1))
		return -errno;
	status = run("/bin/sh", argv);
	unsetenv("MODPROBE_MODULE");
	telling->status = status;
	snprintf(telling->command, sizeof(telling->command), "%s", command);
	return status ? -EINVAL : 0;
}

static void say_nothing(void *data, int priority, const char *file, int line,
	const char *fn, const char *format, va_list args)
{
	(void)data, (void)priority, (void)file, (void)line, (void)fn, (void)format,
		(void)args;
}

/* In the kernel, by the name that it has there: that of its file may be another. */
static bool is_live(
	const struct doctor_kmod *kmod, struct kmod_ctx *ctx, const char *name)
{
	struct kmod_module *module = NULL;
	int state;

	if (kmod->kmod_module_new_from_name(ctx, name, &module) < 0)
		return false;
	state = kmod->kmod_module_get_initstate(module);
	kmod->kmod_module_unref(module);
	return state == KMOD_MODULE_LIVE || state == KMOD_MODULE_BUILTIN;
}

static int insert(const struct doctor_kmod *kmod, const struct kmod_list *list)
{
	const struct kmod_list *item;
	int err = 0;

	for (item = list; item && !err; item = kmod->kmod_list_next(list, item)) {
		struct kmod_module *module = kmod->kmod_module_get_module(item);

		err = kmod->kmod_module_probe_insert_module(module,
			KMOD_PROBE_APPLY_BLACKLIST, NULL, on_command, NULL, on_step);
		kmod->kmod_module_unref(module);
	}
	return err;
}

void doctor_load_module(const struct doctor_kmod *kmod, struct kmod_ctx *ctx,
	const char *name, struct doctor_load *ret_load)
{
	struct doctor_load load = {.how = DOCTOR_LOAD_ALREADY};
	struct kmod_list *list = NULL;

	current = kmod;
	telling = &load;
	if (is_live(kmod, ctx, name))
		goto done;
	load.how = DOCTOR_LOAD_NO_MODULE;
	load.err = kmod->kmod_module_new_from_lookup(ctx, name, &list);
	/* -ENOSYS: there is no folder of modules for this kernel */
	if (load.err < 0 && load.err != -ENOENT && load.err != -ENOSYS)
		load.how = DOCTOR_LOAD_UNREADABLE;
	if (load.err < 0 || !list)
		goto done;
	load.err = insert(kmod, list);
	kmod->kmod_module_unref_list(list);
	if (load.err > 0)
		load.how = DOCTOR_LOAD_BLACKLISTED;
	else if (load.err && load.status)
		load.how = DOCTOR_LOAD_COMMAND;
	else if (load.err && load.err != -EEXIST)
		load.how = DOCTOR_LOAD_FAILED;
	else
		load.how = is_live(kmod, ctx, name) ? DOCTOR_LOAD_DONE
						    : DOCTOR_LOAD_NOT_THERE;
done:
	telling = NULL;
	*ret_load = load;
}

static bool wants_node(const struct glake_module *module)
{
	return module->state == GLAKE_MODULE_NO_NODE ||
		module->state == GLAKE_MODULE_STALE_NODE;
}

/* The number after "Device Minor:" of a file that the driver writes; -1: there is none. */
static int minor_in(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[256];
	int found = -1;

	while (file && found < 0 && fgets(line, sizeof(line), file))
		if (sscanf(line, "Device Minor: %9d", &found) != 1)
			found = -1;
	if (file)
		fclose(file);
	return found;
}

static void find_gpus(const char *root, bool missing[DOCTOR_MINORS])
{
	char path[512];
	struct dirent *entry;
	DIR *dir;
	int minor;

	snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus", root);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s/information",
			root, entry->d_name);
		minor = *entry->d_name == '.' ? -1 : minor_in(path);
		if (minor < 0 || minor >= DOCTOR_MINORS)
			continue;
		snprintf(path, sizeof(path), "%s/dev/nvidia%d", root, minor);
		missing[minor] = access(path, F_OK) && errno == ENOENT;
	}
	if (dir)
		closedir(dir);
}

void doctor_find_missing(const char *root, const struct glake_module *modules,
	const struct glake_uvm_tools *tools, struct doctor_missing *ret_missing)
{
	*ret_missing = (struct doctor_missing){.control = wants_node(&modules[0]),
		.uvm = wants_node(&modules[1]),
		.tools = tools->state == GLAKE_UVM_NO_NODE};
	if (modules[0].state != GLAKE_MODULE_ABSENT)
		find_gpus(root, ret_missing->gpu);
}

static void make(const char *program, const char *first, const char *second,
	struct doctor_made *made)
{
	const char *const argv[] = {"nvidia-modprobe", first, second, NULL};

	if (made->how == DOCTOR_MADE_FAILED || made->how == DOCTOR_MADE_NO_PROGRAM)
		return;
	if (access(program, X_OK)) {
		made->how = DOCTOR_MADE_NO_PROGRAM;
		return;
	}
	made->status = run(program, argv);
	made->how = made->status ? DOCTOR_MADE_FAILED : DOCTOR_MADE_DONE;
}

void doctor_make_nodes(const char *program, const struct doctor_missing *missing,
	struct doctor_made *ret_made)
{
	struct doctor_made made = {.how = DOCTOR_MADE_NEEDLESS};
	char option[16];

	if (missing->control)
		make(program, "-c=255", NULL, &made);
	for (int i = 0; i < DOCTOR_MINORS; i++) {
		snprintf(option, sizeof(option), "-c=%d", i);
		if (missing->gpu[i])
			make(program, option, NULL, &made);
	}
	/* few need the tools alone: where nobody makes them it is as without --load */
	if (missing->uvm || (missing->tools && !access(program, X_OK)))
		make(program, "-u", "-c=0", &made);
	*ret_made = made;
}

void doctor_look_again(const struct doctor_missing *missing, struct doctor_made *made)
{
	int gpu = 0;

	while (gpu < DOCTOR_MINORS && !missing->gpu[gpu])
		gpu++;
	if (missing->control)
		snprintf(made->left, sizeof(made->left), "/dev/nvidiactl");
	else if (gpu < DOCTOR_MINORS)
		snprintf(made->left, sizeof(made->left), "/dev/nvidia%d", gpu);
	else if (missing->uvm || missing->tools)
		snprintf(made->left, sizeof(made->left), "/dev/nvidia-uvm%s",
			missing->uvm ? "" : "-tools");
	if (made->how == DOCTOR_MADE_DONE && *made->left)
		made->how = DOCTOR_MADE_IN_VAIN;
}

/* nvidia, blacklisted, would come along with nvidia_uvm: blacklists are not for dependencies. */
void doctor_load_names(const struct doctor_kmod *kmod, struct kmod_ctx *ctx,
	const char *const *names, struct doctor_load *ret_loads)
{
	kmod->kmod_set_log_fn(ctx, say_nothing, NULL);
	doctor_load_module(kmod, ctx, names[0], &ret_loads[0]);
	if (ret_loads[0].how == DOCTOR_LOAD_DONE ||
		ret_loads[0].how == DOCTOR_LOAD_ALREADY)
		doctor_load_module(kmod, ctx, names[1], &ret_loads[1]);
	else
		ret_loads[1] = (struct doctor_load){.how = DOCTOR_LOAD_NOT_TRIED};
}

static void find_now(struct doctor_missing *ret_missing)
{
	struct glake_uvm_tools tools = {.sz = sizeof(tools)};
	struct glake_module modules[2];

	for (size_t i = 0; i < 2; i++) {
		modules[i] = (struct glake_module){.sz = sizeof(modules[i])};
		glake_module_get(i, &modules[i]);
	}
	glake_uvm_tools_get(&tools);
	doctor_find_missing("", modules, &tools, ret_missing);
}

void doctor_load_both(struct doctor_facts *facts)
{
	static const char *const names[2] = {"nvidia", "nvidia_uvm"};
	struct doctor_missing missing;
	struct kmod_ctx *ctx = NULL;
	struct doctor_kmod kmod;

	for (size_t i = 0; i < 2; i++)
		facts->loads[i].how = DOCTOR_LOAD_NO_LIBKMOD;
	if (!doctor_kmod_find(&kmod))
		ctx = kmod.kmod_new(NULL, NULL);
	if (ctx) {
		doctor_load_names(&kmod, ctx, names, facts->loads);
		kmod.kmod_unref(ctx);
	}
	find_now(&missing);
	doctor_make_nodes(MAKER, &missing, &facts->made);
	find_now(&missing);
	doctor_look_again(&missing, &facts->made);
}

/* What the kernel, or libkmod before it, answered. */
static const struct answer {
	int err;
	const char *text, *advice;
} answers[] = {
	{-EPERM,
		"the kernel lets nobody load it: locked down, or loading is switched off, or "
		"this container may not",
		"look at /sys/kernel/security/lockdown (sign the module then, or switch off "
		"Secure Boot) and at the sysctl kernel.modules_disabled; in a container, "
		"load it on the host"},
	{-EKEYREJECTED, "the kernel refuses its signature",
		"sign it by a key that the kernel knows, as one enrolled by mokutil, or switch "
		"off Secure Boot"},
	{-ENOKEY, "the kernel does not know the key that it is signed by",
		"enrol that key, as by mokutil, or switch off Secure Boot"},
	{-ENOENT, "unknown symbol in it, or unknown parameter, or a file is missing",
		"dmesg names the symbol or the parameter; run depmod -a, or build the module "
		"for this kernel again"},
	{-ENOEXEC, "it was built for another kernel, or its file is broken",
		"build or install NVIDIA's driver for this kernel"},
	{-ENODEV, "it found no GPU that it can drive",
		"dmesg | grep NVRM tells why: another driver may have the GPU, or it wants the "
		"other flavour of modules"},
	{-ENOSYS, "this kernel can load no modules",
		"use a kernel that can, or, in a virtual machine or sandbox, one that has them"},
	{-EINVAL,
		"it refuses to start: a parameter of a value that it does not take, or what "
		"dmesg tells",
		"look at the options for it in /etc/modprobe.d, and at dmesg"},
};

static void say_failure(const char *check, const char *name,
	const struct doctor_load *load, struct doctor *doctor)
{
	const char *tried = *load->tried ? load->tried : name;
	const char *of = strcmp(tried, name) ? ", which it depends on" : "";

	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		if (answers[i].err != load->err)
			continue;
		doctor_add(doctor, DOCTOR_PROBLEM, check, "%s%s: %s", tried, of,
			answers[i].text);
		doctor_advise(doctor, "%s", answers[i].advice);
		return;
	}
	doctor_add(doctor, DOCTOR_PROBLEM, check, "%s%s: not loaded: %s", tried, of,
		strerror(-load->err));
	doctor_advise(doctor, "dmesg may tell why");
}

static void judge_load(
	const char *name, const struct doctor_load *load, struct doctor *doctor)
{
	char check[64];

	snprintf(check, sizeof(check), "load.%s", name);
	switch (load->how) {
	case DOCTOR_LOAD_DONE:
		doctor_add(doctor, DOCTOR_OK, check, "%s was loaded", name);
		break;
	case DOCTOR_LOAD_ALREADY:
		doctor_add(doctor, DOCTOR_OK, check, "%s was already there", name);
		break;
	case DOCTOR_LOAD_NO_LIBKMOD:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"%s cannot be loaded without " LIBKMOD, name);
		doctor_advise(
			doctor, "install it (libkmod2, kmod-libs), or modprobe %s", name);
		break;
	case DOCTOR_LOAD_NO_MODULE:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"there is no module %s for this kernel in /lib/modules", name);
		doctor_advise(doctor,
			"install NVIDIA's driver for this kernel; in a "
			"container, load it on the host");
		break;
	case DOCTOR_LOAD_UNREADABLE:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"%s could not be looked for: %s", name, strerror(-load->err));
		doctor_advise(doctor,
			"see whether /lib/modules and the files of "
			"modprobe.d(5) can be read, and run depmod -a");
		break;
	case DOCTOR_LOAD_BLACKLISTED:
		doctor_add(doctor, DOCTOR_PROBLEM, check, "%s is blacklisted", name);
		doctor_advise(doctor,
			"modprobe %s loads it all the same; the line that blacklists it is in "
			"modprobe.d(5) or on the kernel's command line",
			name);
		break;
	case DOCTOR_LOAD_COMMAND:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"the install command of %s ended with status %d: %s", load->tried,
			load->status, load->command);
		doctor_advise(doctor,
			"it stands in modprobe.d(5); an install of /bin/false "
			"is how a system forbids a module");
		break;
	case DOCTOR_LOAD_NOT_THERE:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"no error, and yet %s is not there%s%s", name,
			*load->command ? ": its install command is " : "", load->command);
		doctor_advise(
			doctor, "look at modprobe.d(5) for what stands in its place");
		break;
	case DOCTOR_LOAD_NOT_TRIED:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"%s was not tried, since nvidia is not there", name);
		doctor_advise(doctor, "mend what load.nvidia tells");
		break;
	case DOCTOR_LOAD_FAILED:
		say_failure(check, name, load, doctor);
		break;
	}
}

static void judge_made(const struct doctor_made *made, struct doctor *doctor)
{
	switch (made->how) {
	case DOCTOR_MADE_NEEDLESS:
		break;
	case DOCTOR_MADE_DONE:
		doctor_add(doctor, DOCTOR_OK, "load.nodes", "nvidia-modprobe made nodes");
		break;
	case DOCTOR_MADE_NO_PROGRAM:
		doctor_add(doctor, DOCTOR_PROBLEM, "load.nodes",
			"device nodes are missing, and so is " MAKER
			", which makes them");
		doctor_advise(doctor,
			"install nvidia-modprobe; in a container, give it its "
			"GPUs, as --gpus all does");
		break;
	case DOCTOR_MADE_IN_VAIN:
		doctor_add(doctor,
			strstr(made->left, "tools") ? DOCTOR_NOTE : DOCTOR_PROBLEM,
			"load.nodes",
			"nvidia-modprobe did not fail, and yet there is no %s of the right "
			"number",
			made->left);
		doctor_advise(doctor,
			"look at NVreg_ModifyDeviceFiles in /etc/modprobe.d: with 0 the "
			"nodes are left to others; in a container, give it its GPUs");
		break;
	case DOCTOR_MADE_FAILED:
		if (made->status < 0)
			doctor_add(doctor, DOCTOR_PROBLEM, "load.nodes",
				"nvidia-modprobe could not be run: %s",
				strerror(-made->status));
		else
			doctor_add(doctor, DOCTOR_PROBLEM, "load.nodes",
				"nvidia-modprobe ended with status %d", made->status);
		doctor_advise(
			doctor, "what it said stands on stderr; dmesg may tell more");
		break;
	}
}

void doctor_judge_load(const struct doctor_facts *facts, struct doctor *doctor)
{
	if (!facts->load)
		return;
	doctor->part = "Loading";
	judge_load("nvidia", &facts->loads[0], doctor);
	judge_load("nvidia_uvm", &facts->loads[1], doctor);
	judge_made(&facts->made, doctor);
}
