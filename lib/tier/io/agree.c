/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locks on a file of no content: see agree.h. */
#include "tier/io/agree.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "links"

#define USED_ALONE 0
#define USED_LENT  1
#define SHARES	   16 /* and 16 more for the other way */
#define BYTES_BITS 8  /* of a GPU */
#define PLACE_BITS 46 /* of GPUs: all of it is less than a file may have */
/* Of a link that another one uses and lends. */
#define HALF (GLK_AGREE_SHARES / 2)

void glk_agree_init(struct glk_agree *agree, bool on, bool tell, uint64_t lent)
{
	*agree = (struct glk_agree){.on = on, .tell = tell, .lent = lent, .fd = -1};
}

/* Nothing is agreed on any more. */
static void end(struct glk_agree *agree)
{
	/* a program may have closed it, and have another of its number */
	if (agree->fd >= 0 && glk_wire_is(agree->fd, &agree->mark))
		close(agree->fd);
	agree->fd = -1;
	agree->on = false;
}

void glk_agree_fini(struct glk_agree *agree)
{
	if (agree->on)
		end(agree);
}

/* ---- The file ---- */

static const char *unacceptable(int fd)
{
	struct stat s;

	if (fstat(fd, &s))
		return "it cannot be looked at";
	if (!S_ISREG(s.st_mode))
		return "it is no plain file";
	if (s.st_uid != geteuid())
		return "it is another user's";
	if (s.st_mode & (S_IRWXG | S_IRWXO))
		return "it is open to others";
	return NULL;
}

static int open_file(char *why)
{
	const char *wrong;
	int room, fd;

	if (glk_wire_room_open(true, &room, why))
		return -1;
	fd = openat(room, NAME,
		O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	wrong = fd < 0 ? strerror(errno) : unacceptable(fd);
	close(room);
	if (!wrong)
		return fd;
	snprintf(why, GLK_WIRE_WHY_MAX, "the file " NAME " for it: %s", wrong);
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Whether there is somebody to agree with. */
static bool ready(struct glk_agree *agree)
{
	char why[GLK_WIRE_WHY_MAX] = "";

	if (!agree->on)
		return false;
	if (agree->fd < 0) {
		agree->fd = open_file(why);
		if (agree->fd >= 0)
			agree->mark = glk_wire_mark_of(agree->fd);
	} else if (!glk_wire_is(agree->fd, &agree->mark)) {
		snprintf(why, sizeof(why), "the program has closed its descriptor");
		end(agree);
	}
	if (agree->fd >= 0)
		return true;
	agree->on = false;
	glk_log(agree->tell ? GLAKE_LOG_WARNING : GLAKE_LOG_INFO,
		"other processes are not asked whose copies go over which link: %s", why);
	return false;
}

/* ---- Locks ---- */

/* FNV-1a. Two GPUs of one place, of which there are 2^46, would lend less than they could. */
static uint64_t place_of(const char *uuid)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *uuid; uuid++)
		hash = (hash ^ (unsigned char)*uuid) * UINT64_C(0x100000001b3);
	return (hash ^ hash >> PLACE_BITS) << (64 - PLACE_BITS) >> (64 - PLACE_BITS)
		<< BYTES_BITS;
}

static int lock(struct glk_agree *agree, int command, short type, uint64_t from,
	uint64_t bytes, short *ret_type)
{
	struct flock range = {.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)from,
		.l_len = (off_t)bytes};
	int err = fcntl(agree->fd, command, &range) ? -errno : 0;

	if (!err && ret_type)
		*ret_type = range.l_type;
	return err;
}

/* Whether another one has a lock there. What cannot be told counts as one. */
static bool is_locked(struct glk_agree *agree, uint64_t from, uint64_t bytes)
{
	short type = F_WRLCK;

	return lock(agree, F_OFD_GETLK, F_WRLCK, from, bytes, &type) || type != F_UNLCK;
}

void glk_agree_use(struct glk_agree *agree, int gpu, const char *uuid)
{
	uint64_t byte;
	int err;

	if (agree->gpu[gpu].used || !ready(agree))
		return;
	agree->gpu[gpu].base = place_of(uuid);
	byte = agree->gpu[gpu].base + (agree->lent >> gpu & 1 ? USED_LENT : USED_ALONE);
	err = lock(agree, F_OFD_SETLK, F_RDLCK, byte, 1, NULL);
	agree->gpu[gpu].used = !err;
	if (err)
		glk_log(agree->tell ? GLAKE_LOG_WARNING : GLAKE_LOG_INFO,
			"other processes are not told that GPU %d is used: %s", gpu,
			strerror(-err));
}

static unsigned count(unsigned shares)
{
	return (unsigned)__builtin_popcount(shares);
}

static uint64_t first_share(const struct glk_agree *agree, int gpu, int way)
{
	return agree->gpu[gpu].base + SHARES * (uint64_t)(way + 1);
}

/* Those from `keep` on. */
static void give_above(struct glk_agree *agree, int gpu, int way, unsigned keep)
{
	uint8_t *shares = &agree->gpu[gpu].shares[way];

	lock(agree, F_OFD_SETLK, F_UNLCK, first_share(agree, gpu, way) + keep,
		GLK_AGREE_SHARES - keep, NULL);
	*shares &= (uint8_t)((1u << keep) - 1);
}

/* As many as there may be, of one size after the other, of the first `most`. */
static void take(struct glk_agree *agree, int gpu, int way, unsigned most)
{
	uint64_t first = first_share(agree, gpu, way);

	for (unsigned size = most; size; size /= 2)
		for (unsigned at = 0; at < most; at += size) {
			if (lock(agree, F_OFD_SETLK, F_WRLCK, first + at, size, NULL))
				continue;
			agree->gpu[gpu].shares[way] = (uint8_t)(((1u << size) - 1) << at);
			return;
		}
}

/* How many a borrower may have as it is. */
static unsigned most_of(struct glk_agree *agree, int gpu)
{
	uint64_t base = agree->gpu[gpu].base;

	if (!is_locked(agree, base + USED_ALONE, 2))
		return GLK_AGREE_SHARES;
	return is_locked(agree, base + USED_ALONE, 1) ? 0 : HALF;
}

unsigned glk_agree_borrow(struct glk_agree *agree, int gpu, int way, const char *uuid)
{
	unsigned most;

	if (!ready(agree))
		return GLK_AGREE_SHARES;
	agree->gpu[gpu].base = place_of(uuid);
	most = most_of(agree, gpu);
	if (agree->gpu[gpu].shares[way] >> most)
		give_above(agree, gpu, way, most);
	if (!agree->gpu[gpu].shares[way])
		take(agree, gpu, way, most);
	return count(agree->gpu[gpu].shares[way]);
}

void glk_agree_give(struct glk_agree *agree, int gpu, int way)
{
	if (agree->gpu[gpu].shares[way] && ready(agree))
		give_above(agree, gpu, way, 0);
	agree->gpu[gpu].shares[way] = 0;
}
