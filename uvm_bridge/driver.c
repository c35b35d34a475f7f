/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Version and flavour of the NVIDIA driver, from text that no interface promises: each source
 * is checked for its form, and one that looks different is as good as missing. The procfs
 * line is one of
 *
 *	NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ...
 *	NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ...
 *
 * The flavour is a property of nvidia.ko: the other modules carry the same licences in both.
 */
#include "uvm_bridge/driver.h"

#include "numa/topology.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DIGITS "0123456789"

int glk_uvm_version_check(const char *text)
{
	size_t len = strlen(text);

	if (!len || len >= GLK_UVM_VERSION_MAX || strspn(text, DIGITS ".") != len)
		return -EBADMSG;
	if (*text == '.' || text[len - 1] == '.' || !strchr(text, '.') ||
		strstr(text, ".."))
		return -EBADMSG;
	return 0;
}

int glk_uvm_version_sysfs(const struct glk_sysroot *root, const char *module,
	char ret_version[GLK_UVM_VERSION_MAX])
{
	char path[96], text[GLK_UVM_VERSION_MAX];
	int err;

	snprintf(path, sizeof(path), "/sys/module/%s/version", module);
	err = glk_sysfs_text(root, path, text, sizeof(text));
	if (!err)
		err = glk_uvm_version_check(text);
	if (!err)
		memcpy(ret_version, text, sizeof(text));
	return err;
}

/* The first line of the file in procfs, which is about the kernel module. */
static int read_line(const struct glk_sysroot *root, char *line, size_t size)
{
	int err = glk_sysfs_text(root, "/proc/driver/nvidia/version", line, size);

	if (err)
		return err;
	line[strcspn(line, "\n")] = 0;
	return strstr(line, "Kernel Module") ? 0 : -EBADMSG;
}

int glk_uvm_version_procfs(
	const struct glk_sysroot *root, char ret_version[GLK_UVM_VERSION_MAX])
{
	char line[1024], *word, *rest;
	int err;

	err = read_line(root, line, sizeof(line));
	if (err)
		return err;
	word = strtok_r(strstr(line, "Kernel Module"), " \t", &rest);
	for (; word; word = strtok_r(NULL, " \t", &rest)) {
		if (glk_uvm_version_check(word))
			continue;
		snprintf(ret_version, GLK_UVM_VERSION_MAX, "%s", word);
		return 0;
	}
	return -EBADMSG;
}

const char *glk_uvm_flavour(const struct glk_sysroot *root, const char *license)
{
	char line[1024], taint[64];

	if (!read_line(root, line, sizeof(line)))
		return strstr(line, "Open Kernel Module") ? "open" : "proprietary";
	/* Letters; those of the open flavour are O for out of tree and perhaps E for unsigned. */
	if (!glk_sysfs_text(root, "/sys/module/nvidia/taint", taint, sizeof(taint)) &&
		*taint && strspn(taint, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(taint))
		return strchr(taint, 'P') ? "proprietary" : "open";
	if (!strcmp(license, "NVIDIA"))
		return "proprietary";
	return !strcmp(license, "Dual MIT/GPL") ? "open" : "";
}
