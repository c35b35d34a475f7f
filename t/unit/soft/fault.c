/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every way to fail, and every way to write it wrongly. */
#include "setup.h"

#include "soft/fault.h"
#include "soft/open.h"
#include "soft/soft.h"

#include <errno.h>
#include <time.h>

static struct glk_drv *drv;

static int create(void)
{
	uint64_t page = 0;
	int err = drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &page);

	if (!err && drv->ops->release(drv, page) == -EIO)
		tap_bail("release was not meant to fail");
	return err;
}

/* Which of the next calls fail, as a string: '.' for success, the first letter of the errno
 * value's place else. */
static const char *pattern(const char *rules, unsigned calls)
{
	static char text[64];
	unsigned i;

	if (glk_fault_set(drv, rules))
		return "unreadable";
	for (i = 0; i < calls && i < sizeof(text) - 1; i++) {
		int err = create();

		text[i] = !err ? '.' : err == -EIO ? 'i' : err == -ENOMEM ? 'm' : 'x';
	}
	text[i] = '\0';
	return text;
}

static void modes(void)
{
	is_str(pattern("off", 5), ".....", "off");
	is_str(pattern("", 5), ".....", "no rules");
	is_str(pattern("create:nth=3", 5), "..i..", "the third");
	is_str(pattern("create:nth=2:len=3:err=ENOMEM", 6), ".mmm..",
		"three from the second");
	is_str(pattern("create:from=4", 7), "...iiii", "all from the fourth");
	is_str(pattern("create:from=2:len=2", 5), ".ii..", "two from the second");
	is_str(pattern("create:every=3", 9), "..i..i..i", "each third");
	is_str(pattern("create:nth=1;create:nth=3:err=ENOMEM;", 4), "i.m.", "two rules");
	is_str(pattern("map:nth=1", 3), "...", "another operation");
	is_str(pattern("any:nth=3", 5), ".i...", "any: create, release, create");
	is_str(pattern("create:p=1000000", 3), "iii", "always by chance");
	is_str(pattern("release:nth=2:err=EBUSY;create:nth=2", 3), ".i.",
		"each counts alone");
	is_str(pattern("create:nth=2:sticky=1", 4), ".xxx", "sticky stays");
	is_str(pattern("off", 2), "..", "until the rules are set again");
}

static void chance(void)
{
	char first[64], other[64];
	uint64_t calls = 0, failed = 0;

	snprintf(first, sizeof(first), "%s", pattern("create:p=300000:seed=7", 60));
	is_int(glk_fault_count(drv, &calls, &failed), 0, "counts");
	is_int((int64_t)calls, 60 + 60 - (int64_t)failed, "calls: creates and releases");
	ok(failed > 5 && failed < 35, "about a third of 60 fails (%u)", (unsigned)failed);
	is_str(pattern("create:p=300000:seed=7", 60), first, "the same ones again");
	snprintf(other, sizeof(other), "%s", pattern("create:p=300000:seed=8", 60));
	ok(strcmp(first, other), "others with another seed");
}

static void records(void)
{
	uint64_t before = 0, after = 0;
	size_t left = 0, had = 0, total = 0;

	glk_fault_set(drv, "off");
	drv->ops->memory_info(drv, 0, &had, &total);
	glk_soft_resident(drv, &before);
	glk_fault_set(drv, "create:nth=2:err=ENOMEM");
	create();
	is_int(create(), -ENOMEM, "the second create fails");
	has_str(setup_error().text, "call 2 of create", "and says which it was");
	is_str(setup_error().call, "create", "its call");
	is_int(setup_error().native, ENOMEM, "its code");
	is_int(setup_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "its class");
	drv->ops->memory_info(drv, 0, &left, &total);
	is_int((int64_t)left, (int64_t)had, "the driver never saw it");
	glk_soft_resident(drv, &after);
	is_int((int64_t)after, (int64_t)before, "no memory of it either");
	glk_fault_set(drv, "create:nth=1:err=EIO");
	create();
	is_int(setup_error().error_class, GLAKE_ERROR_DRIVER,
		"EIO is a fault of the driver");
	glk_fault_set(drv, "create:nth=1:err=EMFILE");
	create();
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "EMFILE is a limit");
	glk_fault_set(drv, "memory_info:nth=1:sticky=1");
	is_int(drv->ops->memory_info(drv, 0, &left, &total), -ENODEV,
		"the device is lost");
	is_int(setup_error().error_class, GLAKE_ERROR_DEVICE_LOST, "by its class");
	is_int(create(), -ENODEV, "for every call");
	glk_fault_set(drv, "off");
}

static int64_t took(const char *rules, int *ret_err)
{
	struct timespec a, b;

	glk_fault_set(drv, rules);
	clock_gettime(CLOCK_MONOTONIC, &a);
	*ret_err = create();
	clock_gettime(CLOCK_MONOTONIC, &b);
	glk_fault_set(drv, "off");
	return (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
}

static void delays(void)
{
	int err;

	ok(took("create:nth=1:delay=3000", &err) >= 3000 && !err,
		"a call is held up, and made");
	ok(took("create:nth=1:delay=3000:err=ENOMEM", &err) >= 3000 && err == -ENOMEM,
		"or held up, and fails");
	ok(took("create:nth=1:delay=3000;create:nth=1:err=EIO", &err) >= 3000 &&
			err == -EIO,
		"by another rule too");
	breaks(glk_fault_set(drv, "create:nth=1:delay=10000001"), -EINVAL,
		"10 seconds at the most");
	breaks(glk_fault_set(drv, "create:nth=1:delay=5:sticky=1"), -EINVAL,
		"without a delay");
}

static void mistakes(void)
{
	breaks(glk_fault_set(drv, "creat:nth=1"), -EINVAL, "'creat' is not an operation");
	breaks(glk_fault_set(drv, "create"), -EINVAL,
		"'create' is not a rule with exactly");
	breaks(glk_fault_set(drv, "create:nth"), -EINVAL, "'nth' is not a pair");
	breaks(glk_fault_set(drv, "create:nth=x"), -EINVAL, "'x' is not a number");
	breaks(glk_fault_set(drv, "create:nth="), -EINVAL, "'' is not a number");
	breaks(glk_fault_set(drv, "create:nth=0"), -EINVAL, "exactly one of");
	breaks(glk_fault_set(drv, "create:nth=1:p=5"), -EINVAL, "exactly one of");
	breaks(glk_fault_set(drv, "create:nth=99999999999999999999"), -EINVAL,
		"not a number");
	breaks(glk_fault_set(drv, "create:p=1000001"), -EINVAL, "calls of a million");
	breaks(glk_fault_set(drv, "create:p=5:len=3"), -EINVAL, "len goes with");
	breaks(glk_fault_set(drv, "create:nth=1:err=EWHAT"), -EINVAL,
		"'EWHAT' is not an errno");
	breaks(glk_fault_set(drv, "create:when=1"), -EINVAL, "'when' is not one of nth");
	breaks(glk_fault_set(drv, "map:nth=1;;map:nth=2"), -EINVAL,
		"'' is not an operation");
	breaks(glk_fault_set(drv,
		       "any:nth=1;any:nth=1;any:nth=1;any:nth=1;any:nth=1;"
		       "any:nth=1;any:nth=1;any:nth=1;any:nth=1;any:nth=1;"
		       "any:nth=1;any:nth=1;any:nth=1;any:nth=1;any:nth=1;"
		       "any:nth=1;map:nth=1"),
		-EINVAL, "first 16");
	glk_fault_set(drv, "create:nth=1");
	glk_fault_set(drv, "nonsense");
	is_int(create(), -EIO, "rules that cannot be read leave the old ones");
}

static void opening(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_drv *other = NULL;
	uint64_t calls, failed;

	other = setup_open(&conf);
	breaks(glk_fault_set(other, "off"), -EINVAL, "driver.fault was empty");
	is_int(glk_fault_count(other, &calls, &failed), -EINVAL, "nothing to count");
	is_int(glk_drv_close(other), 0, "closed");
	other = NULL;
	snprintf(conf.driver_fault, sizeof(conf.driver_fault), "any:nth=one");
	breaks(glk_drv_open(&conf, NULL, 0, &other), -EINVAL, "'one' is not a number");
	is_int(setup_error().error_class, GLAKE_ERROR_CONFIG,
		"the configuration is to blame");
	ok(!other, "nothing is opened");
}

int main(void)
{
	struct glk_conf conf = setup_conf();

	tap_plan_later();
	snprintf(conf.driver_fault, sizeof(conf.driver_fault), "any:nth=1");
	drv = setup_open(&conf);
	is_int(create(), -EIO, "rules of the configuration count from the first call");
	modes();
	chance();
	records();
	delays();
	mistakes();
	/* The release that failed has left its page behind. */
	tap_expect_log(1);
	is_int(glk_drv_close(drv), -EBUSY, "the check wrapper saw the failures");
	opening();
	return tap_done();
}
