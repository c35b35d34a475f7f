/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loading on request, by modprobe: nothing is forced, nothing is unloaded, and a module that this system keeps
 * away by its configuration stays away. What it says is explained. Nodes are made by the driver's own
 * program, which knows their rights; it loads modules too, so it is only run once they are there.
 */
#include "tool/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOADER "/sbin/modprobe"
#define MAKER  "/usr/bin/nvidia-modprobe"

/* Its exit status, as a shell has it; -errno if it could not be run. Stdout is for the report; what it says
 * goes to a file, or as what this one says. */
static int run(const char *program, const char *const *argv, int said)
{
	posix_spawn_file_actions_t actions;
	int err, status;
	pid_t pid;

	err = posix_spawn_file_actions_init(&actions);
	if (err)
		return -err;
	err = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (!err)
		err = posix_spawn_file_actions_adddup2(&actions, said, 1);
	if (!err && said != 2)
		err = posix_spawn_file_actions_adddup2(&actions, said, 2);
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

static bool is_there(const char *root, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/sys/module/%s", root, name);
	return !access(path, F_OK);
}

/* -b: a module that is kept away by the configuration stays away. */
static void load_module(const char *program, const char *root, const char *name,
	struct doctor_load *ret_load)
{
	const char *const argv[] = {"modprobe", "-b", name, NULL};
	int said = memfd_create("glakectl", MFD_CLOEXEC);
	ssize_t length;

	*ret_load = (struct doctor_load){.how = DOCTOR_LOAD_ALREADY};
	if (is_there(root, name)) {
		close(said);
		return;
	}
	ret_load->status = run(program, argv, said);
	length = pread(said, ret_load->said, sizeof(ret_load->said) - 1, 0);
	ret_load->said[length < 0 ? 0 : length] = '\0';
	close(said);
	if (ret_load->status)
		ret_load->how = DOCTOR_LOAD_FAILED;
	else
		ret_load->how =
			is_there(root, name) ? DOCTOR_LOAD_DONE : DOCTOR_LOAD_NOT_THERE;
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
	made->status = run(program, argv, 2);
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
void doctor_load_names(const char *program, const char *root, const char *const *names,
	struct doctor_load *ret_loads)
{
	load_module(program, root, names[0], &ret_loads[0]);
	if (ret_loads[0].how <= DOCTOR_LOAD_ALREADY)
		load_module(program, root, names[1], &ret_loads[1]);
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

	doctor_load_names(LOADER, "", names, facts->loads);
	find_now(&missing);
	doctor_make_nodes(MAKER, &missing, &facts->made);
	find_now(&missing);
	doctor_look_again(&missing, &facts->made);
}

/* By what modprobe says: what the kernel answered, or itself before that. */
static const struct answer {
	const char *said, *text, *advice;
} answers[] = {
	{"Operation not permitted",
		"the kernel lets nobody load it: locked down, or loading is switched off, or "
		"this container may not",
		"look at /sys/kernel/security/lockdown (sign the module then, or switch off "
		"Secure Boot) and at the sysctl kernel.modules_disabled; in a container, "
		"load it on the host"},
	{"rejected by service", "the kernel refuses its signature",
		"sign it by a key that the kernel knows, as one enrolled by mokutil, or switch "
		"off Secure Boot"},
	{"key not available", "the kernel does not know the key that it is signed by",
		"enrol that key, as by mokutil, or switch off Secure Boot"},
	{"Unknown symbol",
		"unknown symbol in it, or unknown parameter, or a file is missing",
		"dmesg names the symbol or the parameter; run depmod -a, or build the module "
		"for this kernel again"},
	/* "Invalid module format", "Exec format error" */
	{"format", "it was built for another kernel, or its file is broken",
		"build or install NVIDIA's driver for this kernel"},
	{"No such device", "it found no GPU that it can drive",
		"dmesg | grep NVRM tells why: another driver may have the GPU, or it wants the "
		"other flavour of modules"},
	{"does not have module support", "this kernel can load no modules",
		"use a kernel that can, or, in a virtual machine or sandbox, one that has them"},
	{"Function not implemented", "this kernel can load no modules",
		"use a kernel that can, or, in a virtual machine or sandbox, one that has them"},
	{"Invalid argument",
		"it refuses to start: a parameter of a value that it does not take, or what "
		"dmesg tells",
		"look at the options for it in /etc/modprobe.d, and at dmesg"},
	{"not found in",
		"there is no module of that name for this kernel in /lib/modules",
		"install NVIDIA's driver for this kernel; in a container, load it on the host"},
	{"install command", "its install command failed",
		"it stands in modprobe.d(5); an install of /bin/false is how a system forbids "
		"a module"},
	{"", "it was not loaded", "dmesg may tell why"},
};

static void judge_failure(const char *check, const char *name,
	const struct doctor_load *load, struct doctor *doctor)
{
	const struct answer *answer = answers;

	if (load->status < 0) {
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"%s cannot be loaded: " LOADER " could not be run: %s", name,
			strerror(-load->status));
		doctor_advise(doctor, "install kmod, or load it on the host");
		return;
	}
	while (!strstr(load->said, answer->said))
		answer++;
	doctor_add(doctor, DOCTOR_PROBLEM, check, "%s: %s; status %d%s%.*s", name,
		answer->text, load->status, *load->said ? ", " : "",
		(int)strcspn(load->said, "\n"), load->said);
	doctor_advise(doctor, "%s", answer->advice);
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
	case DOCTOR_LOAD_FAILED:
		judge_failure(check, name, load, doctor);
		break;
	case DOCTOR_LOAD_NOT_THERE:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"no error, and yet %s is not there: it is blacklisted, or a command "
			"stands in its place",
			name);
		doctor_advise(doctor,
			"modprobe %s loads it all the same where it is blacklisted; the line that "
			"keeps it away is in modprobe.d(5) or on the kernel's command line",
			name);
		break;
	case DOCTOR_LOAD_NOT_TRIED:
		doctor_add(doctor, DOCTOR_PROBLEM, check,
			"%s was not tried, since nvidia is not there", name);
		doctor_advise(doctor, "mend what load.nvidia tells");
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
