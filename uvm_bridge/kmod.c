/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The only includer of libkmod. A context is made for each question and freed after it: the
 * library keeps nothing open, and the answer is of now. It reads no modprobe configuration,
 * since nothing is loaded here, and what it has to say goes to our log as debug messages:
 * without a function of ours it would print to stderr.
 */
#include "uvm_bridge/kmod.h"

#include "base/log.h"
#include "numa/topology.h"

#include <errno.h>
#include <libkmod.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

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

static struct kmod_ctx *context_new(const char *dir)
{
	const char *no_conf = NULL;
	struct kmod_ctx *ctx = kmod_new(dir, &no_conf);

	if (ctx)
		kmod_set_log_fn(ctx, log_line, NULL);
	return ctx;
}

/* Takes "version" and "license" from the description. */
static enum glk_uvm_disk read_info(struct kmod_module *module, struct glk_kmod_file *file)
{
	struct kmod_list *list = NULL, *item;

	if (!kmod_module_get_path(module))
		return GLK_UVM_DISK_NO_MODULE;
	if (kmod_module_get_info(module, &list) < 0)
		return GLK_UVM_DISK_UNREADABLE;
	kmod_list_foreach(item, list)
	{
		const char *key = kmod_module_info_get_key(item);
		const char *value = kmod_module_info_get_value(item);

		if (!strcmp(key, "version"))
			snprintf(file->version, sizeof(file->version), "%s", value);
		else if (!strcmp(key, "license"))
			snprintf(file->license, sizeof(file->license), "%s", value);
	}
	kmod_module_info_free_list(list);
	return GLK_UVM_DISK_OK;
}

void glk_kmod_read(const struct glk_sysroot *root, const char *module,
	struct glk_kmod_file *ret_file)
{
	struct glk_kmod_file file = {.disk = GLK_UVM_DISK_NO_TREE};
	char dir[GLK_SYSFS_PATH_MAX], path[128];
	struct kmod_module *mod = NULL;
	struct kmod_ctx *ctx = NULL;
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
	file.disk = GLK_UVM_DISK_UNREADABLE;
	ctx = context_new(dir);
	if (!ctx || kmod_module_new_from_name(ctx, module, &mod) < 0)
		goto unref;
	file.disk = read_info(mod, &file);
	kmod_module_unref(mod);
unref:
	kmod_unref(ctx);
done:
	*ret_file = file;
}

int glk_kmod_loaded(const struct glk_sysroot *root, const char *module, bool *ret_loaded)
{
	struct kmod_list *list = NULL, *item;
	struct kmod_ctx *ctx;
	bool loaded = false;
	int err;

	if (!glk_sysroot_is_real(root))
		return -EOPNOTSUPP;
	ctx = context_new(NULL);
	if (!ctx)
		return -ENOMEM;
	err = kmod_module_new_from_loaded(ctx, &list);
	if (err < 0)
		goto unref;
	err = 0;
	kmod_list_foreach(item, list)
	{
		struct kmod_module *mod = kmod_module_get_module(item);

		loaded |= !strcmp(kmod_module_get_name(mod), module);
		kmod_module_unref(mod);
	}
	kmod_module_unref_list(list);
	*ret_loaded = loaded;
unref:
	kmod_unref(ctx);
	return err;
}
