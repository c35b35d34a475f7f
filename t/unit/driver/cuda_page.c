/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the VMM operations hand to the driver, and what they make of its answers. */
#include "cuda_rig.h"

#define PAGE ((size_t)2 << 20)

static const struct glk_place gpu1 = {GLK_PLACE_GPU, 1}, node1 = {GLK_PLACE_HOST, 1};

static int class_now(void)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	return record.error_class;
}

static void creating(void)
{
	uint64_t page = 0;

	is_int(drv->ops->create(drv, gpu1, PAGE, 0, &page), 0, "a page on GPU 1");
	ok(page, "has a handle");
	is_int(fake->prop.type, GLK_CU_ALLOCATION_PINNED, "pinned");
	is_int(fake->prop.location.type, GLK_CU_LOCATION_DEVICE, "on a device");
	is_int(fake->prop.location.id, 1, "the second");
	is_int(fake->prop.handle_types, 0, "not for export");
	is_int(fake->prop.flags.rdma, 0, "not for RDMA");
	is_int(fake->size, PAGE, "of that size");
	ok(fake->context == FAKE_CONTEXT(1), "in the context of GPU 1");

	drv->ops->create(drv, node1, PAGE,
		GLK_PAGE_EXPORT_FD | GLK_PAGE_FABRIC | GLK_PAGE_RDMA, &page);
	is_int(fake->prop.location.type, GLK_CU_LOCATION_HOST_NUMA, "a page of the host");
	is_int(fake->prop.location.id, 1, "on node 1");
	is_int(fake->prop.handle_types, GLK_CU_HANDLE_FD | GLK_CU_HANDLE_FABRIC,
		"to export");
	is_int(fake->prop.flags.rdma, 1, "for RDMA");
	drv->ops->create(drv, (struct glk_place){.kind = GLK_PLACE_ANY}, PAGE, 0, &page);
	is_int(fake->prop.location.type, GLK_CU_LOCATION_HOST,
		"one anywhere on the host");
	is_int(fake->prop.location.id, 0, "which has no number");

	page = 5;
	fail("cuMemCreate", GLK_CU_OUT_OF_MEMORY);
	is_int(drv->ops->create(drv, gpu1, PAGE, 0, &page), -ENOMEM, "GPU full");
	is_int(class_now(), GLAKE_ERROR_NOMEM_DEVICE, "is the GPU's memory");
	is_int(drv->ops->create(drv, node1, PAGE, 0, &page), -ENOMEM, "node full");
	is_int(class_now(), GLAKE_ERROR_NOMEM_HOST, "is the host's memory");
	fail("cuMemCreate", GLK_CU_NOT_PERMITTED);
	is_int(drv->ops->create(drv, gpu1, PAGE, GLK_PAGE_FABRIC, &page), -EPERM,
		"no fabric");
	is_int(class_now(), GLAKE_ERROR_PERM, "is forbidden");
	fail(NULL, 0);
	is_int(drv->ops->create(
		       drv, (struct glk_place){GLK_PLACE_GPU, 2}, PAGE, 0, &page),
		-EINVAL, "GPU 2 of 2");
	is_int(drv->ops->create(
		       drv, (struct glk_place){GLK_PLACE_HOST, -1}, PAGE, 0, &page),
		-EINVAL, "node -1");
	is_int(page, 5, "the output is left alone");
}

static void addresses(void)
{
	uint64_t addr = 5;

	fail("cuMemAddressReserve", GLK_CU_OUT_OF_MEMORY);
	is_int(drv->ops->reserve(drv, PAGE, PAGE, &addr), -ENOMEM, "addresses used up");
	is_int(class_now(), GLAKE_ERROR_ADDRESS, "is no lack of memory");
	fail("cuMemAddressReserve", GLK_CU_INVALID_VALUE);
	is_int(drv->ops->reserve(drv, 1, PAGE, &addr), -EINVAL, "a size that is none");
	is_int(addr, 5, "the output is left alone");
	fail(NULL, 0);
	is_int(drv->ops->reserve(drv, 4 * PAGE, PAGE, &addr), 0, "reserve");
	is_int(fake->size, 4 * PAGE, "that many");
	is_int(drv->ops->map(drv, addr + PAGE, PAGE, 3), 0, "map");
	is_int(fake->address, addr + PAGE, "there");
	is_int(fake->offset, 0, "from the page's start");
	is_int(fake->flags, 0, "without flags");
	is_int(drv->ops->unmap(drv, addr + PAGE, PAGE), 0, "unmap");
	is_int(drv->ops->unreserve(drv, addr, 4 * PAGE), 0, "unreserve");
	fail("cuMemMap", GLK_CU_ALREADY_MAPPED);
	is_int(drv->ops->map(drv, addr, PAGE, 3), -EINVAL, "mapped twice");
	fail(NULL, 0);
}

static void access_rights(void)
{
	struct glk_grant grants[GLK_CUDA_GRANTS_MAX + 1] = {
		{gpu1, GLK_ACCESS_WRITE},
		{node1, GLK_ACCESS_READ},
		{{GLK_PLACE_GPU, 0}, GLK_ACCESS_NONE},
	};

	is_int(drv->ops->set_access(drv, 0, PAGE, grants, 3), 0, "three grants");
	is_int(fake->access_count, 3, "are three");
	is_int(fake->access[0].location.type, GLK_CU_LOCATION_DEVICE, "a GPU");
	is_int(fake->access[0].location.id, 1, "the second");
	is_int(fake->access[0].flags, GLK_CU_ACCESS_READWRITE, "writes");
	is_int(fake->access[1].location.type, GLK_CU_LOCATION_HOST_NUMA, "a node");
	is_int(fake->access[1].flags, GLK_CU_ACCESS_READ, "reads");
	is_int(fake->access[2].flags, GLK_CU_ACCESS_NONE, "may not");
	is_int(drv->ops->set_access(drv, 0, PAGE, grants, 0), -EINVAL, "no grant");
	for (int i = 0; i < GLK_CUDA_GRANTS_MAX; i++)
		grants[i] = grants[0];
	is_int(drv->ops->set_access(drv, 0, PAGE, grants, GLK_CUDA_GRANTS_MAX), 0,
		"the most");
	is_int(drv->ops->set_access(drv, 0, PAGE, grants, GLK_CUDA_GRANTS_MAX + 1),
		-EINVAL, "one more");
	grants[1].who.id = 7;
	is_int(drv->ops->set_access(drv, 0, PAGE, grants, 2), -EINVAL, "an unknown GPU");
	fail("cuMemSetAccess", GLK_CU_OUT_OF_MEMORY);
	is_int(drv->ops->set_access(drv, 0, PAGE, grants, 1), -ENOMEM,
		"no memory for tables");
	fail(NULL, 0);
}

static void giving_back(void)
{
	const char *const calls[] = {"cuMemRelease", "cuMemUnmap", "cuMemAddressFree"};

	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 2; j++) {
			int err, want = j ? -EINVAL : 0;

			fail(calls[i], j ? GLK_CU_INVALID_VALUE : GLK_CU_DEINITIALIZED);
			err = i == 0	 ? drv->ops->release(drv, 1)
				: i == 1 ? drv->ops->unmap(drv, 0, PAGE)
					 : drv->ops->unreserve(drv, 0, PAGE);
			is_int(err, want, calls[i]);
		}
	}
	fail(NULL, 0);
}

int main(void)
{
	rig_begin();
	creating();
	addresses();
	access_rights();
	giving_back();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	return rig_end();
}
