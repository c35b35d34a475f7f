/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Answers GET /metrics by HTTP, and nothing else. libmicrohttpd speaks it, which is loaded when it is
 * asked for; here stands what is answered, and how much anybody may take: connections, memory and
 * silence of each are bounded. Who asks while the processes are being asked has the next answer with
 * all others who do.
 */
#include "tool/export.h"
#include "tool/tool.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY	    "libmicrohttpd.so.12"
#define CONNECTIONS 64u
#define THREADS	    4u
#define SILENCE_S   5u		      /* of one who asks */
#define MEMORY	    ((size_t)8 << 10) /* of a connection: a request is no longer */

#define FUNCTIONS(F)                                                                     \
	F(MHD_start_daemon)                                                              \
	F(MHD_stop_daemon)                                                               \
	F(MHD_create_response_from_buffer)                                               \
	F(MHD_add_response_header)                                                       \
	F(MHD_queue_response)                                                            \
	F(MHD_destroy_response)                                                          \
	F(MHD_lookup_connection_value)

static struct functions {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} mhd;

struct export_server {
	struct MHD_Daemon *daemon;
	export_answer_fn fn;
	void *arg;
	bool is_local;
	char host[INET6_ADDRSTRLEN + 2]; /* as it is asked for there */
};

static int load(void)
{
#define NAME(name) #name,
	static const char *const names[] = {FUNCTIONS(NAME)};
#undef NAME
	void *library = dlopen(LIBRARY, RTLD_NOW), *found[sizeof(names) / sizeof(*names)];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		found[i] = library ? dlsym(library, names[i]) : NULL;
		if (found[i])
			continue;
		glk_tool_say("export: nothing can be served without " LIBRARY
			     " (libmicrohttpd12): %s; --once prints the text",
			dlerror());
		return -EOPNOTSUPP;
	}
	memcpy(&mhd, found, sizeof(mhd));
	return 0;
}

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status,
	char *text, size_t length, enum MHD_ResponseMemoryMode mode)
{
	static const char kind[] = "text/plain; version=0.0.4; charset=utf-8";
	struct MHD_Response *response =
		mhd.MHD_create_response_from_buffer(length, text, mode);
	enum MHD_Result result;

	if (!response) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO; /* the connection ends */
	}
	mhd.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
		status == MHD_HTTP_OK ? kind : "text/plain");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		mhd.MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET");
	result = mhd.MHD_queue_response(connection, status, response);
	mhd.MHD_destroy_response(response);
	return result;
}

static enum MHD_Result refuse(
	struct MHD_Connection *connection, unsigned status, const char *why)
{
	return reply(connection, status, (char *)(uintptr_t)why, strlen(why),
		MHD_RESPMEM_PERSISTENT);
}

/* A page of elsewhere whose name leads here asks for that name. */
static bool is_this_host(
	const struct export_server *server, struct MHD_Connection *connection)
{
	const char *const names[] = {"localhost", "127.0.0.1", "[::1]", server->host};
	const char *host = mhd.MHD_lookup_connection_value(
		connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	size_t length;

	for (size_t i = 0; host && i < sizeof(names) / sizeof(*names); i++) {
		length = strlen(names[i]);
		if (!strncasecmp(host, names[i], length) &&
			(!host[length] || host[length] == ':'))
			return true;
	}
	return !host;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection,
	const char *url, const char *method, const char *version, const char *upload,
	size_t *upload_size, void **state)
{
	struct export_server *server = arg;
	struct export_text text;

	(void)version;
	(void)upload;
	(void)state;
	if (strcmp(method, MHD_HTTP_METHOD_GET))
		return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET alone\n");
	if (*upload_size)
		return MHD_NO;
	if (server->is_local && !is_this_host(server, connection))
		return refuse(connection, MHD_HTTP_FORBIDDEN, "this host alone\n");
	if (strcmp(url, "/metrics"))
		return refuse(connection, MHD_HTTP_NOT_FOUND, "there is /metrics\n");
	if (server->fn(&text, server->arg))
		return refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
			"the processes cannot be asked\n");
	return reply(
		connection, MHD_HTTP_OK, text.bytes, text.length, MHD_RESPMEM_MUST_FREE);
}

/* A path is what it is, byte by byte. */
static size_t keep_path(void *arg, struct MHD_Connection *connection, char *path)
{
	(void)arg;
	(void)connection;
	return strlen(path);
}

/* What it has to say of those who ask is theirs to know. */
static void say_nothing(void *arg, const char *format, va_list args)
{
	(void)arg;
	(void)format;
	(void)args;
}

/* As it stands in an address of the web. */
static void name_host(const struct sockaddr *address, char *host, size_t size)
{
	const void *bytes = address->sa_family == AF_INET
		? (const void *)&((const struct sockaddr_in *)address)->sin_addr
		: (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;
	bool is_long = address->sa_family == AF_INET6;
	char text[INET6_ADDRSTRLEN] = "?";

	inet_ntop(address->sa_family, bytes, text, sizeof(text));
	snprintf(host, size, "%s%s%s", is_long ? "[" : "", text, is_long ? "]" : "");
}

/* Our own, since not every version of the library says why it has none. 0 or -errno. */
static int listen_at(const struct sockaddr *address, uint16_t *ret_port, int *ret_fd)
{
	const int yes = 1;
	bool is_long = address->sa_family == AF_INET6;
	struct sockaddr_storage got = {0};
	socklen_t length =
		is_long ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int fd = socket(
		    address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
	    err;

	if (fd < 0)
		return -errno;
	/* one that has just ended leaves connections behind */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
		(is_long &&
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes))) ||
		bind(fd, address, length) || listen(fd, CONNECTIONS) ||
		getsockname(fd, (struct sockaddr *)&got, &length)) {
		err = -errno;
		close(fd);
		return err;
	}
	*ret_port = ntohs(is_long ? ((struct sockaddr_in6 *)&got)->sin6_port
				  : ((struct sockaddr_in *)&got)->sin_port);
	*ret_fd = fd;
	return 0;
}

/* With a socket, which is the daemon's from then on. */
static struct MHD_Daemon *start(struct export_server *server, int family, int fd)
{
	unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ERROR_LOG |
		(family == AF_INET6 ? MHD_USE_IPv6 : 0);

	return mhd.MHD_start_daemon(flags, 0, NULL, NULL, answer, server,
		MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL, MHD_OPTION_LISTEN_SOCKET,
		fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
		MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY, MHD_OPTION_THREAD_POOL_SIZE,
		THREADS, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_UNESCAPE_CALLBACK,
		keep_path, NULL, MHD_OPTION_END);
}

int export_serve(const struct sockaddr *address, bool is_local, export_answer_fn fn,
	void *arg, uint16_t *ret_port, struct export_server **ret_server)
{
	struct export_server *server = calloc(1, sizeof(*server));
	int fd, err = server ? load() : -ENOMEM;

	if (err)
		goto out;
	*server = (struct export_server){.fn = fn, .arg = arg, .is_local = is_local};
	name_host(address, server->host, sizeof(server->host));
	err = listen_at(address, ret_port, &fd);
	if (!err) {
		errno = 0;
		server->daemon = start(server, address->sa_family, fd);
		err = server->daemon ? 0 : errno ? -errno : -EIO;
	}
	if (err) {
		glk_tool_say("export: http://%s:%u/metrics cannot be served: %s",
			server->host, *ret_port, strerror(-err));
		goto out;
	}
	glk_tool_say("export: http://%s:%u/metrics", server->host, *ret_port);
	*ret_server = server;
	return 0;
out:
	free(server);
	return err;
}

void export_end(struct export_server *server)
{
	if (!server)
		return;
	mhd.MHD_stop_daemon(server->daemon);
	free(server);
}
