/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl export: the figures of all processes for Prometheus, over HTTP on this host. The
 * processes are asked when somebody asks, so what is served is never old, and costs nothing when
 * nobody does.
 */
#include "tool/export.h"

#include "base/atomic.h"
#include "base/parse.h"
#include "tool/process.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "export"
#define PORT	9474

static const char help[] =
	"usage: glakectl export [OPTION]... [PID|PROGRAM]...\n"
	"\n"
	"Serves what Prometheus scrapes, of all processes of this user that run with glake and\n"
	"rpc.socket=yes, or of those named, at http://localhost:9474/metrics, until it is\n"
	"interrupted.\n"
	"\n"
	"  -p, --port N           the port; 0 for any that is free (9474)\n"
	"  -a, --address ADDRESS  in place of 127.0.0.1 and ::1\n"
	"  -P, --public           the address may be another than this host's own\n"
	"  -o, --once             print the text, and serve nothing\n"
	"  -h, --help             show this help\n";

static const struct option long_options[] = {
	{"port", required_argument, NULL, 'p'},
	{"address", required_argument, NULL, 'a'},
	{"public", no_argument, NULL, 'P'},
	{"once", no_argument, NULL, 'o'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

struct options {
	const char *address;
	uint16_t port;
	bool public, once;
	char **names;
};

/* Asked for by several threads: those that came before the last look began share it. */
struct source {
	pthread_mutex_t lock;
	int room, err;
	char **names;
	glk_atomic(uint64_t) looks; /* begun */
	struct export_text last;
};

static int copy(const struct source *source, struct export_text *ret_text)
{
	struct export_text text = {0};

	if (source->err)
		return source->err;
	export_add(&text, source->last.bytes, source->last.length);
	*ret_text = text;
	return text.failed ? -ENOMEM : 0;
}

static int answer(struct export_text *ret_text, void *arg)
{
	struct source *source = arg;
	/* a look that begins from now on is as good as one's own */
	uint64_t seen = glk_load_relaxed(&source->looks);
	int err;

	pthread_mutex_lock(&source->lock);
	if (glk_load_relaxed(&source->looks) == seen) {
		glk_store_relaxed(&source->looks, seen + 1);
		free(source->last.bytes);
		source->last = (struct export_text){0};
		source->err = export_collect(source->room, source->names, &source->last);
	}
	err = copy(source, ret_text);
	pthread_mutex_unlock(&source->lock);
	return err;
}

static bool is_own(const struct sockaddr *address)
{
	const struct sockaddr_in *four = (const void *)address;
	const struct sockaddr_in6 *six = (const void *)address;

	return address->sa_family == AF_INET
		? ntohl(four->sin_addr.s_addr) >> 24 == 127
		: address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static void set_port(struct sockaddr *address, uint16_t port)
{
	if (address->sa_family == AF_INET)
		((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
}

/* The address that is told, which is a number: no name is looked up. */
static int read_address(
	const struct options *options, struct sockaddr_storage *ret_address)
{
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;

	if (getaddrinfo(options->address, NULL, &hints, &found))
		return glk_tool_usage(COMMAND,
			"--address takes an address as 127.0.0.1 or ::1, not '%s'",
			options->address);
	memcpy(ret_address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	if (is_own((struct sockaddr *)ret_address) || options->public)
		return 0;
	return glk_tool_usage(COMMAND,
		"%s is reached from other hosts, who are asked for no password; --public says "
		"that they may",
		options->address);
}

/* One address, or both of this host, of which one may be missing. */
static int serve(const struct options *options, struct source *source)
{
	struct sockaddr_in four = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 six = {
		.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_storage told;
	struct sockaddr *addresses[2] = {(void *)&four, (void *)&six};
	struct export_server *servers[2] = {0};
	int count = 2, err = 0, status, sig;
	uint16_t port = options->port;
	sigset_t ends;

	if (options->address) {
		status = read_address(options, &told);
		if (status)
			return status;
		addresses[0] = (void *)&told;
		count = 1;
	}
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	/* before there are threads, which take it over */
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	for (int i = 0; i < count && !err; i++) {
		set_port(addresses[i], port);
		err = export_serve(addresses[i], is_own(addresses[i]), answer, source,
			&port, &servers[i]);
		if (i && (err == -EAFNOSUPPORT || err == -EADDRNOTAVAIL))
			err = 0; /* a host without IPv6 */
	}
	if (!err)
		sigwait(&ends, &sig);
	for (int i = 0; i < count; i++)
		export_end(servers[i]);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int print(struct source *source)
{
	struct export_text text = {0};
	int err = answer(&text, source);

	if (!err)
		fwrite(text.bytes, 1, text.length, stdout);
	else
		glk_tool_say("export: %s", strerror(-err));
	free(text.bytes);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int run(const struct options *options)
{
	struct source source = {
		.lock = PTHREAD_MUTEX_INITIALIZER, .names = options->names};
	char why[GLK_WIRE_WHY_MAX];
	int status, err = process_room(&source.room);

	/* who serves may have begun before the first process that is watched */
	if (err == -ENOENT && glk_wire_room_open(true, &source.room, why)) {
		glk_tool_say("no process can be asked: %s", why);
		return GLK_TOOL_FAILED;
	}
	if (err && err != -ENOENT)
		return GLK_TOOL_FAILED;
	status = options->once ? print(&source) : serve(options, &source);
	free(source.last.bytes);
	close(source.room);
	return status;
}

static int take(struct options *options, int c)
{
	int64_t port;

	switch (c) {
	case 'p':
		if (glk_parse_int(optarg, &port) || port < 0 || port > 65535)
			return glk_tool_usage(COMMAND,
				"--port takes a number from 0 to 65535, not '%s'",
				optarg);
		options->port = (uint16_t)port;
		return 0;
	case 'a':
		options->address = optarg;
		return 0;
	case 'P':
		options->public = true;
		return 0;
	case 'o':
		options->once = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

int glk_tool_export(int argc, char **argv)
{
	struct options options = {.port = PORT};
	int c, status = 0;

	while (!status && (c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		status = take(&options, c);
	}
	options.names = argv + optind;
	return status ? status : run(&options);
}
