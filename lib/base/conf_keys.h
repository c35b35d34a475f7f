/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one table of configuration keys. It makes the fields of struct glk_conf, the parser,
 * `glakectl conf show`, the manual page and the shipped file. Included several times, with
 * GLK_KEY defined by the includer:
 *
 *	GLK_KEY(section, key, TYPE, field, default, min, max, choices, help)
 *
 * TYPE is BOOL (bool), INT (int64_t), SIZE (size_t), TIME (int64_t ns), RATIO (double), CHOICE
 * (int, the index into the comma-separated choices) or TEXT (char[128]). Defaults are written as
 * a person would. min and max bound INT, SIZE and TIME, and RATIO in thousandths; for others they
 * are 0.
 *
 * Environment: GLAKE_<SECTION>_<KEY> in capitals.
 */
GLK_KEY(log, level, CHOICE, log_level, "warning", 0, 0, "none,error,warning,info,debug",
	"Which messages the library prints to stderr, or hands to the hook of the program: those "
	"of this level and of those before it. A run in which all is well has no warning.")

GLK_KEY(driver, backend, CHOICE, driver_backend, "auto", 0, 0, "auto,soft,cuda",
	"The driver below: CUDA where it works and else, after a warning, the software device, or "
	"one of them.")
GLK_KEY(driver, check, BOOL, driver_check, "no", 0, 0, "",
	"Check every driver call against the rules of the driver, on CUDA too. The software "
	"device is always checked.")
GLK_KEY(driver, fault, TEXT, driver_fault, "", 0, 0, "",
	"Makes driver calls fail on demand, for tests: 'map:nth=3:err=ENOMEM;create:from=10'.")

GLK_KEY(soft, gpus, INT, soft_gpus, "1", 1, 64, "", "GPUs of the software device.")
GLK_KEY(soft, memory, SIZE, soft_memory, "140GiB", 4 * GLK_MIB, 16 * GLK_TIB, "",
	"Memory of each GPU of the software device.")
GLK_KEY(soft, nodes, INT, soft_nodes, "1", 1, 64, "",
	"NUMA nodes of the software device; GPUs are spread over them in turn.")
GLK_KEY(soft, host_memory, SIZE, soft_host_memory, "256GiB", 4 * GLK_MIB, 16 * GLK_TIB, "",
	"Memory of each NUMA node of the software device.")
GLK_KEY(soft, streams, CHOICE, soft_streams, "worker", 0, 0, "worker,stepped,random",
	"How queued work runs: at once by a worker, only when a test steps it, or at random, now "
	"and then and in any order that streams and events allow.")
GLK_KEY(soft, seed, INT, soft_seed, "0", 0, INT64_MAX, "",
	"Which random order. In a program of one thread the same seed gives the same order.")
GLK_KEY(soft, cost_reserve, TIME, soft_cost_reserve, "2700ns", 0, GLK_SECOND, "",
	"Modelled cost of reserving addresses. These costs were measured on an H200.")
GLK_KEY(soft, cost_create, TIME, soft_cost_create, "8100ns", 0, GLK_SECOND, "",
	"Modelled cost of creating a page.")
GLK_KEY(soft, cost_map, TIME, soft_cost_map, "600ns", 0, GLK_SECOND, "",
	"Modelled cost of mapping a page.")
GLK_KEY(soft, cost_set_access, TIME, soft_cost_set_access, "22600ns", 0, GLK_SECOND, "",
	"Modelled cost of granting access to one mapping.")
GLK_KEY(soft, cost_unmap, TIME, soft_cost_unmap, "15600ns", 0, GLK_SECOND, "",
	"Modelled cost of removing one mapping.")
GLK_KEY(soft, cost_release, TIME, soft_cost_release, "9800ns", 0, GLK_SECOND, "",
	"Modelled cost of releasing a page.")
GLK_KEY(soft, cost_export, TIME, soft_cost_export, "600us", 0, GLK_SECOND, "",
	"Modelled cost of exporting a page for the first time.")
GLK_KEY(soft, cost_import, TIME, soft_cost_import, "16us", 0, GLK_SECOND, "",
	"Modelled cost of importing a page.")
GLK_KEY(soft, cost_event, TIME, soft_cost_event, "200ns", 0, GLK_SECOND, "",
	"Modelled cost of recording an event, of a query and of a stream wait.")

GLK_KEY(pool, budget, SIZE, pool_budget, "0", 0, 16 * GLK_TIB, "",
	"Most physical memory to hold on each GPU; 0 for all there is.")
GLK_KEY(pool, small_page, SIZE, pool_small_page, "2MiB", 2 * GLK_MIB, 8 * GLK_MIB, "",
	"Size of a slot of addresses, and of the pages under small blocks and at the ends of "
	"others: a power of two.")
GLK_KEY(pool, large_page, SIZE, pool_large_page, "0", 0, 1 * GLK_GIB, "",
	"Size of the pages inside blocks: a multiple of the small page. Larger ones are mapped in "
	"less time and leave more memory that nothing else can use. With 0 it is 8MiB, or 32MiB "
	"where policy.target is above 1.02.")
GLK_KEY(pool, pages, INT, pool_pages, "1048576", 1, 16777215, "",
	"Most pages a context may hold, over all GPUs and nodes.")

GLK_KEY(pool, export, CHOICE, pool_export, "auto", 0, 0, "auto,fd,no",
	"What pages are made to be able to do beside lying in memory, which cannot be changed "
	"later. With auto they can be given to other processes, named by fabric handles and, as "
	"the key rdma says, registered for RDMA, as far as the GPU and the driver allow. With fd "
	"only the first, which costs nothing on an H200; with no, nothing of that.")
GLK_KEY(pool, rdma, CHOICE, pool_rdma, "auto", 0, 0, "auto,yes,no",
	"Whether pages are made so that network cards can reach them, for which on an H200 a page "
	"takes 5 us longer to map and 5 us longer to unmap. With auto they are where the host has "
	"an RDMA device. Dma-bufs do not need it.")
GLK_KEY(pool, peers, CHOICE, pool_peers, "no", 0, 0, "no,all",
	"Which other GPUs may read and write the memory of each GPU: none, or all that can reach "
	"it, as NCCL wants it. glake_peer_access changes it for two GPUs. Mapping memory takes "
	"longer for each GPU that may use it.")

GLK_KEY(pool, ahead, SIZE, pool_ahead, "0", 0, 16 * GLK_TIB, "",
	"Memory that a thread of the library, one for each GPU in use, keeps ready at new "
	"addresses, so that requests for more memory need no call of the driver; 0 for no "
	"thread. At most so much more is held, and so much of the budget is left alone. The thread "
	"also gives back what is held above policy.target and lies idle, when half a second has "
	"passed without a request that no bin served. 1GiB is a good value; less than a large page "
	"is nothing.")

GLK_KEY(tier, host, SIZE, tier_host, "0", 0, 16 * GLK_TIB, "",
	"Most memory of the host, near each GPU and locked, for contents that left the GPU by "
	"glake_spill or glake_suspend, and for blocks that tier.place puts there; 0: half of the "
	"memory of the host. It is taken as it is needed, for contents in pieces of 64MiB, while "
	"the machine and the control group of the process have 256MiB to spare, and kept for the "
	"next time until glake_trim.")

GLK_KEY(tier, place, CHOICE, tier_place, "gpu", 0, 0, "gpu,host",
	"Where a block lies for which the GPU has no room. With gpu the request is refused; with host "
	"it is given memory of the host near the GPU, in place: kernels use it at the speed of the "
	"link, about 50 GB/s, until it is freed. Later requests are given memory of the GPU again as "
	"soon as there is some.")

GLK_KEY(map, span, SIZE, map_span, "4TiB", 1 * GLK_GIB, 64 * GLK_TIB, "",
	"Most addresses to reserve for each GPU, and for each pool of graphs. They are reserved as "
	"they are needed, in steps of four times the memory of the GPU, half of it for a pool; a "
	"step is halved until the system grants it.")
GLK_KEY(map, extents, INT, map_extents, "4194304", 16, 16777215, "",
	"Most extents, given and free, of each GPU.")
GLK_KEY(map, aliases, INT, map_aliases, "8", 1, 255, "",
	"Most addresses one page should be mapped at; the oldest mapping goes first.")

/* As CUDA names them for its own pools. */
GLK_KEY(stream, event_dependencies, BOOL, stream_event_dependencies, "yes", 0, 0, "",
	"Memory freed on one stream may serve another that the program has put behind it by "
	"events it told the library of.")
GLK_KEY(stream, opportunistic, BOOL, stream_opportunistic, "yes", 0, 0, "",
	"Memory freed on one stream may serve another as soon as its work is seen to have "
	"finished. With no, the same requests give the same addresses whatever the speed of the "
	"GPU; the library then waits for the GPU where a mapping that may be in use has to go.")
GLK_KEY(stream, internal_dependencies, BOOL, stream_internal_dependencies, "yes", 0, 0, "",
	"Memory freed on one stream may serve another behind a stream wait that the library "
	"inserts.")

GLK_KEY(policy, target, RATIO, policy_target, "1.005", 1000, 100000, "",
	"How much physical memory may be held, over the most that was ever live, before memory "
	"is looked for more closely: then blocks in bins are merged and idle pages of other "
	"sizes broken up before new pages are made. 1.05 buys speed with memory, 1 the reverse.")
/* The defaults of the other keys are what measurement chose (t/bench/frontier.md); other values
 * are there so that it can be repeated. */
GLK_KEY(policy, bins, SIZE, policy_bins, "256KiB", 0, 16 * GLK_TIB, "",
	"For measurement: blocks up to this size wait in bins for a request of their size when "
	"they are freed; larger ones merge with what is free beside them at once.")
GLK_KEY(policy, ends, CHOICE, policy_ends, "both", 0, 0, "both,low,high",
	"For measurement: which ends of a free extent are tried for a block.")

GLK_KEY(preload, free, CHOICE, preload_free, "sync", 0, 0, "sync,stream",
	"Under libglake-preload.so: whether cudaFree waits for the work of the GPU, as it does "
	"without. With stream it takes memory back in the order of the legacy default stream and "
	"waits for nothing, which is for programs that free nothing that other streams still use.")
GLK_KEY(preload, serve, CHOICE, preload_serve, "all", 0, 0, "all,async",
	"Under libglake-preload.so: which memory of the program comes from the library. With async "
	"that of cudaMallocAsync alone, and that of cudaMalloc and its kin is left to the driver.")
GLK_KEY(preload, events, BOOL, preload_events, "no", 0, 0, "",
	"Under libglake-preload.so: notes the events that the program records and waits for, so that "
	"memory which goes from stream to stream by them needs no wait of the library's own. Each "
	"record and each wait takes longer.")

GLK_KEY(stats, hold_clock, CHOICE, stats_hold_clock, "wall", 0, 0, "wall,cpu",
	"By which clock the figures tell how long the lock of a GPU was held at most: that on the "
	"wall, or the processor time of the thread that held it, which does not count how long the "
	"system let others run, and takes a system call to read.")

GLK_KEY(trace, file, TEXT, trace_file, "", 0, 0, "",
	"Record all requests and frees of the program in this file, to be replayed or looked at by "
	"glakectl. %p stands for the process id, %n for the number of the context in the process, "
	"%% for %. A file that is there already is left alone, and nothing is recorded then but a "
	"warning printed.")
GLK_KEY(trace, size, SIZE, trace_size, "4GiB", 1 * GLK_MIB, 16 * GLK_TIB, "",
	"Most bytes of that file, 32 an event; it grows with what is written. When it is full, or "
	"the disk is, recording ends and the program goes on.")
