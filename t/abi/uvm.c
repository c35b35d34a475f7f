/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Our declarations of nvidia-uvm against the headers of NVIDIA's open kernel modules, of any version
 * from 515 on. Built as a skip where none were given: set NV_OGKM to the folder of their source
 * when the build is configured. What our own sizes and offsets are, abi.h asserts in every build.
 */
#include "tap.h"

#ifndef GLK_HAVE_OGKM
int main(void)
{
	tap_skip_all("no NVIDIA kernel module headers: NV_OGKM was not set when this was "
		     "configured");
}
#else
#include "uvm_linux_ioctl.h"

#include "uvm_bridge/abi.h"

#include <stddef.h>

/* In B and C records of the first version are named so. */
#ifdef GLK_OGKM_V1
#define V1(type) type##_V1
#else
#define V1(type) type
#endif

#define NUMBER(ours, theirs) is_int(ours, theirs, #theirs)
#define SIZE(ours, theirs)   is_int(sizeof(struct ours), sizeof(theirs), #theirs)
#define FIELD(ours, field, theirs, their_field)                                          \
	is_int(offsetof(struct ours, field), offsetof(theirs, their_field),              \
		#theirs "." #their_field)

static void numbers(void)
{
	NUMBER(GLK_UVM_PAGEABLE_MEM_ACCESS, UVM_PAGEABLE_MEM_ACCESS);
	NUMBER(GLK_UVM_TOOLS_INIT_EVENT_TRACKER, UVM_TOOLS_INIT_EVENT_TRACKER);
	NUMBER(GLK_UVM_TOOLS_EVENT_QUEUE_ENABLE, UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS);
	NUMBER(GLK_UVM_TOOLS_EVENT_QUEUE_DISABLE, UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS);
	NUMBER(GLK_UVM_TOOLS_ENABLE_COUNTERS, UVM_TOOLS_ENABLE_COUNTERS);
	NUMBER(GLK_UVM_TOOLS_DISABLE_COUNTERS, UVM_TOOLS_DISABLE_COUNTERS);
	NUMBER(GLK_UVM_TOOLS_UUID_TABLE, UVM_TOOLS_GET_PROCESSOR_UUID_TABLE);
	NUMBER(GLK_UVM_TOOLS_FLUSH_EVENTS, UVM_TOOLS_FLUSH_EVENTS);
	NUMBER(GLK_UVM_VALIDATE_VA_RANGE, UVM_VALIDATE_VA_RANGE);
	NUMBER(GLK_UVM_ILLEGAL_ACTION, NV_ERR_ILLEGAL_ACTION);
	NUMBER(GLK_UVM_BUSY_RETRY, NV_ERR_BUSY_RETRY);
	NUMBER(GLK_UVM_NO_PERMISSION, NV_ERR_INSUFFICIENT_PERMISSIONS);
	NUMBER(GLK_UVM_INVALID_ADDRESS, NV_ERR_INVALID_ADDRESS);
	NUMBER(GLK_UVM_INVALID_ARGUMENT, NV_ERR_INVALID_ARGUMENT);
	NUMBER(GLK_UVM_NO_MEMORY, NV_ERR_NO_MEMORY);
	NUMBER(GLK_UVM_NOT_SUPPORTED, NV_ERR_NOT_SUPPORTED);
	NUMBER(GLK_UVM_BYTES_TO_GPU, UvmCounterNameBytesXferHtD);
	NUMBER(GLK_UVM_BYTES_TO_HOST, UvmCounterNameBytesXferDtH);
	NUMBER(GLK_UVM_CPU_FAULTS, UvmCounterNameCpuPageFaultCount);
	NUMBER(GLK_UVM_GPU_FAULTS, UvmCounterNameGpuPageFaultCount);
	NUMBER(GLK_UVM_COUNTERS, UVM_TOTAL_COUNTERS);
	NUMBER(GLK_UVM_MIGRATION, UvmEventTypeMigration);
	NUMBER(GLK_UVM_FATAL_FAULT, UvmEventTypeFatalFault);
	NUMBER(GLK_UVM_THRASHING, UvmEventTypeThrashingDetected);
	NUMBER(GLK_UVM_THROTTLING, UvmEventTypeThrottlingStart);
	NUMBER(GLK_UVM_MAP_REMOTE, UvmEventTypeMapRemote);
	NUMBER(GLK_UVM_KINDS, UvmEventNumTypesAll);
	NUMBER(GLK_UVM_CAUSE_USER, UvmEventMigrationCauseUser);
	NUMBER(GLK_UVM_CAUSE_COHERENCE, UvmEventMigrationCauseCoherence);
	NUMBER(GLK_UVM_CAUSE_PREFETCH, UvmEventMigrationCausePrefetch);
	NUMBER(GLK_UVM_CAUSE_EVICTION, UvmEventMigrationCauseEviction);
	NUMBER(GLK_UVM_CAUSE_COUNTERS, UvmEventMigrationCauseAccessCounters);
	NUMBER(GLK_UVM_REMOTE_COHERENCE, UvmEventMapRemoteCauseCoherence);
	NUMBER(GLK_UVM_REMOTE_THRASHING, UvmEventMapRemoteCauseThrashing);
	NUMBER(GLK_UVM_REMOTE_POLICY, UvmEventMapRemoteCausePolicy);
	NUMBER(GLK_UVM_REMOTE_OUT_OF_MEMORY, UvmEventMapRemoteCauseOutOfMemory);
	NUMBER(GLK_UVM_REMOTE_EVICTION, UvmEventMapRemoteCauseEviction);
}

static void simple(void)
{
	SIZE(glk_uvm_pageable, UVM_PAGEABLE_MEM_ACCESS_PARAMS);
	FIELD(glk_uvm_pageable, status, UVM_PAGEABLE_MEM_ACCESS_PARAMS, rmStatus);
	SIZE(glk_uvm_range, UVM_VALIDATE_VA_RANGE_PARAMS);
	FIELD(glk_uvm_range, length, UVM_VALIDATE_VA_RANGE_PARAMS, length);
	FIELD(glk_uvm_range, status, UVM_VALIDATE_VA_RANGE_PARAMS, rmStatus);
	SIZE(glk_uvm_flags, UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS_PARAMS);
	FIELD(glk_uvm_flags, status, UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS_PARAMS,
		rmStatus);
	SIZE(glk_uvm_flags, UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS_PARAMS);
	SIZE(glk_uvm_flags, UVM_TOOLS_ENABLE_COUNTERS_PARAMS);
	FIELD(glk_uvm_flags, status, UVM_TOOLS_ENABLE_COUNTERS_PARAMS, rmStatus);
	SIZE(glk_uvm_flags, UVM_TOOLS_DISABLE_COUNTERS_PARAMS);
	SIZE(glk_uvm_flush, UVM_TOOLS_FLUSH_EVENTS_PARAMS);
	SIZE(glk_uvm_control, UvmToolsEventControlData);
	FIELD(glk_uvm_control, get_ahead, UvmToolsEventControlData, get_ahead);
	FIELD(glk_uvm_control, get_behind, UvmToolsEventControlData, get_behind);
	FIELD(glk_uvm_control, put_ahead, UvmToolsEventControlData, put_ahead);
	FIELD(glk_uvm_control, put_behind, UvmToolsEventControlData, put_behind);
	FIELD(glk_uvm_control, dropped, UvmToolsEventControlData, dropped);
}

/* Where the status lies tells the generation. */
static void trackers(void)
{
	size_t status = offsetof(UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS, rmStatus);
	size_t size = sizeof(UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS);
	size_t of_table = offsetof(UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS, rmStatus);
	size_t table = sizeof(UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS);
	char generation = 'A';

#ifdef UVM_TOOLS_INIT_EVENT_TRACKER_V2
	generation = 'D';
	NUMBER(GLK_UVM_TOOLS_INIT_EVENT_TRACKER_V2, UVM_TOOLS_INIT_EVENT_TRACKER_V2);
	NUMBER(GLK_UVM_TOOLS_UUID_TABLE_V2, UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_V2);
	is_int(sizeof(UVM_TOOLS_INIT_EVENT_TRACKER_V2_PARAMS), GLK_UVM_TRACKER_SIZE,
		"the second tracker is as large");
	NUMBER(GLK_UVM_INDEX_V1, UVM_MAX_PROCESSORS_V1);
	NUMBER(GLK_UVM_INDEX_V2, UVM_MAX_PROCESSORS);
#else
	if (size == GLK_UVM_TRACKER_SIZE_B)
		generation = 'B';
	else if (status == 52)
		generation = 'C';
#endif
	tap_note("headers of generation %c", generation);
	is_int(size, generation == 'B' ? GLK_UVM_TRACKER_SIZE_B : GLK_UVM_TRACKER_SIZE,
		"a tracker");
	is_int(status, generation == 'C' ? 52 : 48, "its status");
	is_int(table, generation == 'B' ? GLK_UVM_TABLE_SIZE_B : GLK_UVM_TABLE_SIZE,
		"the table");
	is_int(of_table, generation == 'D' ? 8 : 12, "its status");
	FIELD(glk_uvm_tracker, queue, UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS, queueBuffer);
	FIELD(glk_uvm_tracker, entries, UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS,
		queueBufferSize);
	FIELD(glk_uvm_tracker, control, UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS,
		controlBuffer);
	FIELD(glk_uvm_tracker, processor, UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS, processor);
	FIELD(glk_uvm_tracker, all_processors, UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS,
		allProcessors);
	FIELD(glk_uvm_tracker, uvm_fd, UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS, uvmFd);
	FIELD(glk_uvm_table, table, UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS, tablePtr);
}

#define MIGRATION(ours, theirs)                                                          \
	do {                                                                             \
		SIZE(ours, theirs);                                                      \
		FIELD(ours, cause, theirs, migrationCause);                              \
		FIELD(ours, from, theirs, srcIndex);                                     \
		FIELD(ours, to, theirs, dstIndex);                                       \
		FIELD(ours, address, theirs, address);                                   \
		FIELD(ours, bytes, theirs, migratedBytes);                               \
		FIELD(ours, begin, theirs, beginTimeStamp);                              \
		FIELD(ours, end, theirs, endTimeStamp);                                  \
	} while (0)
#define FATAL(ours, theirs)                                                              \
	do {                                                                             \
		SIZE(ours, theirs);                                                      \
		FIELD(ours, processor, theirs, processorIndex);                          \
		FIELD(ours, reason, theirs, reason);                                     \
		FIELD(ours, address, theirs, address);                                   \
		FIELD(ours, time, theirs, timeStamp);                                    \
	} while (0)
#define THRASHING(ours, theirs)                                                          \
	do {                                                                             \
		SIZE(ours, theirs);                                                      \
		FIELD(ours, processors, theirs, processors);                             \
		FIELD(ours, address, theirs, address);                                   \
		FIELD(ours, bytes, theirs, size);                                        \
		FIELD(ours, time, theirs, timeStamp);                                    \
	} while (0)
#define THROTTLING(ours, theirs)                                                         \
	do {                                                                             \
		SIZE(ours, theirs);                                                      \
		FIELD(ours, processor, theirs, processorIndex);                          \
		FIELD(ours, address, theirs, address);                                   \
		FIELD(ours, time, theirs, timeStamp);                                    \
	} while (0)
#define REMOTE(ours, theirs)                                                             \
	do {                                                                             \
		SIZE(ours, theirs);                                                      \
		FIELD(ours, cause, theirs, mapRemoteCause);                              \
		FIELD(ours, from, theirs, srcIndex);                                     \
		FIELD(ours, to, theirs, dstIndex);                                       \
		FIELD(ours, address, theirs, address);                                   \
		FIELD(ours, bytes, theirs, size);                                        \
		FIELD(ours, time, theirs, timeStamp);                                    \
	} while (0)

static void records(void)
{
	is_int(GLK_UVM_ENTRY_V1, sizeof(V1(UvmEventEntry)), "an entry");
	MIGRATION(glk_uvm_migration_v1, V1(UvmEventMigrationInfo));
	FATAL(glk_uvm_fatal_v1, V1(UvmEventFatalFaultInfo));
	THRASHING(glk_uvm_thrashing_v1, V1(UvmEventThrashingDetectedInfo));
	THROTTLING(glk_uvm_throttling_v1, V1(UvmEventThrottlingStartInfo));
	REMOTE(glk_uvm_remote_v1, V1(UvmEventMapRemoteInfo));
	/* those of the generation that has calls for them; others are never read */
#ifdef UVM_TOOLS_INIT_EVENT_TRACKER_V2
	is_int(GLK_UVM_ENTRY_V2, sizeof(UvmEventEntry_V2),
		"an entry of the second version");
	MIGRATION(glk_uvm_migration_v2, UvmEventMigrationInfo_V2);
	FIELD(glk_uvm_migration_v2, from_node, UvmEventMigrationInfo_V2, srcNid);
	FIELD(glk_uvm_migration_v2, to_node, UvmEventMigrationInfo_V2, dstNid);
	FATAL(glk_uvm_fatal_v2, UvmEventFatalFaultInfo_V2);
	THRASHING(glk_uvm_thrashing_v2, UvmEventThrashingDetectedInfo_V2);
	THROTTLING(glk_uvm_throttling_v2, UvmEventThrottlingStartInfo_V2);
	REMOTE(glk_uvm_remote_v2, UvmEventMapRemoteInfo_V2);
#endif
}

int main(void)
{
	tap_plan_later();
	numbers();
	simple();
	trackers();
	records();
	return tap_done();
}
#endif
