/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one table of configuration keys. It makes the fields of struct glk_conf, the parser,
 * `glakectl conf show`, the manual page and the shipped file. Included several times, with
 * GLK_KEY defined by the includer:
 *
 *	GLK_KEY(section, key, TYPE, field, default, min, max, choices, help)
 *
 * A key that may change while the program runs is a GLK_LIVE_KEY, which is the same where the
 * includer defines none: it is no TEXT, and its field is read by glk_peek or is copied to where it
 * is read (api/conf_set.c).
 *
 * One that is for tests and measurements alone is a GLK_TEST_KEY: it stands in no shipped file, at the end of
 * the manual page, and `glakectl conf show` leaves it out unless it is set or named.
 *
 * TYPE is BOOL (bool), INT (int64_t), SIZE (size_t), SHARE (size_t, a size or a part of a whole, see
 * glk_conf_share()), TIME (int64_t ns), RATIO (double), CHOICE (int, the index into the comma-separated
 * choices) or TEXT (char[128]). Defaults are written as a person would. min and max bound INT, SIZE, SHARE
 * and TIME, and RATIO in thousandths; for others they are 0. A RATIO may have one choice, a word for 0.
 *
 * Environment: GLAKE_<SECTION>_<KEY> in capitals.
 */
#ifndef GLK_LIVE_KEY
#define GLK_LIVE_KEY GLK_KEY
#endif
#ifndef GLK_TEST_KEY
#define GLK_TEST_KEY GLK_KEY
#endif

GLK_LIVE_KEY(log, level, CHOICE, log_level, "warning", 0, 0,
	"none,error,warning,info,debug",
	"Which messages the library prints to stderr, or hands to the hook of the program: those "
	"of this level and of those before it. A run in which all is well has no warning.")

GLK_KEY(driver, backend, CHOICE, driver_backend, "auto", 0, 0, "auto,soft,cuda",
	"The driver below: CUDA where it works and else, after a warning, the software device, or "
	"one of them.")
GLK_TEST_KEY(driver, check, BOOL, driver_check, "no", 0, 0, "",
	"Check every driver call against the rules of the driver, on CUDA too. The software "
	"device is always checked.")
GLK_TEST_KEY(driver, fault, TEXT, driver_fault, "", 0, 0, "",
	"Makes driver calls fail on demand, for tests: 'map:nth=3:err=ENOMEM;create:from=10'.")

GLK_TEST_KEY(soft, gpus, INT, soft_gpus, "1", 1, 64, "", "GPUs of the software device.")
GLK_TEST_KEY(soft, gates, BOOL, soft_gates, "no", 0, 0, "",
	"Whether streams of the software device can wait for a word of the host, as those of a GPU.")
GLK_TEST_KEY(soft, memory, SIZE, soft_memory, "140GiB", 4 * GLK_MIB, 16 * GLK_TIB, "",
	"Memory of each GPU of the software device.")
GLK_TEST_KEY(soft, nodes, INT, soft_nodes, "1", 1, 64, "",
	"NUMA nodes of the software device; GPUs are spread over them in turn.")
GLK_TEST_KEY(soft, host_memory, SIZE, soft_host_memory, "256GiB", 4 * GLK_MIB,
	16 * GLK_TIB, "", "Memory of each NUMA node of the software device.")
GLK_TEST_KEY(soft, mps, BOOL, soft_mps, "no", 0, 0, "",
	"Say that other programs share the GPUs by MPS.")
GLK_TEST_KEY(soft, streams, CHOICE, soft_streams, "worker", 0, 0, "worker,stepped,random",
	"How queued work runs: at once by a worker, only when a test steps it, or at random, now "
	"and then and in any order that streams and events allow.")
GLK_TEST_KEY(soft, seed, INT, soft_seed, "0", 0, INT64_MAX, "",
	"Which random order. In a program of one thread the same seed gives the same order.")
GLK_TEST_KEY(soft, link, INT, soft_link, "55500", 0, 100000000, "",
	"What the link of each GPU of the software device to the host carries each way, in MB (10^6 bytes) "
	"a second, in modelled time; 0: no limit.")
GLK_TEST_KEY(soft, link_share, INT, soft_link_share, "1", 1, 64, "",
	"GPUs of the software device, in a row, that share one uplink to the host.")
GLK_TEST_KEY(soft, uplink, INT, soft_uplink, "55500", 0, 100000000, "",
	"What such an uplink carries each way, in MB a second; 0: no limit.")
GLK_TEST_KEY(soft, across, INT, soft_across, "0", 0, 100000000, "",
	"What the NUMA nodes of the software device send each other in all, each way of a copy, in MB a second; 0: no "
	"limit.")
GLK_TEST_KEY(soft, peer_link, INT, soft_peer_link, "390000", 0, 100000000, "",
	"What the link of each GPU of the software device to the others carries each way, in MB a second; 0: "
	"no limit.")
GLK_TEST_KEY(soft, cost_reserve, TIME, soft_cost_reserve, "2700ns", 0, GLK_SECOND, "",
	"Modelled cost of reserving addresses. These costs were measured on an H200.")
GLK_TEST_KEY(soft, cost_create, TIME, soft_cost_create, "8100ns", 0, GLK_SECOND, "",
	"Modelled cost of creating a page.")
GLK_TEST_KEY(soft, cost_map, TIME, soft_cost_map, "600ns", 0, GLK_SECOND, "",
	"Modelled cost of mapping a page.")
GLK_TEST_KEY(soft, cost_set_access, TIME, soft_cost_set_access, "22600ns", 0, GLK_SECOND,
	"", "Modelled cost of granting access to one mapping.")
GLK_TEST_KEY(soft, cost_unmap, TIME, soft_cost_unmap, "15600ns", 0, GLK_SECOND, "",
	"Modelled cost of removing one mapping.")
GLK_TEST_KEY(soft, cost_release, TIME, soft_cost_release, "9800ns", 0, GLK_SECOND, "",
	"Modelled cost of releasing a page.")
GLK_TEST_KEY(soft, cost_export, TIME, soft_cost_export, "600us", 0, GLK_SECOND, "",
	"Modelled cost of exporting a page for the first time.")
GLK_TEST_KEY(soft, cost_import, TIME, soft_cost_import, "16us", 0, GLK_SECOND, "",
	"Modelled cost of importing a page.")
GLK_TEST_KEY(soft, cost_event, TIME, soft_cost_event, "200ns", 0, GLK_SECOND, "",
	"Modelled cost of recording an event, of a query and of a stream wait.")

GLK_LIVE_KEY(pool, budget, SHARE, pool_budget, "0", 0, 16 * GLK_TIB, "",
	"Most physical memory to hold on each GPU; 0 for all there is. Bytes, or a part of the GPU's memory, as "
	"80% or 0.8; nothing leaves it unset.")
GLK_KEY(pool, small_page, SIZE, pool_small_page, "2MiB", 2 * GLK_MIB, 8 * GLK_MIB, "",
	"Size of a slot of addresses, and of the pages under small blocks and at the ends of "
	"others: a power of two.")
GLK_KEY(pool, large_page, SIZE, pool_large_page, "0", 0, 1 * GLK_GIB, "",
	"Size of the pages inside blocks: a multiple of the small page. Larger ones are mapped in "
	"less time and leave more memory that nothing else can use. With 0 and a policy.target that is a number it is "
	"32MiB where that is above 1.02, else 8MiB; with auto there are pages of 64MiB until a quarter of the GPU was in "
	"use, of 32MiB until a half was, and of 8MiB from then on, each followed by smaller ones for what does not fill "
	"it, and those of the host have 16MiB.")
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

GLK_KEY(pool, managed, CHOICE, pool_managed, "no", 0, 0, "no,yes,over",
	"Whether blocks of more than policy.bins that are asked for without a flag are managed memory "
	"(GLAKE_ALLOC_MANAGED), which the driver moves to who touches it. With yes they are as far as "
	"GLAKE_ALLOC_MANAGED has room; with over also beyond what is free on the GPU (GLAKE_ALLOC_MANAGED_OVER), "
	"so that a job may be larger than that, if slowly, as far as tier.managed allows. What finds no room "
	"there is memory of the GPU as with no; so are blocks that a stream asks for while it captures a graph, "
	"those of pools of graphs and of tags, and contiguous ones. pool.budget does not count it, and no "
	"other process can have it.")

GLK_KEY(pool, ahead, SIZE, pool_ahead, "0", 0, 16 * GLK_TIB, "",
	"Memory that a thread of the library, one for each GPU in use, keeps ready at new "
	"addresses, so that requests for more memory need no call of the driver; 0 for no "
	"thread. At most so much more is held, and so much of the budget is left alone. 1GiB is a "
	"good value; less than a large page is nothing.")

GLK_LIVE_KEY(pool, rest, TIME, pool_rest, "0", 0, 3600 * GLK_SECOND, "",
	"How long a program has asked for nothing that no bin served when memory that lies idle begins to go back "
	"to the driver, for other processes: all but what policy.target allows beside what is in use, and "
	"pool.ahead. Bins are emptied for that where no block came or went at all. 0: never, and no thread; else a thread of the library, one for each GPU in use, looks so "
	"often. It gives a page at a time and stops at the next such request. What is wanted again is made again, "
	"4 ms per GiB: with 10s a program that pauses loses no more than a twentieth of the pause.")

GLK_LIVE_KEY(tier, host, SIZE, tier_host, "0", 0, 16 * GLK_TIB, "",
	"Most memory of the host, near each GPU and locked, for contents that left the GPU by "
	"glake_spill or glake_suspend, or since they were cold, and for blocks that tier.place or "
	"glake_suspend_in_place puts there; 0: half of the "
	"memory of the host. It is taken as it is needed, for contents in pieces of 64MiB, while "
	"the machine and the control group of the process have 256MiB to spare, and kept for the "
	"next time until glake_trim.")

GLK_KEY(tier, host_reserve, SIZE, tier_host_reserve, "0", 0, 16 * GLK_TIB, "",
	"Memory of the host, near each GPU, locked and ready for what leaves the GPU, part of tier.host. A "
	"thread of the library makes it from the first use of the GPU on and ends when it is there, and "
	"glake_trim leaves it. 0, since a program that sends nothing away needs none: then it is made as "
	"contents go, at 5 to 10 GB/s for the first time and at the speed of the link from then on. As much "
	"as is suspended makes the first suspension as fast as the others.")

GLK_KEY(tier, place_reserve, SIZE, tier_place_reserve, "0", 0, 16 * GLK_TIB, "",
	"The same for pages of the host that blocks lie on in place, as after glake_suspend_in_place: another "
	"kind of memory, which the driver makes at 5.6 GB/s, whatever the threads. A sixteenth of it is made "
	"in pages of pool.small_page, the rest in pages of pool.large_page. None is made while another GPU "
	"lends (tier.place=peer). The two kinds share tier.host: where that has no room for both, idle memory "
	"of one kind, of the reserve too, goes back to the system for the other, in every suspension whose "
	"kind is another one than that of the last.")

GLK_KEY(tier, probe, CHOICE, tier_probe, "auto", 0, 0, "auto,always,never",
	"Whether another process tries if the driver makes pages on the NUMA node of the host near a GPU, "
	"before the first one is asked for here: drivers before r595 may crash there. With auto it does with "
	"such a driver on a machine with several nodes with memory, which takes about half a second, and 20 "
	"at the most. Where it crashes, is refused, does not answer, or cannot be started (its program, "
	"glake-probe, lies beside the library), pages lie anywhere on the host; without an answer it is tried "
	"three times, and where there is no room for a process with each page. With never nobody tries.")

GLK_LIVE_KEY(tier, place, CHOICE, tier_place, "gpu", 0, 0, "gpu,host,peer",
	"Where a block lies for which the GPU has no room. With gpu the request is refused; with host "
	"it is given memory of the host near the GPU, in place: kernels use it at the speed of the "
	"link, about 50 GB/s, until it is freed, or comes to the GPU by glake_fetch or glake_quiet. "
	"With peer it is given memory of the GPU that tier.peer names, at about 370 GB/s, as long as that "
	"has room, and then of the host; what a suspension in place moves goes there too. "
	"Later requests are given memory of the GPU again as soon as there is some.")

GLK_LIVE_KEY(tier, away, CHOICE, tier_away, "host", 0, 0, "host,peer",
	"Where contents lie that leave a GPU: by glake_spill or glake_suspend, with a tag, or since they were cold. "
	"With host in memory of the host near it. With peer in memory of the GPU that tier.peer names, over the "
	"link between the two, in pieces of 64MiB while that has room (tier.peer_room), and beyond on the host; a "
	"content may lie in both. They come back from where they are. What lies on the other GPU is neither hashed "
	"(tier.verify) nor compressed, and is lost with that GPU; when that is suspended it goes to the host.")

GLK_KEY(tier, prefetch_spare, SIZE, tier_prefetch_spare, "0", 0, 16 * GLK_TIB, "",
	"Memory of each GPU that glake_prefetch leaves alone, so that it takes none that requests want; "
	"0: a sixteenth of what the GPU may hold. Hints wait until there is more.")
GLK_KEY(tier, prefetch_window, SIZE, tier_prefetch_window, "256MiB", 0, 16 * GLK_TIB, "",
	"Contents that glake_prefetch has on their way to each GPU at a time, or one block if that is "
	"larger. What is wanted sooner and hinted later waits for no more than that, 5 ms at 55 GB/s; "
	"with less the link rests where the program calls the library seldom and there is no thread to "
	"go on (pool.ahead).")

GLK_KEY(tier, verify, BOOL, tier_verify, "no", 0, 0, "",
	"Contents in memory of the host are hashed (XXH3, 64 bits) when they have come there and before they go "
	"back: what was changed meanwhile is not had back, and a warning names the block. Whoever sends a block "
	"away waits for its copy and for the hash then, and whoever has it back for the hash, which goes at 10 to "
	"20 GB/s. It needs a library that was built with xxhash.h; without, no context is opened with yes.")

GLK_KEY(tier, compress, CHOICE, tier_compress, "no", 0, 0, "no,lz4",
	"Whether contents in memory of the host are compressed there when they have rested (tier.compress_rest), "
	"by a thread of the library for each GPU: they lie in plain memory then, and what is locked for copies "
	"goes back to the system but for tier.host_reserve. Units of 4MiB that do not shrink by an eighth stay "
	"as they are, and so do all where tier.host has no room: 64MiB are locked for the way back, until a "
	"glake_trim finds nothing compressed, and what is compressed counts as well. Who has contents back waits until they are what they were: 2 to 5 GB/s for "
	"each thread, of which there are up to 8 for large ones and for a range of one, against 55 of the link. With lz4 the library "
	"loads liblz4.so.1. It has to be built with lz4.h; without either no context is opened with lz4.")
GLK_KEY(tier, compress_rest, TIME, tier_compress_rest, "1s", 0, 3600 * GLK_SECOND, "",
	"Time that contents are away before they are compressed, so that those that come back soon are not.")

GLK_KEY(tier, peer, INT, tier_peer, "0", 0, 63, "",
	"The GPU that lends memory to the others of the process with tier.place=peer and tier.away=peer. It "
	"lends nothing to GPUs that cannot reach it, and has none lent itself: its requests and contents are given "
	"memory of the host.")

GLK_KEY(tier, peer_room, SIZE, tier_peer_room, "0", 0, 16 * GLK_TIB, "",
	"Most memory that the GPU of tier.peer lends, to all others together, for blocks in place and for "
	"contents that are away; 0: half of its memory. It "
	"counts against its pool.budget too, and is its own again when blocks that lie there are freed "
	"or have come to their GPU, and that one was trimmed.")

GLK_KEY(tier, managed, SIZE, tier_managed, "0", 0, 16 * GLK_TIB, "",
	"Most managed memory of each GPU (GLAKE_ALLOC_MANAGED); 0: as much as is free on the GPU when "
	"it is had, all managed memory together, so that nothing has to be evicted. A program that "
	"insists (GLAKE_ALLOC_MANAGED_OVER) is bound by this key alone, and by nothing with 0.")

GLK_KEY(tier, managed_chunk, SIZE, tier_managed_chunk, "1GiB", 2 * GLK_MIB, 16 * GLK_TIB,
	"",
	"Managed memory is had from the driver in pieces of this size, smaller where no more may be "
	"had, larger for larger blocks and where there are many, and kept until glake_trim, since the "
	"driver waits for all work of the GPU to take one back; one without blocks that is too small goes "
	"before a larger one is made. A piece takes memory where it is "
	"touched alone.")

GLK_KEY(io, lend, TEXT, io_lend, "", 0, 0, "",
	"GPUs that lend their link to the host to copies from and to other GPUs by glake_copy, and to blocks "
	"that go to the host and come back: as 'all', '1' or '0,2-3'. Of each some memory is taken "
	"(io.staging). None by default: a copy then goes over the link of its own GPU alone. Where GPUs near "
	"several NUMA nodes lend, blocks that go to the host lie on these nodes, on each as much as it has of the "
	"links, while it has room, so that each link has memory of its own node.")
GLK_KEY(io, agree, CHOICE, io_agree, "auto", 0, 0, "auto,always,never",
	"Whether processes of one user agree on whose copies go over which link, so that together they plan with no "
	"more than it carries. A process borrows the link of no GPU that another one uses (io.lend_to). "
	"With auto those agree that lend links by io.lend, on CUDA; with always this one does in any case, so that the "
	"others see which GPUs it uses. It takes the file 'links' in $XDG_RUNTIME_DIR/glake, or in /run/glake "
	"for root; without, each goes over the links that io.lend names.")
GLK_KEY(io, lend_to, CHOICE, io_lend_to, "process", 0, 0, "process,user",
	"To whom the GPUs of io.lend lend while this process uses them: to its own copies, or to those of "
	"other processes of the user too (io.agree), which then have half of each link at most, all "
	"together.")
GLK_KEY(io, staging, SIZE, io_staging, "64MiB", 2 * GLK_MIB, 16 * GLK_GIB, "",
	"Memory of each GPU that lends its link, through which pieces of copies pass, half of it each way; taken "
	"at the first copy that uses it, and kept until the context is closed. A GPU without room for it "
	"lends nothing.")
GLK_TEST_KEY(io, piece, SIZE, io_piece, "8MiB", 64 * GLK_KIB, 1 * GLK_GIB, "",
	"Copies over several links are cut into pieces of this size at most, or of a quarter of io.staging where "
	"that is less. Lists of ranges that have less than a 32nd of it on average go over one link.")
GLK_TEST_KEY(io, least, SIZE, io_least, "16MiB", 0, 16 * GLK_TIB, "",
	"A copy of fewer bytes goes over one link.")

GLK_KEY(io, threads, INT, io_threads, "0", 0, 64, "",
	"Threads of the library that copy between memory of the host that is not locked and buffers that are, "
	"near the GPU, for glake_copy of ranges of 1MiB and more; 0: there are none, and the driver copies such "
	"memory itself, in one thread. They are started at the first such copy and end when the "
	"context is closed, and so long each GPU has 16MiB of locked memory for each way that was used. "
	"How many are worth it glakectl bench copy tells.")

GLK_LIVE_KEY(host, limit, SIZE, host_limit, "0", 0, 16 * GLK_TIB, "",
	"Most memory of the host, near each GPU and locked, for blocks that the program asked for by "
	"glake_host_alloc; 0: half of the memory of the host. tier.host is beside that. It is taken as it is "
	"needed, while the machine and the control group of the process have 256MiB to spare.")
GLK_KEY(host, piece, SIZE, host_piece, "1GiB", 4 * GLK_MIB, 1 * GLK_TIB, "",
	"Most memory that such blocks share, locked by one call of the driver. Pieces have an eighth of what is in "
	"use, from 8MiB up to this; a block that is larger than an eighth of such a piece has one of its own "
	"size. So a program whose blocks only become more, and are of no larger alignment than 64 bytes, locks "
	"an eighth more than it uses, and 32MiB. With larger pieces there are fewer calls; smaller ones go back "
	"sooner.")
GLK_LIVE_KEY(host, keep, SIZE, host_keep, "16TiB", 0, 16 * GLK_TIB, "",
	"Free memory that is kept for the next such block. When a block is freed, pieces without blocks "
	"beyond that go back to the system; with 0 as soon as they are empty. glake_trim gives all of "
	"them back.")
GLK_KEY(host, bind, BOOL, host_bind, "no", 0, 0, "",
	"Whether such a block may lie on the NUMA node that is nearest to its GPU alone. Without it comes "
	"from another node where that has none left; with it the request is refused.")

GLK_KEY(guard, look, TIME, guard_look, "0", 0, 3600 * GLK_SECOND, "",
	"Look at all that is guarded each so often, as glake_check(3) does, by a thread of the library: 15 us of the GPU for 100 000 blocks, "
	"behind what is queued there, for which frees wait. With 0, and no thread, blocks are looked at when they are freed, or on request.")

GLK_LIVE_KEY(guard, mode, CHOICE, guard_mode, "off", 0, 0,
	"off,sample,canary,poison,full",
	"What is done to find memory that the program writes where it should not, for blocks that are asked for from "
	"then on: see glake_check(3). With sample one block in guard.rate ends against addresses that are never mapped, or "
	"begins there, by turns: a kernel that reaches past it ends in an illegal access, as one does that uses it when it is "
	"freed and its mappings have gone. At most 32 are live, of 64MiB at most and of 2MiB of memory at least each, in 1TiB of "
	"addresses, which are given again "
	"when there are no others. None is where programs share the GPU by MPS, which all end with one, and none can be exported or "
	"registered. What all others take is as with off. With canary there are 1 to 512 bytes behind each block, more where sizes are "
	"rounded, with a pattern of their address and a secret. A kernel looks at it when the block was freed, at that of some hundred frees "
	"at a time, and at all of them in glake_check and glake_quiet. A block that was used on its own stream alone is kept when it is freed, for "
	"the next of its size there, whose canary is there already; so an overrun may be found when another block has the place, and the finding "
	"tells how many had it. Only for a block that lies where none of its size lay a kernel is queued with the request: "
	"later it would write over what it is to find. "
	"With poison also, a block "
	"is filled when it is freed, with words that differ by address and are no number (NaN) in all formats of floating point, and negative as integers. A kernel "
	"looks at them before they serve again: a write after the free is found, but for one of a byte that is 0xff already. The next block "
	"comes with them, so that what is read before it was written shows. Up to 16384 blocks are kept, with poison a 32nd of the memory of the GPU, else 32MiB of those of 128KiB and less, and of others 32MiB and a "
	"32nd of what is live where that is less; they go back when a request has no room and by glake_trim. With full each block ends against addresses that are "
	"never mapped, of any size and as many as there are, has a canary of 512 bytes before it, comes filled, and goes when it is freed: "
	"its stream stops behind the work that was queued before, until a thread of the library has taken the mappings away, and a use that is queued "
	"behind it ends in an illegal access. The program does not wait for that, but where it was seen to use more than one stream, where the driver "
	"has no such stops, or where there is no thread: there the free waits for the work, as none does in other modes, and the mappings are gone when it returns. "
	"Kernels of a stream that the library was never told of may run before that. A block takes whole slots of 2MiB, in one page of its size where there is memory for one, and some 80us to have and to free. Blocks with a tag or a flag, of a pool of graphs, and those that a "
	"capture asks for, have none.")

GLK_KEY(guard, names, TEXT, guard_names, "", 0, 0, "",
	"Write to this file, at its end, a line for each block that a tool is told of (guard.nvtx), and for each name that it gets: its address, "
	"size and name; what such tools report by address alone is looked up there. %p stands for the process id, %% for %. A file that is "
	"made is the user's alone (mode 0600).")

GLK_KEY(guard, nvtx, BOOL, guard_nvtx, "no", 0, 0, "",
	"Whether a tool that is attached by NVTX (NVTX_INJECTION64_PATH), as compute-sanitizer is by itself, is told of plain blocks by NVTX's memory "
	"interface, with names: it then reports what is written between two blocks, and whose they are. They are managed memory then, "
	"which such tools take, have 1 to 512 bytes behind them that are nobody's, no request is served by a bin, each free waits for the GPU, "
	"and guard.mode is off. Blocks of graphs and with a tag are as ever, and not told of. Where no tool is attached, or it has no use for "
	"that, nothing of it is so. glake.sanitizer of the Python package says yes.")

GLK_LIVE_KEY(guard, rate, INT, guard_rate, "1000", 1, 1000000000, "",
	"With guard.mode=sample: the next block is sampled when so many were given since the last one, and so many times "
	"256KiB. That is looked at with about every 16th request that no bin serves; with 1 with all of them.")

GLK_KEY(guard, stacks, INT, guard_stacks, "0", 0, 12, "",
	"Return addresses to keep of who asks for a block that guard.mode guards, and of who frees it, without those of the library where it is one of its own. What is found tells them, with names in the log and in "
	"guard.report; glake_finding_get(3) gives the addresses. Each call takes some microseconds more.")

GLK_KEY(guard, tail, SIZE, guard_tail, "0", 0, 1 * GLK_MIB, "",
	"With guard.mode=sample: bytes behind a block that kernels may read, as those do that load more at once than is left of it. What "
	"they write there is found by the canary, which is in the first 512 of them, and only what lies behind them ends in an illegal "
	"access.")

GLK_KEY(guard, report, TEXT, guard_report, "", 0, 0, "",
	"Write what guard.mode finds to this file too, at its end, a line of JSON for each, before the call that found it "
	"returns. %p stands for the process id, %% for %. A file that is made is the user's alone (mode 0600). Empty: the log and "
	"glake_finding_get have it.")

GLK_KEY(security, level, INT, security_level, "0", 0, 3, "",
	"What is cleared so that whoever has memory next does not find what was in it. 0: nothing is, but by the driver, which clears what "
	"goes from one process to another. 1: what changes its owner within the program: a block of a tag is filled with zeros before it is given "
	"and when it is freed, and so are the pages of a KV cache in which a sequence had a domain; a program without either pays nothing. "
	"2: every block when it is freed, before it serves again. 3: also before it is given; what goes to the host is encrypted as long as "
	"it lies there, by libsodium with a key that only this process has and in its memory alone; what was changed there does not come back "
	"(-EIO, CORRUPT), and glake_check says so, and likewise of pages that are sealed, by glake_seal or as several sequences have them, whose numbers a kernel makes. Tables of the library tell which content lies where: they are memory of the process as any other, "
	"and are believed. What goes to the host is plain in 32MiB of locked memory while it is copied, which spill, fetch and suspend wait for then; "
	"with tier.compress also in memory of those that compress it, which is locked as far as RLIMIT_MEMLOCK allows. None of that is in a core dump. "
	"Nothing lies on the host in place: tier.place is to be gpu, and glake_suspend_in_place does what glake_suspend does. Blocks of glake_host_alloc come "
	"with zeros, and are filled with them when they are freed, if no stream uses them. What lies on another GPU, and managed memory, is plain. "
	"Without libsodium 3 is refused. All that is cleared on a GPU is queued on the stream of the free or of the request, or behind it, and nobody waits. "
	"From the first block on whose contents left the GPU, or that was freed while it was out (glake_export), all are filled before "
	"they are given, since its pages were not. With 2 and 3 no request is served by a bin. Memory of graphs, managed memory and blocks that are freed while their stream captures are not cleared; glake_check counts the last. "
	"glake_tag_guard_set gives a tag another level.")

GLK_KEY(map, span, SIZE, map_span, "4TiB", 1 * GLK_GIB, 64 * GLK_TIB, "",
	"Most addresses to reserve for each GPU, and for each pool of graphs. They are reserved as "
	"they are needed, in steps of four times the memory of the GPU, but 80TiB for all GPUs "
	"together, and half of its memory for a pool; a step is halved until the system grants it.")
GLK_KEY(map, extents, INT, map_extents, "4194304", 16, 16777215, "",
	"Most extents, given and free, of each GPU.")
GLK_LIVE_KEY(map, aliases, INT, map_aliases, "8", 1, 255, "",
	"Most addresses one page should be mapped at; the oldest mapping goes first.")

/* As CUDA names them for its own pools. */
GLK_KEY(stream, event_dependencies, BOOL, stream_event_dependencies, "yes", 0, 0, "",
	"Memory freed on one stream may serve another that the program has put behind it by "
	"events it told the library of.")
GLK_KEY(stream, opportunistic, BOOL, stream_opportunistic, "yes", 0, 0, "",
	"What has to be unmapped is left, and asked for again later, where its work is not seen to "
	"have finished. With no the library waits for the GPU there, so that, with a number for "
	"policy.target, the same requests of a program with one stream give the same addresses "
	"whatever the speed of the GPU: with auto the target also depends on what others hold of the "
	"GPU when memory is made.")
GLK_LIVE_KEY(stream, internal_dependencies, BOOL, stream_internal_dependencies, "yes", 0,
	0, "",
	"Memory freed on one stream may serve another behind a stream wait that the library "
	"inserts.")

GLK_LIVE_KEY(policy, target, RATIO, policy_target, "auto", 1000, 100000, "auto",
	"How much physical memory may be held, over the most that was ever live, before memory "
	"is looked for more closely: then blocks in bins are merged and idle pages of other "
	"sizes broken up before new pages are made. With auto it is 1.10 while less than half of "
	"the GPU, or of the budget, is held by anybody, 1.005 from nine tenths on, and a straight line "
	"between; the driver is asked for that when the GPU is first used and when more memory was "
	"made. Where more than about one in 16 of the requests that were no hits had memory mapped that lay elsewhere, an "
	"eighth of the GPU or the budget may be held above the peak; where as many waited for other streams, streams of a job whose peak is at most a 64th "
	"have memory to themselves, up to three times the peak. Where threads keep meeting at the library with requests that were no "
	"hits, more than one in 16 of all, streams that one thread uses each have so too, in a job whose peak is at most an eighth, and four "
	"times what is live in such memory and 16 MiB a stream may be held above the peak. None of these passes half of the GPU, and "
	"all end when the program rests (pool.rest) or has memory trimmed. A number holds at all times: 1.005 where memory is what there is too little of, 1 for "
	"the least.")
/* These defaults are what measurement chose (t/bench/frontier.md); other values are there so that it can be
 * repeated. */
GLK_TEST_KEY(policy, bins, SIZE, policy_bins, "256KiB", 0, 16 * GLK_TIB, "",
	"Blocks up to this size wait in bins for a request of their size when "
	"they are freed; larger ones merge with what is free beside them at once, but for the one that "
	"was freed last. 0: none waits.")
GLK_TEST_KEY(policy, ends, CHOICE, policy_ends, "both", 0, 0, "both,low,high",
	"Which ends of a free extent are tried for a block.")

GLK_KEY(share, keep, SIZE, share_keep, "1GiB", 0, 16 * GLK_TIB, "",
	"Most memory of other processes that stays mapped on each GPU after it was closed, so that it is "
	"opened again at once, under libglake-preload.so and in mirrors. It is let go of when the process "
	"that owns it gives it back to the driver, or ends; while this process is stopped it is held. With 0 "
	"all is unmapped when it is closed.")

GLK_KEY(share, broker, TEXT, share_broker, "", 0, 0, "",
	"The socket of the broker (glaked) that gives leave for memory of GPUs, so that several processes share "
	"them: a path, or user for that of one that the same user runs. With nothing the process is on its own. "
	"Memory is made and given back by the process itself; what it may hold is asked for in portions of "
	"share.chunk, never on a hit.")
GLK_KEY(share, chunk, SIZE, share_chunk, "256MiB", 2 * GLK_MIB, 16 * GLK_TIB, "",
	"Leave that is asked for at a time, if the broker has so much. Twice as much may be left over before "
	"some of it goes back.")
GLK_KEY(share, helper, BOOL, share_helper, "yes", 0, 0, "",
	"Whether a thread of the library hears when the broker asks for memory that others want, and gives back "
	"what lies idle, or has the program do so. With no that waits for the next request that wants the driver, and a process that makes "
	"none keeps what it has.")
GLK_KEY(share, least, SHARE, share_least, "0", 0, 16 * GLK_TIB, "",
	"Memory of each GPU that the broker is to guarantee: no other process is given it, and below it the "
	"process is not asked to give. Bytes, or a part of the GPU's memory. What the broker's own "
	"configuration says here is the most that any process is guaranteed.")
GLK_KEY(share, most, SHARE, share_most, "0", 0, 16 * GLK_TIB, "",
	"Most memory of each GPU that the broker is to give leave for; 0 for all that it has. Likewise, "
	"for every process where the broker's own configuration says it.")
GLK_LIVE_KEY(share, quota, SHARE, share_quota, "0", 0, 16 * GLK_TIB, "",
	"Most memory of each GPU for all processes of the user that have this key, together: what glake holds and what "
	"the driver gives them beside it, contexts and code too. Under libglake-preload.so the program sees that as the "
	"whole GPU. Bytes, or a part of the GPU's memory; 0 for none. See glake-preload(7).")
GLK_KEY(share, quota_file, TEXT, share_quota_file, "", 0, 0, "",
	"A file that says the same while programs run: a line with a value for all GPUs, or with the UUID of one and a "
	"value, the last one holds. It is read again where it has changed. Others may not write it.")
GLK_KEY(share, quota_name, TEXT, share_quota_name, "", 0, 0, "",
	"A name for a quota of its own, so that a user has several, as one for each job.")
GLK_KEY(share, require, BOOL, share_require, "no", 0, 0, "",
	"Whether requests for more memory are refused while the broker has been gone, or silent, for "
	"share.wait. With no the process goes on as if there were none, and tells the broker what it "
	"holds when it is back.")
GLK_KEY(share, total, SHARE, share_total, "95%", 0, 16 * GLK_TIB, "",
	"For glaked: what it gives of each GPU. The rest is for what no library counts: contexts, kernels, other "
	"programs.")
GLK_KEY(share, wait, TIME, share_wait, "1s", 0, 3600 * GLK_SECOND, "",
	"How long a request that would be refused waits until others have given memory up at the broker's "
	"word, and how long for a broker that is gone.")

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

GLK_KEY(rpc, socket, BOOL, rpc_socket, "no", 0, 0, "",
	"Whether the process can be watched and steered while it runs, by its user and root: with "
	"yes a thread of the library answers glakectl stat and its kin at a socket in "
	"$XDG_RUNTIME_DIR/glake, or in /run/glake for root. Where there can be no such socket a "
	"warning says why, and the program goes on without.")

GLK_TEST_KEY(stats, hold_clock, CHOICE, stats_hold_clock, "wall", 0, 0, "wall,cpu",
	"By which clock the figures tell how long the lock of a GPU was held at most: that on the "
	"wall, or the processor time of the thread that held it, which does not count how long the "
	"system let others run, and takes a system call to read.")

GLK_KEY(trace, file, TEXT, trace_file, "", 0, 0, "",
	"Record all requests and frees of the program in this file, to be replayed or looked at by "
	"glakectl. %p stands for the process id, %n for the number of the context in the process, %h "
	"for the host, %r and %j for the rank and the job that launchers name in the environment (RANK, "
	"OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID; SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, "
	"JOB_ID; 0 where none is), %% for %. A file that is there already is left alone, and nothing is recorded then but a "
	"warning printed.")
GLK_KEY(trace, size, SIZE, trace_size, "4GiB", 1 * GLK_MIB, 16 * GLK_TIB, "",
	"Most bytes of that file, 32 an event; it grows with what is written. When it is full, or "
	"the disk is, recording ends and the program goes on.")

GLK_KEY(uvm, tools, BOOL, uvm_tools, "yes", 0, 0, "",
	"Whether glake_uvm_open may use the tools of the kernel module nvidia_uvm, which count what "
	"managed memory does. Nothing is opened or counted until a program calls it.")
GLK_KEY(uvm, advise, BOOL, uvm_advise, "yes", 0, 0, "",
	"Whether managed memory of the library that goes to and fro between processors, as events of the "
	"kind THRASHING tell a program that drains them, is said to be used by each of them: it stays then, "
	"and is used over the link. Memory that the program itself gives advice for is left to it.")

#undef GLK_LIVE_KEY
#undef GLK_TEST_KEY
