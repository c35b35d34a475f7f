/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SOFT_STATE_H
#define GLK_SOFT_STATE_H

/*
 * The state of the software device, shared by its files alone. One lock guards all of
 * it but the modelled clock; copies run under it, so that the order of everything is one.
 *
 * Its files stand on each other one way, in the order below: soft.c; memory in file.c, maps.c, host.c,
 * managed.c, page.c and share.c; link.c; queue.c; stream.c; race.c; access.c, map.c; graph.c; copy.c,
 * event.c; what tests do in step.c; the table in device.c. What a call begins with, soft.c, lets the
 * queues run, as soft->turn.
 */
#include "base/lock.h"
#include "base/times.h"
#include "soft/book.h"
#include "soft/soft.h"

#define SOFT_PLACES   128u	 /* 64 GPUs, 64 NUMA nodes */
#define SOFT_MAPPINGS (1u << 21) /* far more than vm.max_map_count lets exist apart */
#define SOFT_STREAMS  4096u
#define SOFT_OWN      (2 * SOFT_STREAMS) /* places for default streams of threads */
#define SOFT_EVENTS   (1u << 18)
#define SOFT_QUEUED   (1u << 18)

/* What one GPU or node has: an account, the bytes themselves lie in the file. */
struct soft_room {
	size_t total, used;
};

/* Its size is fixed for ever, for everybody who has it. */
#define SOFT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#define SOFT_SIZES	20 /* powers of two in granules, up to 1 TiB a page */
#define SOFT_DIRTY_RUNS 64

struct soft_run {
	size_t first, count; /* granules */
};

struct soft_file {
	int fd;
	size_t granules;	/* of the file */
	uint64_t *taken;	/* a bit for each granule */
	size_t low[SOFT_SIZES]; /* no free run of 2^i granules above the addresses begins
				 * below this one */
	struct soft_run dirty[SOFT_DIRTY_RUNS]; /* free and perhaps not empty */
	unsigned dirty_runs;
	size_t dirty_count; /* granules */
};

struct soft_page {
	uint64_t number;    /* never given to another page of the device */
	size_t size, first; /* bytes; first granule in the file once it is placed */
	int fd; /* of the file of another device for an imported page, else -1 */
	uint32_t gen, maps;
	uint32_t queued; /* ranges of queued operations that touch it */
	uint8_t place;
	bool live, released, placed, written;
	bool lent; /* it was exported */
	bool kept; /* nothing here needs it any more, but its memory stays for others */
};

struct soft_stream {
	uint64_t id; /* never given to another stream of the process */
	int64_t now; /* modelled ns at which the last of its copies that ran ended */
	uint32_t gen, head, tail, pending;
	uint32_t graph, branch; /* what it captures and where in it; 0: nothing */
	int device;
	bool live, held;
	uint64_t thread; /* whose default stream it is; 0: nobody's */
	uint32_t record; /* of that thread */
};

/* Of a stream that lives, is no default one and captures nothing: what is asked of it most is answered without the
 * lock. `handle` 0: of another one. */
struct soft_calm {
	glk_atomic(uint64_t) handle, id;
};

/* The last record of an event is an operation; it has passed when the slot has moved on. Or it
 * is a node of the graph with this capture number. */
struct soft_event {
	uint64_t serial, capture;
	int64_t now; /* of the stream, when it was recorded last */
	uint32_t op, gen;
	uint32_t graph, node;
	int device;
	bool live, recorded;
};

enum soft_kind {
	SOFT_WORK,
	SOFT_COPY,
	SOFT_FILL,
	SOFT_RECORD,
	SOFT_WAIT,
	SOFT_LAUNCH,   /* of a kernel of the library */
	SOFT_PREFETCH, /* of managed memory at dst, to the room with number `value` */
	SOFT_GATE,     /* until the host has opened `gate` for `value` */
};

struct soft_op {
	uint64_t serial; /* of this use of the slot, 0 once it has run */
	uint64_t dst, src;
	size_t size;
	uint64_t target_serial; /* WAIT: which use of which slot */
	uint32_t target;
	uint32_t next, stream;
	uint32_t value; /* RECORD, WAIT: the event, 0 in a graph */
	struct glk_drv_gate *gate;
	double end; /* COPY, at the pace of links: when it ends; 0: it has not begun */
	uint8_t kind;
	bool write;
	void (*twin)(const void *args); /* LAUNCH */
	uint64_t args[GLK_LAUNCH_ARGS / 8];
};

/* The generator behind soft.streams=random. */
struct soft_dice {
	uint64_t state;
	uint64_t phase; /* who sleeps */
	uint32_t left;	/* calls until the next phase */
	uint32_t lazy;	/* quarters of the streams that sleep, 0 to 4 */
};

/* One way of a link: when what was put on it so far has passed. */
struct soft_lane {
	double rate; /* bytes a ns; 0: no limit */
	double free;
	uint64_t bytes;
};

enum { SOFT_DOWN, SOFT_UP, SOFT_LEAVE, SOFT_COME, SOFT_LANES };

struct soft {
	struct glk_drv drv;
	struct glk_lock lock;
	void (*turn)(struct soft *soft); /* a call has come: queued work may run */
	int gpus, nodes;
	bool gated;   /* streams can wait for the host */
	bool mps;     /* as if others shared them by MPS */
	bool stepped; /* queued work does not run by itself */
	bool random;  /* but now and then */
	bool paced;   /* copies run when the links have carried them, see link.c */
	double pace;  /* modelled ns by which they have, if so */
	bool torn;    /* rights that should have gone may be left, see access.c */
	struct soft_room rooms[SOFT_PLACES]; /* GPUs first, then nodes */
	struct soft_file file;
	struct glk_slab pages;
	uint64_t page_numbers; /* given so far */
	uint32_t kept;	       /* pages that are kept for others */
	struct glk_book book;
	int64_t maps; /* see glk_soft_maps */
	struct glk_slab streams, events, ops, graphs, graph_nodes;
	uint32_t own[SOFT_OWN]; /* see stream.c; 0: free */
	struct soft_calm calm[SOFT_STREAMS + 1];
	struct soft_dice dice;
	uint64_t serial;
	uint32_t pending;		  /* operations queued on all streams */
	uint32_t gates;			  /* of these, the ones that wait for the host */
	struct glk_slab hosts;		  /* memory of the host that is locked */
	struct soft_managed *managed;	  /* NULL: there never was any */
	uint64_t reach[SOFT_STREAMS + 1]; /* scratch of race.c */
	int64_t cost[GLAKE_CALL_COUNT];	  /* ns a call, or a mapping of a range */
	glk_atomic(int64_t) ns[GLAKE_CALL_COUNT];
	struct glk_times times[GLAKE_CALL_COUNT];
	struct glk_link link; /* of every GPU, but for its group */
	int link_share;	      /* GPUs of a group */
	struct soft_lane lanes[SOFT_PLACES / 2][SOFT_LANES];
	struct soft_lane uplinks[SOFT_PLACES / 2][2];
	struct soft_lane across[2]; /* between nodes of the host */
};

struct soft_graph;

static inline struct soft *soft_of(struct glk_drv *drv)
{
	return (struct soft *)drv;
}

/* soft.c */
/* Adds `count` calls of one kind to the modelled clock. */
void glk_soft_charge(struct soft *soft, enum glake_call call, size_t count);
/* The number of a place among the rooms, or -EINVAL and a record. */
int glk_soft_place(const struct soft *soft, struct glk_place place, uint8_t *ret_place);
/* Takes the lock; every call of the table and every launch begins so. Queued work may run. */
void glk_soft_enter(struct soft *soft);
/* The software device below these wrappers, or NULL and a record. */
struct soft *glk_soft_below(struct glk_drv *drv);
int glk_soft_figures(struct glk_drv *drv, struct glake_driver_stats *ret_stats);
const struct glk_times *glk_soft_times(struct glk_drv *drv);

/* file.c */
int glk_soft_file_open(struct soft_file *file, size_t memory_granules);
void glk_soft_file_close(struct soft_file *file);
/* Finds the place of a page that is first mapped at `addr`. 0, or -ENOMEM and a record. */
int glk_soft_file_take(
	struct soft_file *file, uint64_t addr, size_t size, size_t *ret_first);
void glk_soft_file_give(struct soft_file *file, size_t first, size_t size, bool written);
/* Bytes are held by an opening of the file, as long as anybody has that open or mapped. 0 or -1 and
 * errno. Whether anybody holds any. */
int glk_soft_file_hold(int fd, size_t first, size_t size);
bool glk_soft_file_is_held(const struct soft_file *file, size_t first, size_t size);

/* maps.c */
/* Whether the process has room for so many more maps: 0, or -ENOMEM and a record where the
 * last ones are left to the program. Of 0 and less, 0. */
int glk_soft_maps_room(int64_t more);
/* So many have come, or gone where it is negative. Under the lock. */
void glk_soft_maps_note(struct soft *soft, int64_t more);
/* The kernel had none left. If that is news, they are counted before the next is made. */
void glk_soft_maps_refused(void);

/* host.c */
int glk_soft_host_lock(struct glk_drv *drv, int device, void *ptr, size_t size);
int glk_soft_host_unlock(struct glk_drv *drv, int device, void *ptr);
int glk_soft_host_node(struct glk_drv *drv, void *ptr, int *node);
int glk_soft_host_init(struct soft *soft);
/* Whether all of a range is locked, in one piece. Under the lock. */
bool glk_soft_host_is_locked(const struct soft *soft, uint64_t addr, size_t size);
/* The NUMA node of memory of the host, by its page or by host_node; -1: not known. Under the lock. */
int glk_soft_host_node_at(const struct soft *soft, uint64_t addr);

/* page.c */
int glk_soft_create(struct glk_drv *drv, struct glk_place place, size_t size,
	uint32_t flags, uint64_t *ret_page);
int glk_soft_release(struct glk_drv *drv, uint64_t page);
/* The live page of a handle, or NULL and a record. */
struct soft_page *glk_soft_page_find(
	const struct soft *soft, uint64_t handle, const char *call);
/* Takes a slot for a page and fills it; its handle, 0 and a record for none. */
uint64_t glk_soft_page_add(struct soft *soft, const struct soft_page *page);
/* Gives a page its place in the file, for a first mapping at `addr`. Under the lock. */
int glk_soft_page_put(struct soft *soft, struct soft_page *page, uint64_t addr);
/* Gives the memory back once it is released and mapped nowhere. */
void glk_soft_page_settle(struct soft *soft, struct soft_page *page, uint32_t id);
/* Frees what was kept for others, as far as they have let it go. */
void glk_soft_page_reap(struct soft *soft);

/* share.c */
int glk_soft_export_fd(struct glk_drv *drv, uint64_t page, int *ret_fd);
int glk_soft_import_fd(struct glk_drv *drv, int fd, uint64_t *ret_page);
int glk_soft_page_place(struct glk_drv *drv, uint64_t page, struct glk_place *ret_place);
int glk_soft_peer_can(struct glk_drv *drv, int device, int peer, bool *ret_can);

/* link.c: copies take time on the links that they go over, in the modelled time of streams. */
void glk_soft_link_init(struct soft *soft, const struct glk_conf *conf);
/* An operation has run, or a wait found nothing to wait for. Under the lock. */
void glk_soft_link_run(
	struct soft *soft, struct soft_stream *s, const struct soft_op *op);
/* Whether the next operation of a stream, which is at the pace of links, may run; begins it. */
bool glk_soft_pace_ready(struct soft *soft, struct soft_stream *s, struct soft_op *op);
/* Time goes on to the end of the copy that ends first; false: none is under way. */
bool glk_soft_pace_next(struct soft *soft);
/* The GPU whose memory lies at an address; -1: the host's. Under the lock. */
int glk_soft_gpu_at(const struct soft *soft, uint64_t addr);
int glk_soft_spot(
	struct glk_drv *drv, uint64_t addr, size_t size, struct glk_spot *ret_spot);
int glk_soft_link_get(struct glk_drv *drv, int device, struct glk_link *ret_link);

/* contents.c. Copies or fills; of other kinds, nothing. */
void glk_soft_contents_run(const struct soft *soft, const struct soft_op *op);

/* queue.c, called under the lock */
void glk_soft_queue_init(struct soft *soft, int64_t seed);
/* 0 to sides - 1. */
uint32_t glk_soft_queue_roll(struct soft *soft, uint32_t sides);
/* 0, or -ENOMEM and a record when there is no room for so many operations. */
int glk_soft_queue_room(const struct soft *soft, uint32_t count);
/* Queues a copy of `op`, or runs it at once where nothing stands before it; with room and a judgement
 * made before. The slot, 0 when it has run. */
uint32_t glk_soft_queue_put(struct soft *soft, uint32_t stream, const struct soft_op *op);
/* Runs the next operation of a stream; false when there is none that can run. */
bool glk_soft_queue_step(struct soft *soft, uint32_t stream);
/* Runs whatever can run. */
void glk_soft_queue_run(struct soft *soft);
/* Runs all of a stream and what it waits for. 0, or -EBUSY when a held stream is in the way. */
int glk_soft_queue_drain(struct soft *soft, uint32_t stream, const char *call);
/* Runs a stream as far as this operation. As above. */
int glk_soft_queue_await(
	struct soft *soft, uint32_t op, uint64_t serial, const char *call);
bool glk_soft_queue_is_done(const struct soft *soft, uint32_t op, uint64_t serial);
/* 0, or -EINVAL and a record with both sides when a queued operation names this range. */
int glk_soft_queue_refuse(
	struct soft *soft, uint64_t addr, size_t size, const char *call);
/* "kernel", "copy", ... */
const char *glk_soft_kind_name(uint8_t kind);

/* stream.c; all but the table's own are called under the lock. */
int glk_soft_stream_new(struct glk_drv *drv, int device, struct CUstream_st **ret_stream);
int glk_soft_stream_free(struct glk_drv *drv, int device, struct CUstream_st *stream);
int glk_soft_stream_sync(struct glk_drv *drv, int device, struct CUstream_st *stream);
int glk_soft_stream_facts(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts);
int glk_soft_stream_owner(struct glk_drv *drv, int device, struct CUstream_st *stream);
int glk_soft_device_sync(struct glk_drv *drv, int device);
/* The slot of a stream, for a default one that of `device`. 0, or -EINVAL and a record if it
 * is none, -ENOMEM if it is the thread's own and there are too many. */
int glk_soft_stream_find(struct soft *soft, int device, struct CUstream_st *stream,
	const char *call, uint32_t *ret_id);
/* The same, where a real handle may be of any GPU. */
int glk_soft_stream_any(struct soft *soft, int device, struct CUstream_st *stream,
	const char *call, uint32_t *ret_id);
/* A slot begins a life. */
void glk_soft_stream_init(struct soft *soft, uint32_t id, int device);
/* A stream begins or ends its life, or a capture. */
void glk_soft_stream_calm(struct soft *soft, uint32_t id);
/* A number for a stream or a capture, never given before in this process. */
uint64_t glk_soft_stream_number(void);
/* 0, or -EBUSY, a record and a broken capture when the stream captures a graph. */
int glk_soft_stream_usable(struct soft *soft, uint32_t stream, const char *call);
/* -EBUSY and a record: the capture is broken. */
int glk_soft_capture_broken(const struct soft_graph *graph, const char *call);
/* -EBUSY and a record; the capture of this stream is broken by `call`. */
int glk_soft_capture_break(struct soft *soft, uint32_t stream, const char *call,
	int native, const char *why);

/* race.c, called under the lock */
/* Queues a copy of `op`, or runs it at once where nothing stands before it: *ret_op is its slot, or 0.
 * -EINVAL and a record when it would race with queued work of another stream; -ENOMEM. */
int glk_soft_race_add(
	struct soft *soft, uint32_t stream, const struct soft_op *op, uint32_t *ret_op);
/* The judgement in two steps, for many operations at once. First, for each stream the last serial
 * that is ordered before the end of `stream`, and before the operation `behind`, if it is not
 * 0: soft->reach. Then one operation after the other, while nothing is queued or run. */
void glk_soft_race_reach(
	struct soft *soft, uint32_t stream, uint32_t behind, uint64_t behind_serial);
int glk_soft_race_judge(struct soft *soft, uint32_t stream, const struct soft_op *op);
/* Whether two operations touch the same bytes of a page, one of them writing. */
bool glk_soft_race_collide(
	const struct soft *soft, const struct soft_op *a, const struct soft_op *b);

/* access.c */
int glk_soft_set_access(struct glk_drv *drv, uint64_t addr, size_t size,
	const struct glk_grant *grants, size_t count);
/* Makes a range a PROT_NONE map of the file at its own place. */
int glk_soft_access_none(const struct soft *soft, uint64_t addr, size_t size);
/* Takes all rights from a run of mappings: it is PROT_NONE again, or, with no map of the kernel
 * left to tell it from its neighbours, when it is mapped the next time. */
int glk_soft_access_remove(struct soft *soft, uint64_t addr, size_t size);
/* 0, or -EINVAL and a record when a GPU may not touch what an operation names. Under the lock. */
int glk_soft_access_judge(
	struct soft *soft, int device, const struct soft_op *op, const char *call);

/* map.c */
int glk_soft_reserve(struct glk_drv *drv, size_t size, size_t align, uint64_t *ret_addr);
int glk_soft_unreserve(struct glk_drv *drv, uint64_t addr, size_t size);
int glk_soft_map(struct glk_drv *drv, uint64_t addr, size_t size, uint64_t page);
int glk_soft_unmap(struct glk_drv *drv, uint64_t addr, size_t size);

/* copy.c */
int glk_soft_copy(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
	struct CUstream_st *stream);
int glk_soft_copy_gpu(struct glk_drv *drv, uint64_t dst, uint64_t src, int *ret_device);
int glk_soft_fill(struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,
	struct CUstream_st *stream);
int glk_soft_module_load(
	struct glk_drv *drv, int device, const char *text, uint64_t *ret_module);
int glk_soft_module_free(struct glk_drv *drv, int device, uint64_t module);
int glk_soft_kernel_find(struct glk_drv *drv, int device, uint64_t module,
	const struct glk_kernel *kernel, uint64_t *ret_kernel);
int glk_soft_launch(struct glk_drv *drv, int device, const struct glk_launch *launch,
	struct CUstream_st *stream);
int glk_soft_prefetch(struct glk_drv *drv, uint64_t addr, size_t size,
	struct glk_place place, int device, struct CUstream_st *stream);

/* event.c */
int glk_soft_event_new(struct glk_drv *drv, int device, struct glk_drv_event **ret_event);
int glk_soft_event_free(struct glk_drv *drv, struct glk_drv_event *event);
int glk_soft_event_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *stream);
int glk_soft_event_query(struct glk_drv *drv, struct glk_drv_event *event);
int glk_soft_event_sync(struct glk_drv *drv, struct glk_drv_event *event);
int glk_soft_stream_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *event);
int glk_soft_gate(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_drv_gate *gate, uint32_t number);
int glk_soft_user_event_new(
	struct glk_drv *drv, int device, struct CUevent_st **ret_event);
int glk_soft_user_event_free(struct glk_drv *drv, struct CUevent_st *event);
int glk_soft_user_event_record(struct glk_drv *drv, int device, struct CUevent_st *event,
	struct CUstream_st *stream);
int glk_soft_user_event_wait(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct CUevent_st *event);
int glk_soft_promise(struct glk_drv *drv, uint64_t addr, size_t size);

/* Whether what an operation names first is read and not written. */
static inline bool soft_op_reads(const struct soft_op *op)
{
	return (op->kind == SOFT_WORK || op->kind == SOFT_LAUNCH) && !op->write;
}

static inline struct soft_stream *soft_stream_at(const struct soft *soft, uint32_t id)
{
	return glk_slab_at(&soft->streams, id);
}

static inline struct soft_op *soft_op_at(const struct soft *soft, uint32_t id)
{
	return glk_slab_at(&soft->ops, id);
}

static inline struct soft_page *soft_page_at(const struct soft *soft, uint32_t id)
{
	return glk_slab_at(&soft->pages, id);
}

#endif
