/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A job of MPI: each rank of a machine takes the GPU of its number there, in a context of its own,
 * and adds up with all others. What is sent goes through memory of the host, which every MPI can
 * send; one that knows of GPUs takes the block itself.
 */
#include "must.h"
#include "standin.h"

#include <glake/glake.h>
#include <mpi.h>

#define COUNT 1024

static int local_rank(void)
{
	MPI_Comm machine;
	int rank;

	MPI_Comm_split_type(
		MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
	MPI_Comm_rank(machine, &rank);
	MPI_Comm_free(&machine);
	return rank;
}

int main(int argc, char **argv)
{
	struct CUstream_st *stream;
	int mine[COUNT], sum[COUNT];
	int rank, ranks, gpu;
	struct glake *ctx;
	void *block;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	must(glake_open(NULL, &ctx));
	gpu = local_rank() % glake_device_count(ctx);
	must(glake_stream_new(ctx, gpu, &stream));
	must(glake_alloc(ctx, gpu, sizeof(mine), stream, 0, &block));

	must(cuMemsetD32Async(block, (uint32_t)rank + 1, COUNT, stream));
	must(cuMemcpyAsync(mine, block, sizeof(mine), stream));
	must(glake_soft_stream_sync(ctx, gpu, stream));
	MPI_Allreduce(mine, sum, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of %d on GPU %d: the sum is %d\n", rank, ranks, gpu, sum[0]);

	must(glake_free(ctx, block, stream));
	must(glake_stream_free(ctx, gpu, stream));
	must(glake_close(ctx, NULL));
	MPI_Finalize();
	return 0;
}
