/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes driver calls fail on demand; see fault.h for the rules. The failure is shaped like
 * the driver's own: the record has the class that goes with the errno value, and names the
 * operation and the count, so that a test that fails says which call it was.
 */
#include "soft/fault.h"

#include "base/error.h"
#include "base/lock.h"
#include "base/slab.h"
#include "driver/ops.h"
#include "soft/fault_rule.h"

#include <errno.h>
#include <string.h>
#include <time.h>

struct fault {
	struct glk_drv drv;
	struct glk_lock lock;
	struct glk_fault_rule rules[GLK_FAULT_RULES];
	size_t count;
	uint64_t calls, failed;
	bool lost;
};

static struct fault *fault_of(struct glk_drv *drv)
{
	return (struct fault *)drv;
}

static enum glake_error_class class_of(int err)
{
	switch (err) {
	case -ENOMEM:
		return GLAKE_ERROR_NOMEM_DEVICE;
	case -ENODEV:
		return GLAKE_ERROR_DEVICE_LOST;
	case -EMFILE:
	case -ENFILE:
		return GLAKE_ERROR_LIMIT;
	case -EOPNOTSUPP:
		return GLAKE_ERROR_UNSUPPORTED;
	case -EAGAIN:
		return GLAKE_ERROR_AGAIN;
	case -EBUSY:
		return GLAKE_ERROR_BUSY;
	case -EPERM:
	case -EACCES:
		return GLAKE_ERROR_PERM;
	default:
		return GLAKE_ERROR_DRIVER;
	}
}

/* Without the lock, so that calls are held up beside each other. */
static void hold_up(uint64_t us)
{
	struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};

	while (us && nanosleep(&left, &left) && errno == EINTR)
		;
}

/* Every rule counts, whether or not an earlier one strikes: counts do not depend on others. */
static int strike(struct fault *fault, int op)
{
	const struct glk_fault_rule *struck = NULL;
	uint64_t delay = 0;
	int err = 0;

	glk_lock(&fault->lock);
	fault->calls++;
	for (size_t i = 0; i < fault->count; i++) {
		struct glk_fault_rule *rule = &fault->rules[i];

		if (rule->op != op && rule->op != GLK_FAULT_ANY)
			continue;
		if (!glk_fault_strikes(rule))
			continue;
		if (rule->delay > delay)
			delay = rule->delay;
		if (rule->err && !struck)
			struck = rule;
	}
	if (struck && struck->sticky)
		fault->lost = true;
	if (fault->lost)
		err = glk_error_native(-ENODEV, GLAKE_ERROR_DEVICE_LOST,
			glk_fault_op_name(op), ENODEV, "injected: the device is lost");
	else if (struck)
		err = glk_error_native(struck->err, class_of(struck->err),
			glk_fault_op_name(op), -struck->err,
			"injected: call %lu of %s fails", (unsigned long)struck->calls,
			glk_fault_op_name(struck->op));
	fault->failed += err != 0;
	glk_unlock(&fault->lock);
	hold_up(delay);
	return err;
}

#define X(op, params, args, call)                                                        \
	static int fault_##op params                                                     \
	{                                                                                \
		int err = strike(fault_of(drv), GLK_OP_##op);                            \
		struct glk_drv *inner = drv->inner;                                      \
                                                                                         \
		return err ? err : inner->ops->op args;                                  \
	}
GLK_DRV_OPS(X)
#undef X

static int fault_figures(struct glk_drv *drv, struct glake_driver_stats *ret_stats)
{
	return drv->inner->ops->figures(drv->inner, ret_stats);
}

static int fault_close(struct glk_drv *drv)
{
	int err = drv->inner->ops->close(drv->inner);

	glk_lock_fini(&fault_of(drv)->lock);
	glk_region_free(drv, sizeof(struct fault));
	return err;
}

static const struct glk_drv_ops fault_ops = {.version = GLK_DRV_OPS_VERSION,
	.name = "fault",
	.close = fault_close,
	.figures = fault_figures,
#define X(op, params, args, call) .op = fault_##op,
	GLK_DRV_OPS(X)
#undef X
};

int glk_fault_open(struct glk_drv *inner, struct glk_drv **ret_drv)
{
	struct fault *fault = glk_region_new(sizeof(*fault));

	if (!fault)
		return -ENOMEM;
	fault->drv = (struct glk_drv){.ops = &fault_ops, .inner = inner};
	glk_lock_init(&fault->lock, GLK_RANK_DRIVER);
	*ret_drv = &fault->drv;
	return 0;
}

static struct fault *find(struct glk_drv *drv)
{
	while (drv && drv->ops != &fault_ops)
		drv = drv->inner;
	if (!drv)
		glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"no fault wrapper is there: driver.fault was empty at open");
	return drv ? fault_of(drv) : NULL;
}

int glk_fault_set(struct glk_drv *drv, const char *rules)
{
	struct glk_fault_rule parsed[GLK_FAULT_RULES];
	struct fault *fault = find(drv);
	size_t count;
	int err;

	if (!fault)
		return -EINVAL;
	err = glk_fault_parse(rules, parsed, &count);
	if (err)
		return err;
	glk_lock(&fault->lock);
	memcpy(fault->rules, parsed, count * sizeof(*parsed));
	fault->count = count;
	fault->calls = 0;
	fault->failed = 0;
	fault->lost = false;
	glk_unlock(&fault->lock);
	return 0;
}

int glk_fault_count(struct glk_drv *drv, uint64_t *ret_calls, uint64_t *ret_failed)
{
	struct fault *fault = find(drv);

	if (!fault)
		return -EINVAL;
	glk_lock(&fault->lock);
	*ret_calls = fault->calls;
	*ret_failed = fault->failed;
	glk_unlock(&fault->lock);
	return 0;
}
