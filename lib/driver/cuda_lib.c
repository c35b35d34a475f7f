/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finding and loading libcuda.so.1, which belongs to the driver and not to the toolkit and
 * may be anything: absent, a stub to link against, older than we need, newer, of another
 * version than the kernel module, or fine and without a GPU. Each gets a sentence of its own.
 *
 * A copy that the program has loaded already is taken before any other is looked for, so that
 * both see one driver. Functions come from cuGetProcAddress at the version of the signature
 * we compiled in; dlsym finds only that one function and, for drivers before 11.3, the version.
 *
 * The library stays loaded for ever: its threads and exit handlers outlive any of us.
 */
#include "driver/cuda_lib.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/rcu.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBCUDA "libcuda.so.1"
#define CONTROL "/dev/nvidiactl"

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_DRIVER);
static struct glk_cuda_lib shared; /* under lock until loaded, then constant */
static bool loaded;
static unsigned loaded_forks;
static bool watched;
static glk_atomic(bool) exiting;

/* How the functions of one library are found: by the newer entry point or by the older. */
struct finder {
	glk_cu_proc_v12000 *v12000;
	glk_cu_proc_v11030 *v11030;
};

static int absent(const char *call, glk_cu_result native, const char *text)
{
	return glk_error_native(
		-ENODEV, GLAKE_ERROR_UNSUPPORTED, call, (int)native, "%s", text);
}

static int too_old(int version)
{
	return glk_error(-ENODEV, GLAKE_ERROR_UNSUPPORTED,
		"the driver is too old: it has CUDA %d.%d, and %d.%d is needed",
		version / 1000, version % 1000 / 10, GLK_CUDA_VERSION_MIN / 1000,
		GLK_CUDA_VERSION_MIN % 1000 / 10);
}

static int stub(const char *call)
{
	return absent(call, GLK_CU_STUB_LIBRARY,
		"libcuda.so.1 is a stub of the CUDA toolkit, not the library of the driver");
}

static int library_open(const char *name, void **ret_handle)
{
	int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
	void *handle = dlopen(name, flags | RTLD_NOLOAD);

	if (!handle)
		handle = dlopen(name, flags);
	if (!handle)
		return glk_error_native(-ENODEV, GLAKE_ERROR_UNSUPPORTED, "dlopen", 0,
			"the library of the driver cannot be loaded: %s", dlerror());
	*ret_handle = handle;
	return 0;
}

/* dlsym itself, where libglake-preload.so stands in front of it and would answer for the driver
 * with functions that call us. */
extern __typeof__(dlsym) glake_preload_dlsym __attribute__((weak));

/* The one way from dlsym's object pointer to a function that ISO C has no quarrel with. */
static void entry_find(void *handle, const char *name, void *ret_fn)
{
	void *fn = glake_preload_dlsym ? glake_preload_dlsym(handle, name)
				       : dlsym(handle, name);

	memcpy(ret_fn, &fn, sizeof(fn));
}

/* A driver without either entry point is from before 11.3, or a stub of that age. */
static int finder_init(void *handle, struct finder *ret_finder)
{
	struct finder finder = {0};
	glk_cu_result (*get_version)(int *);
	glk_cu_result result;
	int version = 0;

	entry_find(handle, "cuGetProcAddress_v2", &finder.v12000);
	entry_find(handle, "cuGetProcAddress", &finder.v11030);
	if (finder.v12000 || finder.v11030) {
		*ret_finder = finder;
		return 0;
	}
	entry_find(handle, "cuDriverGetVersion", &get_version);
	if (!get_version)
		return absent("dlsym", 0,
			"libcuda.so.1 is no CUDA driver: it has no cuDriverGetVersion");
	result = get_version(&version);
	if (result == GLK_CU_STUB_LIBRARY)
		return stub("cuDriverGetVersion");
	if (result == GLK_CU_SUCCESS && version < GLK_CUDA_VERSION_MIN)
		return too_old(version);
	return absent(
		"dlsym", 0, "libcuda.so.1 is no CUDA driver: it has no cuGetProcAddress");
}

/* NULL where the driver has no such function; *ret_result is what it said. */
static void *look_up(const struct finder *finder, const char *symbol, int version,
	glk_cu_result *ret_result)
{
	glk_cu_proc_status status = GLK_CU_PROC_FOUND;
	void *fn = NULL;

	if (finder->v12000)
		*ret_result = finder->v12000(
			symbol, &fn, version, GLK_CU_PROC_LEGACY_STREAM, &status);
	else
		*ret_result =
			finder->v11030(symbol, &fn, version, GLK_CU_PROC_LEGACY_STREAM);
	return *ret_result || status != GLK_CU_PROC_FOUND ? NULL : fn;
}

static int find(
	const struct finder *finder, const char *symbol, int version, void *ret_fn)
{
	glk_cu_result result;
	void *fn = look_up(finder, symbol, version, &result);

	if (result == GLK_CU_STUB_LIBRARY)
		return stub("cuGetProcAddress");
	if (!fn)
		return glk_error_native(-ENODEV, GLAKE_ERROR_UNSUPPORTED,
			"cuGetProcAddress", (int)result,
			"the driver has no function %s of CUDA %d.%d", symbol,
			version / 1000, version % 1000 / 10);
	memcpy(ret_fn, &fn, sizeof(fn));
	return 0;
}

/* The version comes first: a driver too old shall not be called one that lacks a function. */
static int table_fill(const struct finder *finder, struct glk_cuda_lib *lib)
{
	glk_cu_result result;
	void *fn;
	int err;

	err = find(finder, "cuDriverGetVersion", 2020, &lib->cuDriverGetVersion);
	if (err)
		return err;
	result = lib->cuDriverGetVersion(&lib->version);
	if (result == GLK_CU_STUB_LIBRARY)
		return stub("cuDriverGetVersion");
	if (result)
		return glk_error_native(-ENODEV, GLAKE_ERROR_UNSUPPORTED,
			"cuDriverGetVersion", (int)result, "the driver gives no version");
	if (lib->version < GLK_CUDA_VERSION_MIN)
		return too_old(lib->version);
#define GLK_FIND(field, symbol, version, args)                                           \
	err = find(finder, #symbol, version, &lib->field);                               \
	if (err)                                                                         \
		return err;
	GLK_CUDA_FUNCTIONS(GLK_FIND)
#undef GLK_FIND
#define GLK_TRY(field, symbol, version, args)                                            \
	fn = look_up(finder, #symbol, version, &result);                                 \
	memcpy(&lib->field, &fn, sizeof(fn));
	GLK_CUDA_OPTIONAL(GLK_TRY)
#undef GLK_TRY
	/* an older driver would give the function of that name that it has */
	if (lib->version < GLK_CUDA_VERSION_LOCATIONS) {
		lib->cuMemAdvise_v2 = NULL;
		lib->cuMemPrefetchAsync_v2 = NULL;
	}
	return 0;
}

/* What the device node says about a driver that finds no GPU. */
static const char *control_hint(void)
{
	if (!access(CONTROL, R_OK | W_OK))
		return "";
	if (errno == EACCES || errno == EPERM)
		return "; " CONTROL " may not be opened by this user";
	return "; " CONTROL " does not exist, so the kernel module is not loaded or the "
	       "container was given no GPU";
}

static int driver_init(struct glk_cuda_lib *lib)
{
	glk_cu_result result = lib->cuInit(0);
	struct glk_cuda_meaning meaning;
	const char *text = NULL;

	switch (result) {
	case GLK_CU_SUCCESS:
		break;
	case GLK_CU_STUB_LIBRARY:
		return stub("cuInit");
	case GLK_CU_NO_DEVICE:
		return glk_error_native(-ENODEV, GLAKE_ERROR_UNSUPPORTED, "cuInit",
			(int)result, "the driver finds no GPU%s", control_hint());
	case GLK_CU_SYSTEM_DRIVER_MISMATCH:
		return absent("cuInit", result,
			"the kernel module and libcuda.so.1 are of different versions: load the "
			"module of the installed driver, or reboot");
	case GLK_CU_NOT_PERMITTED:
		return glk_error_native(-EPERM, GLAKE_ERROR_PERM, "cuInit", (int)result,
			"this process is forbidden to use the GPU%s", control_hint());
	case GLK_CU_NOT_INITIALIZED:
		return glk_error_native(-ENODEV, GLAKE_ERROR_UNSUPPORTED, "cuInit",
			(int)result, "the driver could not be initialised%s",
			control_hint());
	case GLK_CU_SYSTEM_NOT_READY:
		return absent("cuInit", result,
			"the system is not ready for CUDA: is the fabric manager running?");
	default:
		meaning = glk_cuda_meaning(result);
		if (lib->cuGetErrorString(result, &text) || !text)
			text = "the driver gives no reason";
		/* Whatever it is, there is no CUDA to be had. */
		if (meaning.err != -ENOMEM)
			meaning.err = -ENODEV;
		return glk_error_native(meaning.err, meaning.class, "cuInit", (int)result,
			"the driver could not be initialised: %s", text);
	}
	result = lib->cuDeviceGetCount(&lib->gpus);
	if (result || lib->gpus < 1)
		return glk_error_native(-ENODEV, GLAKE_ERROR_UNSUPPORTED,
			"cuDeviceGetCount", (int)result, "the driver finds no GPU%s",
			control_hint());
	return 0;
}

int glk_cuda_lib_load(const char *name, struct glk_cuda_lib *ret_lib)
{
	struct glk_cuda_lib lib = {0};
	struct finder finder;
	int err;

	err = library_open(name, &lib.handle);
	if (err)
		return err;
	/* The handle is kept also on failure: unloading a driver half way up is no repair. */
	err = finder_init(lib.handle, &finder);
	if (err)
		return err;
	err = table_fill(&finder, &lib);
	if (err)
		return err;
	err = driver_init(&lib);
	if (err)
		return err;
	*ret_lib = lib;
	return 0;
}

int glk_cuda_lib_get(const struct glk_cuda_lib **ret_lib)
{
	int err = 0;

	glk_lock(&lock);
	if (!loaded) {
		err = glk_cuda_lib_load(LIBCUDA, &shared);
		loaded = !err;
		loaded_forks = glk_fork_generation();
	} else if (loaded_forks != glk_fork_generation()) {
		err = glk_error(-ENODEV, GLAKE_ERROR_FORKED,
			"CUDA was initialised before this process was forked");
	}
	glk_unlock(&lock);
	if (!err)
		*ret_lib = &shared;
	return err;
}

static void exit_begins(void)
{
	glk_store_relaxed(&exiting, true);
}

int glk_cuda_exit_watch(void)
{
	int err = 0;

	glk_lock(&lock);
	if (!watched) {
		err = atexit(exit_begins) ? -ENOMEM : 0;
		watched = !err;
	}
	glk_unlock(&lock);
	if (err)
		return glk_error_native(err, GLAKE_ERROR_NOMEM_HOST, "atexit", 0,
			"no host memory to watch for the end of the process");
	return 0;
}

bool glk_cuda_exiting(void)
{
	return glk_load_relaxed(&exiting);
}
