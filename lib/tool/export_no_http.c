/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where glakectl was built without the header of libmicrohttpd. */
#include "tool/export.h"
#include "tool/tool.h"

#include <errno.h>

int export_serve(const struct sockaddr *address, bool is_local, export_answer_fn fn,
	void *arg, uint16_t *ret_port, struct export_server **ret_server)
{
	(void)address;
	(void)is_local;
	(void)fn;
	(void)arg;
	(void)ret_port;
	(void)ret_server;
	glk_tool_say("export: nothing can be served, since glakectl was built without "
		     "libmicrohttpd; --once prints the text");
	return -EOPNOTSUPP;
}

void export_end(struct export_server *server)
{
	(void)server;
}
