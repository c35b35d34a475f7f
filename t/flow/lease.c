/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Leases and contents by name where there is no broker, in calls that are no use of them, and in a child. */
#include "context.h"

#include <sys/wait.h>

#include <glake/publish.h>
#include <glake/share.h>

static void test_none(void)
{
	struct glake *ctx = flow_open(NULL);
	struct glake_lease lease = {.sz = sizeof(lease), .leased = 77};
	void *ptr = flow_alloc(ctx, MIB, NULL), *at = ptr;
	char name[GLAKE_KEY_MAX + 1];
	size_t size = 77;

	is_int(glake_lease_get(ctx, 0, &lease), 0, "a lease is told of");
	ok(lease.state == GLAKE_LEASE_NONE && !lease.leased && !lease.helper,
		"which is none");
	is_int(glake_lease_get(ctx, 1, &lease), -EINVAL, "of a GPU that there is");
	is_int(glake_lease_get(ctx, 0, NULL), -EINVAL, "somewhere");
	lease.sz = 0;
	is_int(glake_lease_get(ctx, 0, &lease), -EINVAL, "of a size");
	is_int(glake_publish(ctx, ptr, "k", 0), -EINVAL, "a block that shares pages");
	is_int(glake_publish(ctx, ptr, NULL, 0), -EINVAL, "has no name");
	is_int(glake_publish(ctx, &size, "k", 0), -EINVAL, "nor has what is no block");
	is_int(glake_free(ctx, ptr, NULL), 0, "it is as it was");
	if (glake_alloc(ctx, 0, MIB, NULL, GLAKE_ALLOC_CONTIGUOUS, &ptr))
		tap_bail(flow_error().text);
	is_int(glake_publish(ctx, ptr, "k", 0), -EOPNOTSUPP,
		"nobody publishes without a broker");
	is_int(flow_error().error_class, GLAKE_ERROR_UNSUPPORTED,
		"which the record says");
	is_int(glake_attach(ctx, 0, "k", 0, 0, &size, &at), -EOPNOTSUPP, "nor attaches");
	is_int(glake_attach(ctx, 0, "k", 0, 2, &size, &at), -EINVAL, "by unknown flags");
	is_int(glake_attach(ctx, 1, "k", 0, 0, &size, &at), -EINVAL, "unknown GPUs");
	is_int(glake_attach(ctx, 0, NULL, 0, 0, &size, &at), -EINVAL, "no name");
	is_int(glake_attach(ctx, 0, "k", 0, 0, NULL, &at), -EINVAL,
		"no place for its size");
	is_int(glake_attach(ctx, 0, "k", 0, 0, &size, NULL), -EINVAL, "or its address");
	is_int(glake_publish_not(ctx, 0, "k"), -EOPNOTSUPP, "or gives a claim up");
	is_int(glake_publish_not(ctx, 0, NULL), -EINVAL, "to no name");
	is_int(glake_publish_not(ctx, 1, "k"), -EINVAL, "on no GPU");
	is_int(glake_detach(ctx, ptr, NULL), -EINVAL,
		"what is not attached is not taken down");
	is_int(glake_unseal(ctx, ptr, NULL), -EINVAL, "and has no own page");
	ok(size == 77 && at == at, "nothing was written");
	is_int(glake_free(ctx, ptr, NULL), 0, "the block is as it was");
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	is_int(glake_attach(ctx, 0, name, 0, 0, &size, &at), -EOPNOTSUPP,
		"a name too long is none either");
	is_int(glake_close(ctx, NULL), 0, "closed");
	is_int(glake_lease_get(ctx, 0, &lease), -ESTALE, "a context that is none");
	is_int(glake_publish(ctx, ptr, "k", 0), -ESTALE, "publishes nothing");
	is_int(glake_attach(ctx, 0, "k", 0, 0, &size, &at), -ESTALE, "attaches nothing");
	is_int(glake_detach(ctx, ptr, NULL), -ESTALE, "nor detaches");
	is_int(glake_unseal(ctx, ptr, NULL), -ESTALE, "nor unseals");
	is_int(glake_publish_not(ctx, 0, "k"), -ESTALE, "nor gives up");
}

static void test_away(void)
{
	const char *settings[] = {"share.broker=/nowhere/b.sock", "share.wait=1ms",
		"share.require=yes", "log.level=none", NULL};
	const char *wrong[] = {"share.broker=nowhere", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = wrong};
	struct glake *ctx, *none;
	char name[GLAKE_KEY_MAX + 1];
	size_t size;
	void *ptr;

	tap_expect_log(2);
	is_int(glake_open(&options, &none), -EINVAL, "a broker that is no path");
	ctx = flow_open(settings);
	is_int(glake_alloc(ctx, 0, MIB, NULL, 0, &ptr), -ENOMEM,
		"without its broker it has nothing");
	has_str(flow_error().text, "is away", "which the record says");
	is_int(glake_attach(ctx, 0, "k", 0, 0, &size, &ptr), -EAGAIN,
		"nor has others' contents");
	is_int(glake_attach(ctx, 0, "", 0, 0, &size, &ptr), -EINVAL, "of a name");
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	is_int(glake_attach(ctx, 0, name, 0, 0, &size, &ptr), -EINVAL,
		"that is not too long");
	is_int(glake_publish_not(ctx, 0, "k"), -EAGAIN, "or gives up");
	is_int(glake_close(ctx, NULL), 0, "closed");
}

static void test_child(void)
{
	struct glake *ctx = flow_open(NULL);
	struct glake_lease lease = {.sz = sizeof(lease)};
	pid_t child = flow_fork(60);
	size_t size;
	int status = -1;
	void *ptr;

	if (!child)
		_exit(glake_lease_get(ctx, 0, &lease) == -ENODEV &&
					glake_publish(ctx, &size, "k", 0) == -ENODEV &&
					glake_attach(ctx, 0, "k", 0, 0, &size, &ptr) ==
						-ENODEV &&
					glake_detach(ctx, &size, NULL) == 0 &&
					glake_unseal(ctx, &size, NULL) == -ENODEV &&
					glake_publish_not(ctx, 0, "k") == -ENODEV
				? 0
				: 1);
	waitpid(child, &status, 0);
	is_int(status, 0, "a child has none of it");
	is_int(glake_close(ctx, NULL), 0, "closed");
}

int main(void)
{
	tap_plan_later();
	test_none();
	test_away();
	test_child();
	return tap_done();
}
