/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_PUBLISH_H
#define GLAKE_PUBLISH_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Contents that exist once for several processes of a user on a GPU, by name, as the weights of a model that several
 * servers have. They go through a broker (glaked, share.broker), which keeps a descriptor of their page.
 *
 * Name		what the contents are, as the revision of a model, and how they lie; of one user and one GPU. A stamp
 *		beside it, as a hash of them, tells contents apart that have one name
 * Sealed	nobody writes them any more. Who attaches has rights to read alone; the publisher, and whoever of
 *		the same user has a descriptor, keeps to it by promise, since rights cannot be changed under
 *		running kernels
 * Life		they are there as long as one process has them, the publisher's or another: each of their bytes is
 *		counted once, as the publisher's while it lives and as the broker's afterwards. Contents that a process
 *		did not publish before it ended are gone with it
 * Checked	with security.level=3 contents have a number, which is compared with that of what is attached, and again
 *		by glake_check, in each process that has that level
 * Load once	whoever is to have them attaches with GLAKE_ATTACH_CLAIM first. Of all who do one is told to load
 *		them (-ENOENT), and the others to come again (-EAGAIN) until they are published, or he has ended
 */

/* Bytes of a name, with its end. */
#define GLAKE_KEY_MAX 192

/* If they are not there, the caller will publish them, or say that it does not. */
#define GLAKE_ATTACH_CLAIM 0x1u

/*
 * Publishes a block that was made with GLAKE_ALLOC_CONTIGUOUS, which shares no page with another. All work that writes
 * it has finished. The block stays the caller's, to be read; freed, it keeps its memory until the context is closed.
 *
 * ptr		the address that glake_alloc gave
 * key		its name
 * stamp	of the contents; 0: they have none
 *
 * A broker that has heard of it and does not answer, or ends, may have handed it on: it is published then, and the next
 * one hears of it as of all that was published before.
 *
 * Returns 0, or -EINVAL (not a live block of this context: NOT_MINE, DOUBLE_FREE; not contiguous, a name that is none,
 * NULL: INVAL), -EEXIST (INVAL: something is published by that name, or another process has claimed it), -EAGAIN
 * (AGAIN: the broker is away), -EBUSY (BUSY: it is away), -EOPNOTSUPP (there is no broker, or its page was not made to
 * be exported, see pool.export), -ENOSPC (LIMIT: the broker has too many names), -EMFILE or -ENFILE (LIMIT), -ENOMEM,
 * -ESTALE, -ENODEV, -EIO. A refused call changes nothing.
 * Thread: any. Blocks: for the driver and the broker. Driver calls: an export; with security.level=3 a kernel that reads
 * it once.
 */
GLAKE_EXPORT int glake_publish(
	struct glake *ctx, const void *ptr, const char *key, uint64_t stamp);

/*
 * Says that the caller does not publish what it has claimed, so that another one may.
 *
 * Returns 0, also where nothing was claimed, or -EINVAL (unknown device, a name that is none, NULL), -EAGAIN (AGAIN: the
 * broker is away), -EOPNOTSUPP (there is none), -ESTALE, -ENODEV.
 * Thread: any. Blocks: for the broker. Driver calls: none.
 */
GLAKE_EXPORT int glake_publish_not(struct glake *ctx, int device, const char *key);

/*
 * Maps what is published by a name behind addresses of this process, to be read by GPU `device` and its peers. A kernel
 * that writes there ends in an illegal access.
 *
 * stamp	what its stamp has to be; 0: any
 * flags	GLAKE_ATTACH_CLAIM or 0
 * ret_size	its bytes
 *
 * Returns 0, or -ENOENT (INVAL: there is nothing of that name), -EAGAIN (AGAIN: another process has claimed it, or the
 * broker is away), -EEXIST (INVAL: its stamp is another), -EINVAL (unknown device or flags, a name that is none, NULL),
 * -EOPNOTSUPP (there is no broker), -ENOSPC (LIMIT: the broker has too many names, or 4096 are claimed by the context and
 * not published), -ENOMEM (ADDRESS, LIMIT, NOMEM_HOST, or NOMEM_DEVICE for tables of the driver), -EMFILE, -ESTALE, -ENODEV, -EIO (CORRUPT, with security.level=3: they are not what their publisher had). A refused call has changed nothing but the
 * claim.
 * Thread: any. Blocks: for the driver and the broker. Driver calls: a reservation, import, map, release, set access; with
 * security.level=3 a kernel that reads all of it once.
 */
GLAKE_EXPORT int glake_attach(struct glake *ctx, int device, const char *key,
	uint64_t stamp, uint32_t flags, size_t *ret_size, void **ret_ptr);

/*
 * The same for several names at once, all or none, in fewer questions to the broker: 32 of them are asked for together.
 *
 * keys		their names, `count` of them
 * stamps	what the stamp of each has to be; NULL: any
 * ret_sizes	the bytes of each
 * ret_ptrs	where each begins
 *
 * Returns as glake_attach, with the record of the first that is refused, or -EINVAL (no names, NULL). After an error what was
 * written is undefined, and nothing is attached.
 * Thread: any. Blocks: for the driver and the broker. Driver calls: those of glake_attach for each.
 */
GLAKE_EXPORT int glake_attach_all(struct glake *ctx, int device, const char *const *keys,
	const uint64_t *stamps, size_t count, size_t *ret_sizes, void **ret_ptrs);

/*
 * Waits for all work queued on a stream and takes what was attached down. glake_close does so for all that is left, and
 * counts it with the blocks not freed.
 *
 * Returns 0, or -EINVAL (nothing is attached there: NOT_MINE; no stream of that GPU: INVAL), -EBUSY (CAPTURE: the
 * stream captures a graph), -ESTALE, -EIO or -ENODEV (the driver kept some of it). In a forked child 0, and nothing
 * happens.
 * Thread: any. Blocks: for the GPU and the broker. Driver calls: those that wait for the stream, unmap, and one that
 * gives the addresses back.
 */
GLAKE_EXPORT int glake_detach(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * Seals an elastic block (elastic.h), which says that nobody writes it any more, and has its pages that are equal to
 * others exist once. Larger pages than of pool.small_page, as a block with GLAKE_ALLOC_GROWS has, stay. Each other page
 * is compared, byte for byte, with those of blocks of its GPU and tag that were sealed before, and with those before it
 * in the block. One that is equal goes, and the block has the other in its place, at the same address, sealed as
 * glake_commit_shared leaves it. It is called where nothing uses the block but work of `stream`, which is waited for; the
 * other blocks may be read meanwhile.
 *
 * With a broker (glaked, share.broker) pages that are the block's alone are looked for among those which other processes
 * of the user have sealed, and are exchanged for them likewise; and those that nobody has are there for others to have from
 * now on, if they were made to be exported (pool.export), and stay on the GPU while blocks spill. A page counts once, as bytes of the process that made it as
 * long as a block of that stands on it, and then as the broker's until the last one has left. What a process has of
 * others is no part of its budget, its quota and its live bytes, and cannot be exported. It goes to the driver when the last block
 * has left it, at the next request for which the driver is asked, or a trim. Suspended, a block comes back with pages of its
 * own; sealed again, it has those of others again. While the broker is away nothing is exchanged over
 * processes, and what was stays as it is; each process counts what it has of others as its own then. Who of the
 * same user has a descriptor keeps to the seal by promise.
 *
 * Called again for a block that is sealed, it looks again. Freed or decommitted, a block leaves what others have; spilled
 * and suspended, it goes and comes as it would.
 */
struct glake_sealed {
	size_t sz; /* sizeof(struct glake_sealed) */
	uint64_t
		looked; /* bytes of whole pages, of this block and of all that was sealed before here */
	uint64_t
		saved; /* bytes of the block that exist no more, since others are equal */
	uint64_t shared; /* that were shared before this call, or are another process's */
	uint64_t
		left; /* whose number is that of others, and that stay: those differ, or are moving or away, or the
			  * page has as many mappings as there can be */
	uint64_t
		differ; /* pages that a number of 128 bits took for equal, and that are not */
};

/*
 * rate		bytes a second that are read at most to find them; 0: as fast as the GPU reads
 * ret_sealed	what was done, also where the seal itself ends in an error; NULL: nobody wants to know
 *
 * Returns 0, or -EINVAL (as glake_free; not elastic, or freed meanwhile), -EBUSY (BUSY: other processes have pages of it;
 * CAPTURE: the stream captures), -EAGAIN (suspended), -EOPNOTSUPP (the driver runs no kernels of the library), -ENOMEM,
 * -ESTALE, -ENODEV, -EIO. After an error the block may be sealed, and all contents are there, but that after -EIO of a
 * driver that maps neither page the contents of those are lost, which the record says.
 * Thread: any. Blocks: for the GPU, which reads the sealed blocks once and what is equal twice more. Driver calls: kernels
 * on a stream of their own, and for each page that goes those of glake_commit_shared; with a broker for each that is
 * another process's an import, a map, and a release of what went; and an export of each that is offered.
 */
GLAKE_EXPORT int glake_seal(struct glake *ctx, void *ptr, struct CUstream_st *stream,
	uint64_t rate, struct glake_sealed *ret_sealed);

/*
 * Gives what was attached a page of this process, with the contents, at the same address, to be read and written. It is
 * called where nothing uses it but work of `stream`, which is waited for: no other stream, and no graph that names it
 * is replayed meanwhile. From then on it is an import, which glake_import_end takes down. A block that glake_seal has sealed
 * gets pages of its own for those that are shared, 128 MiB at a time, and may be written again. It keeps those that
 * nobody shares any more, whatever else used them having finished, but for pages that a broker knows, which other processes
 * may have.
 *
 * Returns 0, or -EINVAL (nothing is attached there, and no block is sealed: NOT_MINE, INVAL; no stream of that GPU: INVAL),
 * -EBUSY (CAPTURE: the stream captures a graph; BUSY: the block is away, or other processes have pages of it), -ENOMEM
 * (NOMEM_DEVICE: no room, or no leave of the broker, for a page of that size; ADDRESS), -EAGAIN (suspended), -ESTALE,
 * -ENODEV, -EIO. A refused call changes nothing, but that a block may have pages of its own for some of those it
 * shared, and that after -EIO of a driver that takes neither page there is none.
 * Thread: any. Blocks: for the GPU and the broker. Driver calls: create, import, two maps and unmaps, a reservation, a
 * copy at the speed of the GPU's memory.
 */
GLAKE_EXPORT int glake_unseal(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * How much of some memory is there more than once, byte for byte: what sharing it would save. It is looked at in parts
 * of `grain` bytes from the beginning of each stretch, and a rest that is less than one is left out. Nothing is changed.
 */
struct glake_stretch {
	const void *ptr; /* a multiple of 16 */
	size_t size;
};

struct glake_likeness {
	size_t sz;	 /* sizeof(struct glake_likeness) */
	uint64_t looked; /* bytes of all parts */
	uint64_t equal;	 /* bytes of those that are equal to one before them */
	uint64_t
		differ; /* parts that a number of 128 bits took for equal, and that are not */
};

/*
 * Tells it of stretches of live blocks, and of what is attached or imported, which nobody writes, frees or moves meanwhile.
 *
 * grain	64 KiB for 0, else a multiple of 16 KiB, as 2 MiB for whole pages
 *
 * Returns 0, or -EINVAL (unknown device, one that is no part of a block or import there: NOT_MINE; a grain that is none,
 * NULL), -EBUSY (BUSY: some of it is away), -EOPNOTSUPP (the driver runs no kernels of the library), -ENOMEM, -ESTALE,
 * -ENODEV, -EIO.
 * Thread: any. Blocks: for the GPU, which reads all of it once, and what is equal twice more. Driver calls: kernels on
 * a stream of their own.
 */
GLAKE_EXPORT int glake_alike(struct glake *ctx, int device,
	const struct glake_stretch *stretches, size_t count, size_t grain,
	struct glake_likeness *ret_likeness);

GLAKE_END_DECLS

#endif
