/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The driver: does CUDA work, and where it does not, what stands in the way: the GPUs on the bus,
 * the kernel modules, their nodes, the library. Where CUDA works whatever looks odd is a note, and
 * where the software device was asked for whatever is missing is one.
 */
#include "tool/doctor.h"

#include <stdio.h>
#include <string.h>

static bool works(const struct doctor_facts *facts)
{
	return facts->opened && !facts->soft;
}

static bool in(const struct doctor_facts *facts, const char *sandbox)
{
	return !strcmp(facts->host.sandbox, sandbox);
}

/* Of something that CUDA needs and that is not there. */
static enum doctor_status missing(const struct doctor_facts *facts)
{
	return works(facts) || facts->soft_wanted ? DOCTOR_NOTE : DOCTOR_PROBLEM;
}

/* A container has what it was given, whatever the machine has. */
static bool contained(const struct doctor_facts *facts)
{
	return *facts->host.sandbox && !in(facts, "wsl");
}

#define GIVE                                                                             \
	"start the container with its GPUs, as --gpus all and NVIDIA's container toolkit do"

static void judge_bus(const struct doctor_facts *facts, struct doctor *doctor)
{
	const struct glake_host *host = &facts->host;
	int rest = host->gpus - host->gpus_bound;

	/* Under WSL GPUs are on no bus, and some sandboxes show none. */
	if (host->gpus < 0 || (!host->gpus && (works(facts) || in(facts, "wsl"))))
		return;
	if (!host->gpus) {
		doctor_add(doctor, missing(facts), "driver.bus",
			"no GPU of NVIDIA is on the PCI bus");
		doctor_advise(doctor,
			"use a machine that has one, or give this one a GPU; "
			"the software device (--driver soft) needs none");
		return;
	}
	if (!rest) {
		doctor_add(doctor, DOCTOR_OK, "driver.bus", "%d of NVIDIA on the PCI bus",
			host->gpus);
		return;
	}
	doctor_add(doctor, host->gpus_bound ? DOCTOR_NOTE : missing(facts), "driver.bus",
		"%d of %d GPUs on the PCI bus are driven by %s, not by the module nvidia",
		rest, host->gpus, *host->gpus_other ? host->gpus_other : "nothing");
	if (!strcmp(host->gpus_other, "nouveau"))
		doctor_advise(doctor, "blacklist nouveau in /etc/modprobe.d and reboot");
	else if (*host->gpus_other)
		doctor_advise(doctor,
			"unbind them from %s if they are meant for this system",
			host->gpus_other);
	else
		doctor_advise(
			doctor, "modprobe nvidia; if that refuses them, dmesg tells why");
}

static void advise_load(const struct doctor_facts *facts,
	const struct glake_module *module, struct doctor *doctor)
{
	if (contained(facts))
		doctor_advise(doctor, "load it on the host: modprobe %s", module->name);
	else if (*module->disk_version)
		doctor_advise(doctor, "modprobe %s; if that fails, dmesg tells why",
			module->name);
	else
		doctor_advise(doctor,
			"install NVIDIA's driver for this kernel, then modprobe %s",
			module->name);
}

static void advise_module(const struct doctor_facts *facts,
	const struct glake_module *module, struct doctor *doctor)
{
	switch (module->state) {
	case GLAKE_MODULE_ABSENT:
		advise_load(facts, module, doctor);
		break;
	case GLAKE_MODULE_NO_NODE:
	case GLAKE_MODULE_STALE_NODE:
		if (contained(facts))
			doctor_advise(doctor, GIVE);
		else
			doctor_advise(doctor, "run nvidia-modprobe %s as root",
				strcmp(module->name, "nvidia") ? "-u -c 0" : "-c 255");
		break;
	case GLAKE_MODULE_NO_PERMISSION:
		doctor_advise(doctor,
			"nodes of the driver usually are open to all: look at the rules of "
			"udev and, but for nvidia-uvm, at NVreg_DeviceFileMode; or join the "
			"group that owns it");
		break;
	case GLAKE_MODULE_MISMATCH:
		doctor_advise(doctor, "reload both modules, or reboot");
		break;
	default:
		doctor_advise(doctor, "mount /proc and /sys for the process");
	}
}

static void judge_module(const struct doctor_facts *facts,
	const struct glake_module *module, struct doctor *doctor)
{
	const char *comma = *module->flavour ? ", " : "";
	char name[64];

	snprintf(name, sizeof(name), "module.%s", module->name);
	if (module->state != GLAKE_MODULE_OK) {
		/* the driver itself is on the other side of WSL */
		if (in(facts, "wsl") && module->state == GLAKE_MODULE_ABSENT)
			return;
		doctor_add(doctor, missing(facts), name, "%s", module->text);
		advise_module(facts, module, doctor);
		return;
	}
	doctor_add(doctor, *module->disk_version ? DOCTOR_NOTE : DOCTOR_OK, name,
		"%s%s%s, %s", *module->version ? module->version : "version not known",
		comma, module->flavour, module->text);
	if (*module->disk_version)
		doctor_advise(doctor,
			"reboot before the library of the driver is the newer one "
			"too, for the two do not go together");
}

/* They serve a program that wants to know what managed memory does, and none else. */
static void judge_tools(const struct doctor_facts *facts, struct doctor *doctor)
{
	const struct glake_uvm_tools *tools = &facts->tools;

	switch (tools->state) {
	case GLAKE_UVM_OK:
		doctor_add(doctor, DOCTOR_OK, "module.tools",
			"nvidia_uvm counts for who asks, interface %s",
			tools->generation);
		return;
	case GLAKE_UVM_UNKNOWN:
		doctor_add(doctor, DOCTOR_NOTE, "module.tools", "%s", tools->text);
		doctor_advise(doctor,
			"nothing, unless managed memory is to be counted: "
			"a newer glake may know them");
		return;
	case GLAKE_UVM_NO_NODE:
	case GLAKE_UVM_NO_PERMISSION:
		doctor_add(doctor, DOCTOR_NOTE, "module.tools", "%s", tools->text);
		doctor_advise(doctor,
			"nothing, unless managed memory is to be counted: %s",
			contained(facts) ? GIVE
				: tools->state == GLAKE_UVM_NO_NODE
				? "then run nvidia-modprobe -u -c 0 as root"
				: "then give this user the right to the node");
		return;
	default: /* the line of the module says it */
		return;
	}
}

/* Where the modules have no node, theirs is the line that says so. */
static void judge_nodes(const struct doctor_facts *facts, struct doctor *doctor)
{
	const struct glake_host *host = &facts->host;

	if (facts->modules[0].state == GLAKE_MODULE_ABSENT || in(facts, "wsl"))
		return;
	if (!host->gpu_nodes) {
		doctor_add(doctor, missing(facts), "driver.nodes", "no /dev/nvidia0");
		doctor_advise(doctor, "%s",
			contained(facts) ? GIVE : "run nvidia-modprobe -c 0 as root");
	} else if (host->gpu_nodes_usable < host->gpu_nodes) {
		doctor_add(doctor, host->gpu_nodes_usable ? DOCTOR_NOTE : missing(facts),
			"driver.nodes",
			"%d of %d nodes /dev/nvidia<n> may not be used by us",
			host->gpu_nodes - host->gpu_nodes_usable, host->gpu_nodes);
		doctor_advise(
			doctor, "give this user the right to them, if it shall use them");
	} else if (host->gpus_bound > host->gpu_nodes) {
		doctor_add(doctor, DOCTOR_NOTE, "driver.nodes",
			"%d of the machine's %d GPUs have a node here", host->gpu_nodes,
			host->gpus_bound);
		doctor_advise(doctor, "%s",
			contained(facts)
				? "give the container more GPUs if it shall use more"
				: "run nvidia-modprobe -c <n> as root for each");
	} else {
		doctor_add(doctor, DOCTOR_OK, "driver.nodes", "%d, all of them usable",
			host->gpu_nodes);
	}
}

static void judge_library(const struct doctor_facts *facts, struct doctor *doctor)
{
	const char *kernel = facts->modules[0].version;
	const struct glake_host *host = &facts->host;

	if (!*host->libcuda_path && works(facts)) {
		doctor_add(
			doctor, DOCTOR_OK, "driver.libcuda", "found by the loader alone");
	} else if (!*host->libcuda_path) {
		doctor_add(doctor, missing(facts), "driver.libcuda",
			"none of the usual folders has libcuda.so.1");
		doctor_advise(doctor, "%s",
			contained(facts)
				? GIVE
				: "install the libraries of NVIDIA's driver, of the "
				  "version of its kernel modules");
	} else if (*host->libcuda && *kernel && strcmp(host->libcuda, kernel)) {
		doctor_add(doctor, missing(facts), "driver.libcuda",
			"%s has version %s, the module nvidia %s", host->libcuda_path,
			host->libcuda, kernel);
		doctor_advise(doctor, "%s",
			works(facts)
				? "nothing, if this is NVIDIA's package for forward "
				  "compatibility; else update both alike and reboot"
				: "load the modules of that version, or reboot; in a "
				  "container, use the library of its host");
	} else {
		doctor_add(doctor, DOCTOR_OK, "driver.libcuda", "%s%s%s", host->libcuda,
			*host->libcuda ? ", " : "", host->libcuda_path);
	}
}

static void judge_visible(const struct doctor_facts *facts, struct doctor *doctor)
{
	if (!facts->visible)
		return;
	if (*facts->visible && strcmp(facts->visible, "-1")) {
		doctor_add(doctor, DOCTOR_OK, "driver.visible",
			"CUDA_VISIBLE_DEVICES=%.200s: programs see these alone",
			facts->visible);
		return;
	}
	doctor_add(doctor, missing(facts), "driver.visible",
		"CUDA_VISIBLE_DEVICES is set to none and hides all GPUs");
	doctor_advise(doctor, "unset CUDA_VISIBLE_DEVICES");
}

static void judge_open(const struct doctor_facts *facts, struct doctor *doctor)
{
	if (works(facts))
		doctor_add(doctor, DOCTOR_OK, "driver", "CUDA driver API %d.%d, %d GPU%s",
			facts->driver.version / 1000, facts->driver.version % 1000 / 10,
			facts->gpu_count, facts->gpu_count == 1 ? "" : "s");
	else if (!facts->opened)
		doctor_add(doctor, DOCTOR_PROBLEM, "driver",
			"the library does not open: %s", facts->failure);
	else if (facts->soft_wanted)
		doctor_add(doctor, DOCTOR_NOTE, "driver",
			"this is about the software device, which was asked for");
	else
		doctor_add(doctor, DOCTOR_PROBLEM, "driver", "no GPU is used: %s",
			facts->driver.fallback);
}

/* What to do about the driver depends on what was found behind it, from check `first` on. */
static const char *first_step(
	const struct doctor_facts *facts, const struct doctor *doctor, size_t first)
{
	if (facts->conf_errors)
		return "mend the configuration first, see the last line";
	for (size_t i = first; i < doctor->count; i++)
		if (doctor->checks[i].status == DOCTOR_PROBLEM)
			return "mend what is a problem below";
	return "run nvidia-smi; the kernel's log (dmesg | grep NVRM) may tell more";
}

void doctor_judge_driver(const struct doctor_facts *facts, struct doctor *doctor)
{
	struct doctor_check *driver;
	const char *advice = "";
	size_t first;

	doctor->part = "Driver";
	judge_open(facts, doctor);
	first = doctor->count;
	driver = &doctor->checks[first - 1];
	judge_visible(facts, doctor);
	judge_bus(facts, doctor);
	for (size_t i = 0; i < sizeof(facts->modules) / sizeof(*facts->modules); i++)
		judge_module(facts, &facts->modules[i], doctor);
	judge_tools(facts, doctor);
	judge_nodes(facts, doctor);
	judge_library(facts, doctor);
	if (*facts->host.sandbox)
		doctor_add(doctor, DOCTOR_OK, "driver.sandbox",
			"this process runs in: %s", facts->host.sandbox);

	if (driver->status == DOCTOR_NOTE)
		advice = "--driver cuda tells about GPUs";
	else if (driver->status == DOCTOR_PROBLEM)
		advice = first_step(facts, doctor, first);
	snprintf(driver->advice, sizeof(driver->advice), "%s", advice);
}

/*
 * Parameters of nvidia_uvm with values that cost memory, speed or safety. Drivers differ in which
 * they have; one that cannot be read is not judged.
 */

/* Which values of a parameter hurt. */
enum hurts {
	IF_OFF,	  /* 0, N */
	IF_ON,	  /* anything else */
	IF_SYSTEM /* "sys" */
};

static const struct parameter {
	const char *name;
	enum hurts hurts;
	enum doctor_status status;
	const char *usual, *why;
} parameters[] = {
	{"uvm_global_oversubscription", IF_OFF, DOCTOR_NOTE, "1",
		"managed memory of programs cannot be moved out of a GPU, so pages run out "
		"earlier"},
	{"uvm_page_table_location", IF_SYSTEM, DOCTOR_NOTE, "vid",
		"page tables lie in memory of the host, which slows all accesses down"},
	{"uvm_exp_gpu_cache_peermem", IF_ON, DOCTOR_PROBLEM, "0",
		"an experiment of the driver that may break contents of memory"},
	{"uvm_exp_gpu_cache_sysmem", IF_ON, DOCTOR_PROBLEM, "0",
		"an experiment of the driver that may break contents of memory"},
	{"uvm_enable_builtin_tests", IF_ON, DOCTOR_PROBLEM, "0",
		"the tests of the module are open to every program on this machine"},
	{"uvm_fault_force_sysmem", IF_ON, DOCTOR_NOTE, "0",
		"managed memory that a GPU touches stays in memory of the host"},
	{"uvm_perf_prefetch_enable", IF_OFF, DOCTOR_NOTE, "1",
		"managed memory comes to a GPU a fault at a time"},
	{"uvm_perf_thrashing_enable", IF_OFF, DOCTOR_NOTE, "1",
		"managed memory that two processors use goes to and fro"},
	{"uvm_perf_map_remote_on_eviction", IF_OFF, DOCTOR_NOTE, "1",
		"managed memory that was moved out is not mapped from where it went"},
	{"uvm_leak_checker", IF_ON, DOCTOR_NOTE, "0", "the module checks itself, slowly"},
	{"uvm_debug_prints", IF_ON, DOCTOR_NOTE, "0",
		"the module fills the kernel's log, slowly"},
};

static bool is_off(const char *value)
{
	return !strcmp(value, "0") || !strcmp(value, "N");
}

static bool hurts(const struct parameter *parameter, const char *value)
{
	switch (parameter->hurts) {
	case IF_OFF:
		return is_off(value);
	case IF_ON:
		return !is_off(value);
	case IF_SYSTEM:
		return !strcmp(value, "sys");
	}
	return false;
}

void doctor_judge_parameters(const struct doctor_facts *facts, struct doctor *doctor)
{
	size_t read = 0, bad = 0;
	char name[64], value[64];

	doctor->part = "Driver";
	for (size_t i = 0; i < sizeof(parameters) / sizeof(*parameters); i++) {
		const struct parameter *parameter = &parameters[i];

		if (facts->parameter(parameter->name, value, sizeof(value)))
			continue;
		read++;
		if (!hurts(parameter, value))
			continue;
		bad++;
		snprintf(name, sizeof(name), "parameter.%s", parameter->name);
		doctor_add(
			doctor, parameter->status, name, "%s: %s", value, parameter->why);
		doctor_advise(doctor,
			"put 'options nvidia_uvm %s=%s' into a file of /etc/modprobe.d and "
			"load the module anew, or reboot",
			parameter->name, parameter->usual);
	}
	if (read && !bad)
		doctor_add(doctor, DOCTOR_OK, "parameters",
			"%zu of nvidia_uvm looked at, none hurts", read);
}
