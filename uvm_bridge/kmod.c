/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The only includer of libkmod in the library. A context is made for each question and freed after
 * it: the library keeps nothing open, and the answer is of now. It reads no modprobe configuration,
 * since nothing is loaded here, and what it has to say goes to our log as debug messages:
 * without a function of ours it would print to stderr. It brings a library for secrets and several
 * for compressed files, so it is loaded with the first question.
 */
#include "uvm_bridge/kmod.h"

#include "base/late.h"
#include "base/log.h"
#include "numa/topology.h"

#include <errno.h>
#include <libkmod.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define LIBKMOD "libkmod.so.2"
/* clang-format off */
#define FUNCTIONS(F)									\
	F(kmod_list_next) F(kmod_module_get_info) F(kmod_module_get_module)		\
	F(kmod_module_get_name) F(kmod_module_get_path) F(kmod_module_info_free_list)	\
	F(kmod_module_info_get_key) F(kmod_module_info_get_value)			\
	F(kmod_module_new_from_loaded) F(kmod_module_new_from_name) F(kmod_module_unref) \
	F(kmod_module_unref_list) F(kmod_new) F(kmod_set_log_fn) F(kmod_unref)
/* clang-format on */

struct functions {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
};

static int load(struct functions *ret_kmod)
{
#define NAME(name) #name,
	static const char *const names[] = {FUNCTIONS(NAME)};
#undef NAME

	return glk_late_load(LIBKMOD, names, sizeof(names) / sizeof(*names), ret_kmod);
}

static void log_line(void *data, int priority, const char *file, int line, const char *fn,
	const char *format, va_list args) __attribute__((format(printf, 6, 0)));

static void log_line(void *data, int priority, const char *file, int line, const char *fn,
	const char *format, va_list args)
{
	char text[256];

	if (!glk_log_wants(GLAKE_LOG_DEBUG))
		return;
	vsnprintf(text, sizeof(text), format, args);
	text[strcspn(text, "\n")] = 0;
	glk_debug("libkmod: %s: %s", fn, text);
}

static struct kmod_ctx *context_new(const struct functions *kmod, const char *dir)
{
	const char *no_conf = NULL;
	struct kmod_ctx *ctx = kmod->kmod_new(dir, &no_conf);

	if (ctx)
		kmod->kmod_set_log_fn(ctx, log_line, NULL);
	return ctx;
}

/* Takes "version" and "license" from the description. */
static enum glk_uvm_disk read_info(const struct functions *kmod,
	struct kmod_module *module, struct glk_kmod_file *file)
{
	struct kmod_list *list = NULL, *item;

	if (!kmod->kmod_module_get_path(module))
		return GLK_UVM_DISK_NO_MODULE;
	if (kmod->kmod_module_get_info(module, &list) < 0)
		return GLK_UVM_DISK_UNREADABLE;
	for (item = list; item; item = kmod->kmod_list_next(list, item)) {
		const char *key = kmod->kmod_module_info_get_key(item);
		const char *value = kmod->kmod_module_info_get_value(item);

		if (!strcmp(key, "version"))
			snprintf(file->version, sizeof(file->version), "%s", value);
		else if (!strcmp(key, "license"))
			snprintf(file->license, sizeof(file->license), "%s", value);
	}
	kmod->kmod_module_info_free_list(list);
	return GLK_UVM_DISK_OK;
}

void glk_kmod_read(const struct glk_sysroot *root, const char *module,
	struct glk_kmod_file *ret_file)
{
	struct glk_kmod_file file = {.disk = GLK_UVM_DISK_NO_TREE};
	char dir[GLK_SYSFS_PATH_MAX], path[128];
	struct kmod_module *mod = NULL;
	struct kmod_ctx *ctx = NULL;
	struct functions kmod;
	struct utsname name;
	int n;

	if (uname(&name))
		goto done;
	n = snprintf(path, sizeof(path), "/lib/modules/%s", name.release);
	if (n < 0 || (size_t)n >= sizeof(path) || !glk_sysfs_exists(root, path))
		goto done;
	n = snprintf(dir, sizeof(dir), "%s%s", root ? root->prefix : "", path);
	if (n < 0 || (size_t)n >= sizeof(dir))
		goto done;
	file.disk = GLK_UVM_DISK_NO_LIBKMOD;
	if (load(&kmod))
		goto done;
	file.disk = GLK_UVM_DISK_UNREADABLE;
	ctx = context_new(&kmod, dir);
	if (!ctx || kmod.kmod_module_new_from_name(ctx, module, &mod) < 0)
		goto unref;
	file.disk = read_info(&kmod, mod, &file);
	kmod.kmod_module_unref(mod);
unref:
	kmod.kmod_unref(ctx);
done:
	*ret_file = file;
}

int glk_kmod_loaded(const struct glk_sysroot *root, const char *module, bool *ret_loaded)
{
	struct kmod_list *list = NULL, *item;
	struct functions kmod;
	struct kmod_ctx *ctx;
	bool loaded = false;
	int err;

	if (!glk_sysroot_is_real(root))
		return -EOPNOTSUPP;
	err = load(&kmod);
	if (err)
		return -EOPNOTSUPP;
	ctx = context_new(&kmod, NULL);
	if (!ctx)
		return -ENOMEM;
	err = kmod.kmod_module_new_from_loaded(ctx, &list);
	if (err < 0)
		goto unref;
	err = 0;
	for (item = list; item; item = kmod.kmod_list_next(list, item)) {
		struct kmod_module *mod = kmod.kmod_module_get_module(item);

		loaded |= !strcmp(kmod.kmod_module_get_name(mod), module);
		kmod.kmod_module_unref(mod);
	}
	kmod.kmod_module_unref_list(list);
	*ret_loaded = loaded;
unref:
	kmod.kmod_unref(ctx);
	return err;
}
