/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Takes a block of another process and writes into it: importer SOCKET. See exporter.c. */
#include "must.h"
#include "pieces.h"
#include "standin.h"

#include <errno.h>
#include <glake/glake.h>

static int connect_to(const char *path)
{
	struct sockaddr_un address = address_of(path);
	int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	or_die(peer >= 0, "socket");
	/* the exporter may still be on its way there */
	for (int i = 0; connect(peer, (struct sockaddr *)&address, sizeof(address));
		i++) {
		or_die(i < 500 && (errno == ENOENT || errno == ECONNREFUSED), path);
		usleep(20000);
	}
	return peer;
}

int main(int argc, char **argv)
{
	struct glake_piece pieces[64];
	struct CUstream_st *stream;
	struct parcel parcel;
	struct glake *ctx;
	void *same;
	int peer;

	or_die(argc == 2, "usage: importer SOCKET");
	must(glake_open(NULL, &ctx));
	must(glake_stream_new(ctx, 0, &stream));
	peer = connect_to(argv[1]);
	or_die(recv(peer, &parcel, sizeof(parcel), 0) == sizeof(parcel) &&
			parcel.count <= 64,
		"recv");
	size_t count = parcel.count, bytes = parcel.bytes;
	for (size_t i = 0; i < count; i++)
		pass_piece(peer, &pieces[i], 1);
	must(glake_import(ctx, 0, pieces, count, bytes, &same));
	for (size_t i = 0; i < count; i++)
		close(pieces[i].fd);

	printf("imported %zu bytes, found %d\n", bytes, *(int *)same);
	must(cuMemsetD32Async(same, 2, bytes / 4, stream));
	must(glake_import_end(ctx, same, stream));
	or_die(send(peer, "", 1, 0) == 1, "send"); /* nothing here uses it any more */

	close(peer);
	must(glake_stream_free(ctx, 0, stream));
	must(glake_close(ctx, NULL));
	return 0;
}
