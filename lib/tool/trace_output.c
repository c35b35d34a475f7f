/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file that a conversion writes. It gets its name when it is complete, so that a failure
 * leaves what was there before, and a trace can be converted in place.
 */
#include "tool/trace_tool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that others may read are as readable as any new file. */
static void set_mode(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	if (fchmod(fd, 0666 & ~mask))
		return; /* readable for the owner alone */
}

int trace_output_open(struct trace_output *output, const char *path)
{
	struct stat stat;
	int fd;

	*output = (struct trace_output){.file = stdout, .path = path};
	if (!path)
		return 0;
	if (!lstat(path, &stat) && !S_ISREG(stat.st_mode)) {
		output->file = fopen(path, "we");
		return output->file ? 0 : -errno;
	}
	if (snprintf(output->part, sizeof(output->part), "%s.XXXXXX", path) >=
		(int)sizeof(output->part))
		return -ENAMETOOLONG;
	fd = mkstemp(output->part);
	if (fd < 0)
		return -errno;
	set_mode(fd);
	output->file = fdopen(fd, "w");
	if (output->file)
		return 0;
	close(fd);
	unlink(output->part);
	return -ENOMEM;
}

int trace_output_close(struct trace_output *output, bool good)
{
	int err = ferror(output->file) ? -EIO : 0;

	/* what goes wrong there is told at the very end */
	if (!output->path)
		return 0;
	if (fclose(output->file) && !err)
		err = -errno;
	if (!output->part[0])
		return err;
	if (!err && good && rename(output->part, output->path))
		err = -errno;
	if (err || !good)
		unlink(output->part);
	return err;
}
