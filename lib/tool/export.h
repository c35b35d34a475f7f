/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_EXPORT_H
#define GLK_TOOL_EXPORT_H

/*
 * glakectl export, inside:
 *
 *	export.c	the command, the addresses, the end
 *	export_text.c	one text of the texts of all processes
 *	export_http.c	who asks by HTTP, which libmicrohttpd speaks; export_no_http.c where its
 *			header was not there
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A text that grows. */
struct export_text {
	char *bytes;
	size_t length, size;
	bool failed; /* there was no memory */
};

void export_add(struct export_text *text, const char *bytes, size_t length);

/*
 * What all processes of the directory `room`, or those of `names`, answer to metrics, as one text:
 * each sample with the labels pid and program, the samples of a metric behind one another. The
 * caller frees `bytes`. 0 or -errno.
 */
int export_collect(int room, char **names, struct export_text *ret_text);

/* What is served, from several threads. 0 or -errno, as export_collect. */
typedef int (*export_answer_fn)(struct export_text *ret_text, void *arg);

/* Begins to serve at an address; the port 0 is any, and the one that it is. `is_local`: those who
 * say that they speak to another host than this one are refused. 0, or -errno after a message;
 * -EOPNOTSUPP: nobody here speaks HTTP. */
struct export_server;
int export_serve(const struct sockaddr *address, bool is_local, export_answer_fn fn,
	void *arg, uint16_t *ret_port, struct export_server **ret_server);
void export_end(struct export_server *server);

#endif
