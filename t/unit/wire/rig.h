/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_WIRE_RIG_H
#define GLK_T_WIRE_RIG_H

/* A directory for this test alone, in the place of that of the user. */
#include "wire/wire.h"

#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char rig_parent[80];
static char rig_path[sizeof(rig_parent) + 16];
static char rig_why[GLK_WIRE_WHY_MAX];

static void rig_begin(void)
{
	if (!mkdtemp(tap_template(rig_parent, sizeof(rig_parent), "wire")))
		abort();
	setenv("XDG_RUNTIME_DIR", rig_parent, 1);
	snprintf(rig_path, sizeof(rig_path), "%s/glake", rig_parent);
}

static inline int rig_open(bool make)
{
	int fd, err = glk_wire_room_open(make, &fd, rig_why);

	if (err)
		return err;
	close(fd);
	return 0;
}

/* Names in the directory. */
static inline int rig_count(void)
{
	DIR *dir = opendir(rig_path);
	struct dirent *entry;
	int count = 0;

	while (dir && (entry = readdir(dir)))
		count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	if (dir)
		closedir(dir);
	return count;
}

static void rig_end(void)
{
	rmdir(rig_path);
	rmdir(rig_parent);
}

#endif
