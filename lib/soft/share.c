/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages of the software device in other processes. An exported page stays where it is in the
 * file of its device; its descriptor is the file, opened anew, with a position that says which
 * bytes are meant and whose they are:
 *
 *	bit 61: of the host, not of a GPU	bits 55-60: number of the GPU or node
 *	bits 21-54: first granule		bits 0-20: granules
 *
 * An importer maps those bytes of that file, so it sees the same memory, whatever process it
 * is of. Each such opening holds a shared lock on the bytes of its page (fcntl, F_OFD_SETLK),
 * which lasts as long as anybody has it open or mapped, copies in other processes and on their
 * way there included. So the exporter can ask whether the memory of a page that it has released
 * may be used again, and memory that somebody needs stays charged to its GPU, as the driver's
 * does.
 *
 * The file is that of the whole device: who gets a page could read its neighbours. It is sealed,
 * so that nobody can cut it, and a file that could be cut is not imported: touching what is gone
 * would end the process. Races are judged by page, so that work on a page and on an import of it
 * in one process is taken for work on two.
 *
 * Cost		an export 10 us, an import 5; a descriptor each, also in the importer
 */
#include "soft/state.h"

#include "base/error.h"
#include "soft/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_BITS 21
#define FIRST_BITS 34
#define PLACE_BITS 6

#define FILE_NAME "/memfd:glake-soft (deleted)"

/* What a position says. */
struct token {
	size_t first, count; /* granules */
	struct glk_place place;
};

static off_t token_make(const struct soft *soft, const struct soft_page *page)
{
	bool host = page->place >= soft->gpus;
	uint64_t id = host ? page->place - (unsigned)soft->gpus : page->place;
	uint64_t token = host;

	token = token << PLACE_BITS | id;
	token = token << FIRST_BITS | page->first;
	token = token << COUNT_BITS | page->size / GLK_GRANULE;
	return (off_t)token;
}

static struct token token_read(uint64_t position)
{
	struct token token;

	token.count = position & ((UINT64_C(1) << COUNT_BITS) - 1);
	position >>= COUNT_BITS;
	token.first = position & ((UINT64_C(1) << FIRST_BITS) - 1);
	position >>= FIRST_BITS;
	token.place.id = (int)(position & ((1u << PLACE_BITS) - 1));
	token.place.kind = position >> PLACE_BITS ? GLK_PLACE_HOST : GLK_PLACE_GPU;
	return token;
}

static int failed(const char *call, const char *what)
{
	int err = errno;

	if (err == EMFILE || err == ENFILE)
		return glk_error_native(-err, GLAKE_ERROR_LIMIT, call, err,
			"no file descriptor is left to %s a page", what);
	return glk_error_native(-EIO, GLAKE_ERROR_DRIVER, call, err,
		"a page of the software device: %s", what);
}

/* The file of the device once more. */
static int open_again(const struct soft *soft)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", soft->file.fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static int lend(struct soft *soft, struct soft_page *page, int *ret_fd)
{
	int fd, err;

	/* a page that lies nowhere yet has no address to be put at */
	err = glk_soft_page_put(soft, page, 0);
	if (err)
		return err;
	fd = open_again(soft);
	if (fd < 0)
		return failed("open", "export");
	if (glk_soft_file_hold(fd, page->first, page->size) ||
		lseek(fd, token_make(soft, page), SEEK_SET) < 0) {
		err = failed("fcntl", "export");
		close(fd);
		return err;
	}
	if (!page->lent)
		glk_soft_charge(soft, GLAKE_CALL_EXPORT, 1);
	page->lent = true;
	page->written = true; /* by whoever gets it */
	*ret_fd = fd;
	return 0;
}

int glk_soft_export_fd(struct glk_drv *drv, uint64_t handle, int *ret_fd)
{
	struct soft *soft = soft_of(drv);
	struct soft_page *page;
	int err = -EINVAL;

	glk_soft_enter(soft);
	page = glk_soft_page_find(soft, handle, "cuMemExportToShareableHandle");
	if (page && page->fd >= 0) {
		/* the descriptor that it came by says it all */
		*ret_fd = fcntl(page->fd, F_DUPFD_CLOEXEC, 0);
		err = *ret_fd < 0 ? failed("fcntl", "export") : 0;
	} else if (page) {
		err = lend(soft, page, ret_fd);
	}
	glk_unlock(&soft->lock);
	return err;
}

/* Whether a descriptor is the file of a software device, which stays as large as it is. */
static bool is_ours(int fd)
{
	char path[40], name[sizeof(FILE_NAME) + 1];
	ssize_t length;
	int seals;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SOFT_SEALS) != SOFT_SEALS)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, name, sizeof(name));
	return length == (ssize_t)sizeof(FILE_NAME) - 1 &&
		!memcmp(name, FILE_NAME, sizeof(FILE_NAME) - 1);
}

static bool token_find(int fd, struct token *ret_token)
{
	struct stat st;
	off_t position;

	if (!is_ours(fd) || fstat(fd, &st))
		return false;
	position = lseek(fd, 0, SEEK_CUR);
	if (position < 0)
		return false;
	*ret_token = token_read((uint64_t)position);
	return ret_token->count &&
		ret_token->first + ret_token->count <= (size_t)st.st_size / GLK_GRANULE;
}

int glk_soft_import_fd(struct glk_drv *drv, int fd, uint64_t *ret_page)
{
	struct soft *soft = soft_of(drv);
	struct soft_page page;
	struct token token;
	uint64_t handle;
	uint8_t place;
	int err;

	if (!token_find(fd, &token))
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
			"cuMemImportFromShareableHandle", 1,
			"descriptor %d is no page of a software device", fd);
	err = glk_soft_place(soft, token.place, &place);
	if (err)
		return err;
	page = (struct soft_page){.size = token.count * GLK_GRANULE,
		.first = token.first,
		.place = place,
		.placed = true};
	page.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (page.fd < 0)
		return failed("fcntl", "import");
	glk_soft_enter(soft);
	glk_soft_charge(soft, GLAKE_CALL_IMPORT, 1);
	handle = glk_soft_page_add(soft, &page);
	glk_unlock(&soft->lock);
	if (!handle) {
		close(page.fd);
		return -ENOMEM;
	}
	*ret_page = handle;
	return 0;
}

int glk_soft_page_place(struct glk_drv *drv, uint64_t handle, struct glk_place *ret_place)
{
	struct soft *soft = soft_of(drv);
	const struct soft_page *page;

	glk_soft_enter(soft);
	page = glk_soft_page_find(soft, handle, "cuMemGetAllocationPropertiesFromHandle");
	if (page && page->place < soft->gpus)
		*ret_place = (struct glk_place){GLK_PLACE_GPU, page->place};
	else if (page)
		*ret_place = (struct glk_place){GLK_PLACE_HOST, page->place - soft->gpus};
	glk_unlock(&soft->lock);
	return page ? 0 : -EINVAL;
}

int glk_soft_peer_can(struct glk_drv *drv, int device, int peer, bool *ret_can)
{
	struct soft *soft = soft_of(drv);
	uint8_t place;
	int err;

	err = glk_soft_place(soft, (struct glk_place){GLK_PLACE_GPU, device}, &place);
	if (!err)
		err = glk_soft_place(
			soft, (struct glk_place){GLK_PLACE_GPU, peer}, &place);
	if (err)
		return err;
	*ret_can = device != peer;
	return 0;
}
