/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Module files on disk, through the real libkmod: a tree with the index that depmod would
 * make and with module files that hold nothing but their description.
 */
#include "unit/numa/tree.h"

#include "uvm_bridge/kmod.h"

#include "base/late.h"

#include <elf.h>
#include <endian.h>
#include <sys/utsname.h>

static char modules[128]; /* "lib/modules/<release>" */

static void path_of(const char *name, char *ret_path, size_t size)
{
	int n = snprintf(ret_path, size, "%s/%s", modules, name);

	if (n < 0 || (size_t)n >= size)
		tap_bail("path too long");
}

/* A relocatable object with the section .modinfo and no code. */
static void make_module(
	struct tree *tree, const char *name, const char *info, size_t size)
{
	static const char names[] = "\0.modinfo\0.shstrtab";
	struct {
		Elf64_Ehdr head;
		Elf64_Shdr sections[3];
	} elf = {0};
	char path[256];

	memcpy(elf.head.e_ident, ELFMAG, SELFMAG);
	elf.head.e_ident[EI_CLASS] = ELFCLASS64;
	elf.head.e_ident[EI_DATA] =
		__BYTE_ORDER == __LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB;
	elf.head.e_ident[EI_VERSION] = EV_CURRENT;
	elf.head.e_type = ET_REL;
	elf.head.e_machine = EM_X86_64;
	elf.head.e_version = EV_CURRENT;
	elf.head.e_shoff = sizeof(elf.head);
	elf.head.e_ehsize = sizeof(elf.head);
	elf.head.e_shentsize = sizeof(Elf64_Shdr);
	elf.head.e_shnum = 3;
	elf.head.e_shstrndx = 2;
	elf.sections[1] = (Elf64_Shdr){.sh_name = 1,
		.sh_type = SHT_PROGBITS,
		.sh_offset = sizeof(elf),
		.sh_size = size,
		.sh_addralign = 1};
	elf.sections[2] = (Elf64_Shdr){.sh_name = 10,
		.sh_type = SHT_STRTAB,
		.sh_offset = sizeof(elf) + size,
		.sh_size = sizeof(names),
		.sh_addralign = 1};
	path_of(name, path, sizeof(path));
	tree_remove(tree, path);
	tree_append(tree, path, &elf, sizeof(elf));
	tree_append(tree, path, info, size);
	tree_append(tree, path, names, sizeof(names));
}

static void append_word(struct tree *tree, const char *path, uint32_t word)
{
	word = htobe32(word);
	tree_append(tree, path, &word, sizeof(word));
}

/* A node of the index with one value and the letters that lead to it. */
static void append_node(struct tree *tree, const char *path, const char *prefix,
	const char *value, uint32_t child)
{
	tree_append(tree, path, prefix, strlen(prefix) + 1);
	if (child) {
		tree_append(
			tree, path, "__", 2); /* first and last letter of the children */
		append_word(tree, path, child);
	}
	append_word(tree, path, 1);
	append_word(tree, path, 0);
	tree_append(tree, path, value, strlen(value) + 1);
}

/* modules.dep.bin with "nvidia" and, below it, "nvidia_uvm". */
static void make_index(struct tree *tree)
{
	const uint32_t prefix = 0x80000000, values = 0x40000000, children = 0x20000000;
	const uint32_t root = 12, child = root + 7 + 6 + 8 + 11;
	char path[256];

	path_of("modules.dep.bin", path, sizeof(path));
	tree_remove(tree, path);
	append_word(tree, path, 0xb007f457);
	append_word(tree, path, 0x00020001);
	append_word(tree, path, root | prefix | values | children);
	append_node(tree, path, "nvidia", "nvidia.ko:", child | prefix | values);
	append_node(tree, path, "uvm", "nvidia-uvm.ko: nvidia.ko", 0);
}

#define INFO(version, license) "license=" license "\0version=" version "\0name=x"

static void pending(struct tree *tree)
{
	struct glk_uvm_module module;

	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_int(module.state, GLAKE_MODULE_OK, "usable with a newer one on disk");
	is_str(module.disk_version, "590.44.01", "which is named");
	ok(module.reboot_pending, "a reboot is pending");
	has_str(module.text, "590.44.01 is on disk, a reboot is pending", "the sentence");
	glk_uvm_probe(&tree->root, GLK_UVM_NVIDIA, &module);
	ok(!module.reboot_pending, "nvidia is the same on disk");
	is_str(module.text, "loaded", "nothing to say");
	tree_remove(tree, "proc/driver");
	tree_remove(tree, "sys/module/nvidia/taint");
	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_str(module.flavour, "proprietary", "flavour from nvidia.ko's licence");
	tree_remove(tree, "sys/module/nvidia_uvm");
	tree_set(tree, "proc/devices", "Character devices:\n");
	glk_uvm_probe(&tree->root, GLK_UVM_UVM, &module);
	is_int(module.state, GLAKE_MODULE_ABSENT, "not loaded");
	is_str(module.text, "not loaded; version 590.44.01 is on disk", "but could be");
}

int main(void)
{
	static const char same[] = INFO("580.159.04", "NVIDIA");
	static const char newer[] = INFO("590.44.01", "Dual MIT/GPL");
	static const char nothing[] = "name=x";
	struct glk_kmod_file file;
	struct glk_uvm_module module;
	struct utsname name;
	struct tree tree;
	char path[256];
	bool loaded;

	tap_plan_later();
	if (uname(&name))
		tap_bail("no uname");
	snprintf(modules, sizeof(modules), "lib/modules/%.65s", name.release);
	tree_open(&tree, "h200");
	glk_kmod_read(&tree.root, "nvidia", &file);
	is_int(file.disk, GLK_UVM_DISK_NO_TREE, "no modules for this kernel");

	path_of("", path, sizeof(path));
	tree_append(&tree, path, "", 0);
	glk_kmod_read(&tree.root, "nvidia", &file);
	is_int(file.disk, GLK_UVM_DISK_NO_MODULE, "no index");
	make_index(&tree);
	glk_kmod_read(&tree.root, "nouveau", &file);
	is_int(file.disk, GLK_UVM_DISK_NO_MODULE, "not in the index");
	glk_kmod_read(&tree.root, "nvidia", &file);
	is_int(file.disk, GLK_UVM_DISK_UNREADABLE, "in the index, no file");
	make_module(&tree, "nvidia.ko", same, sizeof(same));
	glk_kmod_read(&tree.root, "nvidia", &file);
	is_int(file.disk, GLK_UVM_DISK_OK, "a file");
	is_str(file.version, "580.159.04", "version");
	is_str(file.license, "NVIDIA", "licence");
	make_module(&tree, "nvidia-uvm.ko", nothing, sizeof(nothing));
	glk_kmod_read(&tree.root, "nvidia_uvm", &file);
	is_int(file.disk, GLK_UVM_DISK_OK, "a file that says little");
	is_str(file.version, "", "has no version");
	path_of("nvidia-uvm.ko", path, sizeof(path));
	tree_set(&tree, path, "no module");
	glk_kmod_read(&tree.root, "nvidia_uvm", &file);
	is_int(file.disk, GLK_UVM_DISK_UNREADABLE, "a file that is no module");
	make_module(&tree, "nvidia-uvm.ko", newer, sizeof(newer));
	pending(&tree);
	path_of("modules.dep.bin", path, sizeof(path));
	tree_set(&tree, path, "garbage");
	glk_uvm_probe(&tree.root, GLK_UVM_UVM, &module);
	is_int(module.disk, GLK_UVM_DISK_NO_MODULE, "a broken index");
	is_str(module.text, "not loaded, and not on disk", "the sentence");

	glk_late_hide(1);
	glk_kmod_read(&tree.root, "nvidia", &file);
	is_int(file.disk, GLK_UVM_DISK_NO_LIBKMOD, "without libkmod");
	is_int(glk_kmod_loaded(NULL, "glake_none", &loaded), -EOPNOTSUPP,
		"no list either");
	glk_uvm_probe(&tree.root, GLK_UVM_UVM, &module);
	is_str(module.text,
		"not loaded; what is on disk is not known without libkmod.so.2",
		"the sentence");
	glk_late_hide(0);
	is_int(glk_kmod_loaded(&tree.root, "nvidia", &loaded), -EOPNOTSUPP,
		"the list of loaded modules cannot be moved");
	loaded = true;
	if (!access("/proc/modules", R_OK)) {
		is_int(glk_kmod_loaded(NULL, "glake_none", &loaded), 0,
			"the machine's list");
		ok(!loaded, "does not have what nobody wrote");
	} else {
		is_int(glk_kmod_loaded(NULL, "glake_none", &loaded), -ENOENT,
			"no list here");
		ok(loaded, "nothing was written");
	}
	tree_close(&tree);
	return tap_done();
}
