/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which process is meant: by its number, by the name of its program, or the only one there is. */
#include "tool/process.h"

#include "base/parse.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Processes of a name; the only one, or 0 after a message that shows the others. */
static pid_t choose(const struct process *list, int count, const char *name)
{
	char others[256] = "";
	size_t at = 0;
	pid_t pid = 0;
	int found = 0;

	for (int i = 0; i < count; i++) {
		if (name && strcmp(list[i].program, name))
			continue;
		pid = list[i].pid;
		found++;
		if (at + 16 < sizeof(others))
			at += (size_t)snprintf(
				others + at, sizeof(others) - at, " %d", list[i].pid);
	}
	if (found == 1)
		return pid;
	if (!found && name)
		glk_tool_say(
			"no process of this user is called '%s' and has a socket; see "
			"glakectl ps",
			name);
	else if (!found)
		glk_tool_say(
			"no process of this user has a socket; rpc.socket=yes makes one");
	else
		glk_tool_say("there are %d%s%s: choose one of%s", found,
			name ? " of the name " : " processes", name ? name : "", others);
	return 0;
}

static pid_t find(int room, const char *name)
{
	struct process *list = NULL;
	int64_t number;
	pid_t pid;
	int count;

	if (name && !glk_parse_int(name, &number) && number > 0 && number <= INT32_MAX)
		return (pid_t)number;
	count = process_list(room, &list);
	if (count < 0)
		return 0;
	pid = choose(list, count, name);
	process_list_free(list, count);
	return pid;
}

pid_t process_find(const char *name, int *ret_room)
{
	int room, err = process_room(&room);
	char path[512];
	pid_t pid;

	if (err == -ENOENT) {
		glk_wire_room_path(path, sizeof(path));
		glk_tool_say(
			"no process has a socket in %s; rpc.socket=yes makes one", path);
	}
	if (err)
		return 0;
	pid = find(room, name);
	if (pid)
		*ret_room = room;
	else
		close(room);
	return pid;
}

void process_say_failed(pid_t pid, int err, const char *why)
{
	glk_tool_say("process %d: %s", pid,
		err == -ESRCH ? "it has no socket here; see glakectl ps" : why);
}
