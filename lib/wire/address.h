/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WIRE_ADDRESS_H
#define GLK_WIRE_ADDRESS_H

/* Addresses of sockets. Inside this folder. */
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

/* By the descriptor of the directory: what lies there now, however long its path is. */
static inline bool glk_wire_address(
	int room, const char *name, struct sockaddr_un *ret_address)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int length = snprintf(address.sun_path, sizeof(address.sun_path),
		"/proc/self/fd/%d/%s", room, name);

	*ret_address = address;
	return length > 0 && (size_t)length < sizeof(address.sun_path);
}

#endif
