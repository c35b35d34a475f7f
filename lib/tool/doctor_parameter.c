/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parameters of nvidia_uvm with values that cost memory, speed or safety. Drivers differ in which
 * they have; one that cannot be read is not judged.
 */
#include "tool/doctor.h"

#include <stdio.h>
#include <string.h>

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
