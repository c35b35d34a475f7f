/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What results mean, and the record of a failed call. */
#include "cuda_fake.h"
#include "driver/cuda_lib.h"
#include "tap.h"

#include <errno.h>

static void means(glk_cu_result result, int err, enum glake_error_class class)
{
	struct glk_cuda_meaning meaning = glk_cuda_meaning(result);

	ok(meaning.err == err && meaning.class == class, "%u is %d, %s", result, err,
		glake_error_class_name((int)class));
}

static void meanings(void)
{
	static const glk_cu_result sticky[] = {201, 214, 220, 226, 700, 702, 709, 710,
		714, 715, 716, 717, 718, 719, 721, 810};
	static const glk_cu_result plain[] = {5, 205, 206, 219, 304, 600 + 1, 701, 713,
		720, 722, 805, 806, 811, 899, 909, 999, 12345};

	means(0, 0, GLAKE_ERROR_NONE);
	means(1, -EINVAL, GLAKE_ERROR_INVAL);
	means(2, -ENOMEM, GLAKE_ERROR_NOMEM_DEVICE);
	means(4, -ENODEV, GLAKE_ERROR_SHUTDOWN);
	means(46, -EBUSY, GLAKE_ERROR_BUSY);
	means(101, -EINVAL, GLAKE_ERROR_INVAL);
	means(208, -EINVAL, GLAKE_ERROR_INVAL);
	means(400, -EINVAL, GLAKE_ERROR_INVAL);
	means(600, -EAGAIN, GLAKE_ERROR_AGAIN);
	means(800, -EPERM, GLAKE_ERROR_PERM);
	means(801, -EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED);
	means(807, -EBUSY, GLAKE_ERROR_BUSY);
	for (glk_cu_result result = 900; result <= 908; result++)
		means(result, -EBUSY, GLAKE_ERROR_CAPTURE);
	for (size_t i = 0; i < sizeof(sticky) / sizeof(*sticky); i++)
		means(sticky[i], -ENODEV, GLAKE_ERROR_DEVICE_LOST);
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		means(plain[i], -EIO, GLAKE_ERROR_DRIVER);
}

static void records(void)
{
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_cuda_lib none = {0}, lib;
	struct fake *fake = fake_load(12000);

	if (!fake || glk_cuda_lib_load(fake_path(12000), &lib))
		tap_bail("no fake libcuda");

	is_int(glk_cuda_fail(&lib, "cuMemCreate", GLK_CU_OUT_OF_MEMORY, "page %d", 3),
		-ENOMEM, "returns the errno value");
	glake_last_error(&record);
	is_str(record.text, "page 3: out of memory (CUDA_ERROR_OUT_OF_MEMORY)",
		"the text");
	is_str(record.call, "cuMemCreate", "the call");
	is_int(record.native, 2, "the CUresult");
	is_int(record.error_class, GLAKE_ERROR_NOMEM_DEVICE, "the class");

	is_int(glk_cuda_fail(&lib, "cuEventQuery", GLK_CU_NOT_READY, "event"), -EAGAIN,
		"not ready is an answer");
	glake_last_error(&record);
	is_int(record.err, -ENOMEM, "and leaves the record alone");

	glk_cuda_fail(&lib, "cuMemMap", 999, "page 4");
	glake_last_error(&record);
	is_str(record.text, "page 4: the driver gives no reason (unnamed)",
		"no text known");
	fake->stub = true;
	glk_cuda_fail(&lib, "cuMemMap", GLK_CU_OUT_OF_MEMORY, "page 5");
	glake_last_error(&record);
	is_str(record.text, "page 5: the driver gives no reason (unnamed)",
		"a stub's texts");
	glk_cuda_fail(&none, "cuMemMap", GLK_CU_OUT_OF_MEMORY, "page 6");
	glake_last_error(&record);
	is_str(record.text, "page 6: the driver gives no reason (unnamed)",
		"an empty table");
}

int main(void)
{
	tap_plan_later();
	meanings();
	records();
	return tap_done();
}
