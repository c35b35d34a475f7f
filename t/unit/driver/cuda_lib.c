/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Loading libcuda, and each way in which it cannot be had (fault 49). */
#include "driver/cuda_lib.h"

#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>

static struct fake *newer, *older, *oldest;

/* Loads and expects a failure with this errno value and this in its sentence. */
static void fails(const char *name, int err, const char *sentence, const char *what)
{
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_cuda_lib lib = {.version = -7};

	is_int(glk_cuda_lib_load(name, &lib), err, what);
	is_int(lib.version, -7, "the output is left alone");
	glake_last_error(&record);
	is_int(record.err, err, "the record has the errno value");
	has_str(record.text, sentence, "the record has the sentence");
}

static void works(int entry, struct fake *fake)
{
	struct glk_cuda_lib lib = {0};
	struct glk_cu_uuid a = {0}, b = {0};

	*fake = FAKE_START;
	fake->mig = true;
	is_int(glk_cuda_lib_load(fake_path(entry), &lib), 0, "loads");
	is_int(lib.version, 13000, "version");
	is_int(lib.gpus, 2, "GPUs");
	lib.cuDeviceGetUuid(&a, 0);
	lib.cuDeviceGetUuid_v1(&b, 0);
	ok(memcmp(&a, &b, sizeof(a)), "each signature at its own version");
	fake->version = 11040;
	is_int(glk_cuda_lib_load(fake_path(entry), &lib), 0, "the oldest that will do");
}

static void files(void)
{
	fails("libcuda-nowhere.so.1", -ENODEV, "libcuda-nowhere.so.1", "absent");
	fails("libm.so.6", -ENODEV, "no CUDA driver", "another library");
}

static void stubs(void)
{
	const int entries[] = {12000, 11030, 0};

	newer->stub = older->stub = oldest->stub = true;
	for (int i = 0; i < 3; i++)
		fails(fake_path(entries[i]), -ENODEV, "stub", "a stub");
	*newer = *older = *oldest = FAKE_START;
	newer->fail_call = "cuInit";
	newer->fail_result = GLK_CU_STUB_LIBRARY;
	fails(fake_path(12000), -ENODEV, "stub", "a stub that says so at last");
	*newer = FAKE_START;
}

static void versions(void)
{
	newer->version = older->version = 11030;
	oldest->version = 10020;
	fails(fake_path(12000), -ENODEV, "it has CUDA 11.3, and 11.4 is needed",
		"too old");
	fails(fake_path(11030), -ENODEV, "it has CUDA 11.3, and 11.4 is needed",
		"too old");
	fails(fake_path(0), -ENODEV, "it has CUDA 10.2, and 11.4 is needed",
		"far too old");
	oldest->version = 13000;
	fails(fake_path(0), -ENODEV, "no cuGetProcAddress",
		"new and without entry point");
	*newer = *older = *oldest = FAKE_START;

	newer->missing = older->missing = "cuMemSetAccess";
	fails(fake_path(12000), -ENODEV, "no function cuMemSetAccess",
		"a function missing");
	fails(fake_path(11030), -ENODEV, "no function cuMemSetAccess",
		"a function missing");
	*newer = *older = FAKE_START;
}

static void init(glk_cu_result result, int err, const char *sentence, const char *what)
{
	struct glake_error record = {.sz = sizeof(record)};

	*newer = FAKE_START;
	newer->fail_call = "cuInit";
	newer->fail_result = result;
	fails(fake_path(12000), err, sentence, what);
	glake_last_error(&record);
	is_int(record.native, (int)result, "the record has the CUresult");
	is_str(record.call, "cuInit", "the record has the call");
	*newer = FAKE_START;
}

static void inits(void)
{
	init(GLK_CU_NO_DEVICE, -ENODEV, "finds no GPU", "no GPU");
	init(GLK_CU_SYSTEM_DRIVER_MISMATCH, -ENODEV, "different versions", "mismatch");
	init(GLK_CU_NOT_PERMITTED, -EPERM, "forbidden", "forbidden");
	init(GLK_CU_NOT_INITIALIZED, -ENODEV, "could not be initialised",
		"not initialised");
	init(GLK_CU_SYSTEM_NOT_READY, -ENODEV, "fabric manager", "system not ready");
	init(GLK_CU_OUT_OF_MEMORY, -ENOMEM, "out of memory", "no memory");
	init(GLK_CU_UNKNOWN, -ENODEV, "could not be initialised", "another error");
	newer->gpus = 0;
	fails(fake_path(12000), -ENODEV, "finds no GPU", "a count of 0");
	*newer = FAKE_START;
}

static void loaded_first(void)
{
	struct glk_cuda_lib lib = {0};
	int calls = newer->calls;

	/* The first of the fakes loaded bears the name libcuda.so.1 and is found by it. */
	newer->version = 12340;
	is_int(glk_cuda_lib_load("libcuda.so.1", &lib), 0, "the name is loaded already");
	is_int(lib.version, 12340, "and that copy is taken");
	ok(newer->calls > calls, "and called");
	*newer = FAKE_START;
}

int main(void)
{
	tap_plan_later();
	newer = fake_load(12000);
	older = fake_load(11030);
	oldest = fake_load(0);
	if (!newer || !older || !oldest)
		tap_bail(dlerror());
	files();
	works(12000, newer);
	works(11030, older);
	stubs();
	versions();
	inits();
	loaded_first();
	return tap_done();
}
