/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_PACK_H
#define GLK_TIER_PACK_H

/*
 * Contents that are away and rest are made smaller (tier.compress): a thread of the library does that when
 * their copy has ended and some time has passed, never on the way, and what held them serves others. The
 * thread goes by units of 4 MiB, each for itself, whose bytes then lie in plain memory of the host; one that
 * does not shrink by an eighth stays as it is.
 *
 * Who has a content back has the units by halves of a landing, 64 MiB of locked memory that are there before
 * the first unit is packed: while those of one half are on the link, those of the next are unpacked, by a few
 * threads. What is packed stays so until the content is given back, so a copy that fails has changed nothing.
 *
 * A content of which a part comes back is made what it was in the store first, by as many threads (loosen.c).
 *
 * Threads	under the lock of the GPU, but for bytes that are packed or unpacked. A content that is given
 *		back while its unit is being packed loses all but that one, which the thread gives back. One
 *		that is read meanwhile is left as it is
 * Memory	counts against the budget of the host; without room there contents stay as they are
 */
#include "tier/sodium.h"
#include "tier/tier.h"

#define GLK_PACK_UNIT ((uint64_t)4 << 20)
#define GLK_PACK_HALF 8 /* units of half a landing */
#define GLK_PACK_LAND (2 * GLK_PACK_HALF * GLK_PACK_UNIT)

/* Memory of a unit that was packed. */
struct glk_packed {
	struct glk_packed *next;   /* of those that nobody wants any more */
	size_t bytes;		   /* of the memory, with this */
	size_t used;		   /* that are packed */
	struct glk_sodium_tag tag; /* with number 0 they are not encrypted */
	char data[];
};

struct glk_pack {
	struct glk_mover *mover;
	int64_t rest; /* ns that a content rests before */
	pthread_t thread;
	bool runs;  /* there is one */
	bool rests; /* it has nothing to do, until it is woken */
	pthread_cond_t wake, landed;
	glk_atomic(bool) stop;
	/* Contents that wait, the oldest first, and the unit in hand. */
	uint32_t first, last, unit;
	bool dropped;		   /* the unit is nobody's any more */
	glk_atomic(bool) unwanted; /* the same, for one who packs it */
	uint64_t read;		   /* and has been read until then */
	char *scratch;		   /* of a unit */
	char *plain; /* the same and the unit itself, for those that are encrypted; NULL: there was none */
	struct glk_packed *spent;
	uint64_t bytes, held; /* of units that are packed, and of their memory */
	struct glk_landing landing;
	unsigned half;
	bool taken;
};

/* pack.c, beside what tier.h has. All of it ends; nobody copies any more. */
void glk_pack_fini(struct glk_mover *mover);
/* Under the lock: a content has come, or is read no longer; one that is given back, of which the unit in hand is
 * not the caller's to put: whether it is this one. */
void glk_pack_note(struct glk_pack *pack, uint32_t run);
void glk_pack_leave(struct glk_pack *pack, uint32_t run);
bool glk_pack_drops(struct glk_pack *pack, uint32_t run, uint64_t read);
/* A unit of so many bytes, in `room` for one before that where it is encrypted. False: it is not what it was. Without
 * the lock. */
bool glk_pack_open(const struct glk_packed *packed, char *to, size_t bytes, char *room);
/* What was packed is nobody's any more. */
void glk_pack_spend(struct glk_pack *pack, struct glk_store_run *run);

/*
 * Units that are treated here and in threads of the library, as many as have `each` of them and as there are
 * processors, until one fails. `room` is of the thread, NULL at first: what the function puts there, of so many bytes,
 * goes as glk_sodium_room_free() has it. Without the lock.
 */
#define GLK_PACK_THREADS 16
struct glk_pack_work {
	int (*fn)(void *arg, uint32_t unit, char **room);
	void *arg;
	uint32_t units, each;
	size_t room;
	glk_atomic(uint32_t) next;
	glk_atomic(int) err;
};
/* 0 or the error of a unit. */
int glk_pack_together(struct glk_pack_work *work);

/* unpack.c. An error of units, -EIO (CORRUPT) or -ENOMEM, with a record; 0 for none. */
int glk_unpack_why(int err);
/* Under the lock, which is given up: the landing goes, if nothing needs it and no copy is under way. */
void glk_unpack_trim(struct glk_pack *pack);
/* Units from one on, up to half a landing, are copied to an address; the first behind them, and their bytes.
 * 0; -EIO (CORRUPT: they are not what they were); the driver's error. */
int glk_unpack(struct glk_pack *pack, uint32_t run, uint64_t addr, uint32_t *ret_next,
	uint64_t *ret_bytes);

#endif
