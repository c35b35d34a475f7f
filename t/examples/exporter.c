/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gives a block to one other process, which maps the same memory: exporter SOCKET. See importer.c.
 *
 * The block is contiguous: one page that no other block lies on, for the other process can read
 * all of every page that it gets.
 */
#include "must.h"
#include "pieces.h"
#include "standin.h"

#include <glake/glake.h>

#define BYTES ((size_t)1 << 20)

static int wait_for_importer(const char *path)
{
	struct sockaddr_un address = address_of(path);
	int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), peer;

	or_die(door >= 0, "socket");
	or_die(!bind(door, (struct sockaddr *)&address, sizeof(address)), path);
	or_die(!listen(door, 1), "listen");
	peer = accept(door, NULL, NULL);
	or_die(peer >= 0, "accept");
	close(door);
	unlink(path);
	return peer;
}

static void send_pieces(int peer, struct glake_piece *pieces, size_t count)
{
	struct parcel parcel = {.bytes = BYTES, .count = count};

	or_die(send(peer, &parcel, sizeof(parcel), 0) == sizeof(parcel), "send");
	for (size_t i = 0; i < count; i++) {
		pass_piece(peer, &pieces[i], 0);
		close(pieces[i].fd);
	}
}

int main(int argc, char **argv)
{
	struct glake_piece pieces[64];
	struct CUstream_st *stream;
	struct glake *ctx;
	size_t count;
	char done;
	void *ptr;
	int peer;

	or_die(argc == 2, "usage: exporter SOCKET");
	must(glake_open(NULL, &ctx));
	must(glake_stream_new(ctx, 0, &stream));
	must(glake_alloc(ctx, 0, BYTES, stream, GLAKE_ALLOC_CONTIGUOUS, &ptr));
	must(cuMemsetD32Async(ptr, 1, BYTES / 4, stream));
	must(cuStreamSynchronize(stream)); /* before the other side may begin */

	peer = wait_for_importer(argv[1]);
	must(glake_export(ctx, ptr, pieces, 64, &count));
	send_pieces(peer, pieces, count);
	or_die(recv(peer, &done, 1, 0) == 1, "the importer went away");
	must(glake_export_end(ctx, ptr));

	printf("exported 1, found %d\n", *(int *)ptr);
	close(peer);
	must(glake_free(ctx, ptr, stream));
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
