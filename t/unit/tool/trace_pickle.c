/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Snapshots of PyTorch as traces: pickles made by hand, right ones and such as nobody should send. */
#include "t/seed.h"
#include "t/tap.h"
#include "tool/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROWS_MAX 64

static char message[TRACE_MESSAGE_MAX];
static struct trace_row rows[ROWS_MAX];
static size_t count;
static struct trace_reading reading;

static int visit(void *arg, const struct trace_row *row, char *text, size_t size)
{
	(void)arg;
	(void)text;
	(void)size;
	if (count < ROWS_MAX)
		rows[count] = *row;
	count++;
	return 0;
}

static int read_bytes(const void *bytes, size_t size, bool lenient)
{
	int fd = memfd_create("pickle", MFD_CLOEXEC), err;
	char path[32];

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET))
		tap_bail("no file for the test");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	count = 0;
	message[0] = '\0';
	reading = (struct trace_reading){
		.lenient = lenient, .gpu = TRACE_ALL_GPUS, .visit = visit};
	err = trace_read(path, &reading, message, sizeof(message));
	close(fd);
	return err;
}

/* A text of a pickle: words between blanks are opcodes' bytes as C has them. */
#define READ(text) read_bytes(text, sizeof(text) - 1, false)

#define KEY(n, text) "\x8c" n text
#define EVENTS(list) "\x80\x04}(" KEY("\x0d", "device_traces") "](](" list "eeu."
#define EVENT(n, name, addr, size)                                                       \
	"}(" KEY("\x06", "action") KEY(n, name) KEY("\x04", "addr")                      \
		addr KEY("\x04", "size") size KEY("\x07", "time_us") "K\x07" KEY(        \
			"\x06", "frames") "](}(" KEY("\x04", "line") "K\x01ueu"

static void test_good(void)
{
	is_int(READ(EVENTS(
		       EVENT("\x05", "alloc", "\x8a\x06\x01\0\0\0\0\x7f", "\x8a\x00"))),
		0, "long numbers");
	ok(rows[0].pointer == 0x7f0000000001 && !rows[0].size, "of any length");
	is_int(READ(EVENTS(EVENT(
		       "\x05", "alloc", "\x8a\x09\x01\0\0\0\0\0\0\x80\0", "K\x09"))),
		0, "the largest addresses");
	ok(rows[0].pointer == 0x8000000000000001, "fit");
	is_int(READ("\x80\x02"
		    "ctorch.jit._pickle\nrestore_type_tag\n}(X\x0d\0\0\0device_traces]("
		    "]("
		    "ctorch.jit._pickle\nrestore_type_tag\n}(X\x06\0\0\0actionX\x05\0\0\0alloc"
		    "X\x04\0\0\0addrK\x01X\x04\0\0\0sizeK\x02uX\x04\0\0\0"
		    "Dict\x86Reeu"
		    "X\x04\0\0\0"
		    "Dict\x86R."),
		0, "one that the C++ side of PyTorch has written");
	is_int(count, 1, "has its event");
}

/* What is named in many places. */
static void test_shared(void)
{
	is_int(READ("\x80\x02}(X\x0d\0\0\0device_traces](](}(X\x06\0\0\0actionX\x05\0\0\0alloc"
		    "X\x04\0\0\0addrK\x01X\x04\0\0\0sizeK\x02X\x04\0\0\0sizeK\x03X\x04\0\0\0"
		    "sizeK\x04ueeu."),
		0, "a member that is set again");
	ok(count == 1 && rows[0].size == 4, "is what it was set to last");
	is_int(READ("\x80\x02}(X\x0d\0\0\0device_tracesq\x00](](}q\x01(X\x06\0\0\0actionX\x03\0\0\0oom"
		    "X\x04\0\0\0sizeK\x02uh\x01h\x01h\x01h\x01h\x01"
		    "eq\x02h\x02h\x02h\x02h\x02h\x02h\x02"
		    "eu."),
		-EINVAL, "a list of events that many GPUs have");
	has_str(message, "again and again", "is refused");
	is_int(READ("\x80\x02}(X\x0d\0\0\0device_traces](](}(X\x06\0\0\0actionX\x03\0\0\0oom"
		    "X\x04\0\0\0sizeK\x02ueeX\x08\0\0\0segments](}q\x00(X\x06\0\0\0blocks"
		    "](}q\x01(X\x05\0\0\0stateNuh\x01h\x01h\x01h\x01h\x01"
		    "euh\x00h\x00h\x00h\x00h\x00h\x00"
		    "eu."),
		-EINVAL, "blocks that many segments have");
}

static void refused(int err, int want, const char *part, const char *what)
{
	is_int(err, want, what);
	has_str(message, part, what);
}

static void test_bad(void)
{
	static char deep[3000] = "\x80\x04";

	refused(READ("\x80\x04."), -EINVAL, "ends with 0 values", "nothing");
	refused(READ("\x80\x04"), -EINVAL, "in the middle", "no end");
	refused(READ("\x80\x06N."), -EINVAL, "protocol 6", "another protocol");
	refused(READ("\x80\x04N."), -EINVAL, "device_traces", "no snapshot");
	refused(READ("\x80\x04}\x8c\x0d"
		     "device_tracesNs."),
		-EINVAL, "device_traces", "no list of events");
	refused(READ("\x80\x04I1\n."), -EINVAL, "opcode 0x49", "an old opcode");
	refused(READ("\x80\x04Pabc\n."), -EINVAL, "opcode 0x50",
		"an object from elsewhere");
	refused(READ("\x80\x04](K\x01K\x02u."), -EINVAL, "device_traces",
		"items of a dict in a list");
	refused(READ("\x80\x04}(K\x01u."), -EINVAL, "without a value", "a key alone");
	refused(READ("\x80\x04"
		     "e."),
		-EINVAL, "has not begun", "an end without a beginning");
	refused(READ("\x80\x04(e."), -EINVAL, "nothing to put them into",
		"items of nothing");
	refused(READ("\x80\x04K\x01"
		     "a."),
		-EINVAL, "too few values", "an item of nothing");
	refused(READ("\x80\x04"
		     "0."),
		-EINVAL, "too few values", "a value too few");
	refused(READ("\x80\x04(0."), -EINVAL, "too few values", "one from below a mark");
	refused(READ("\x80\x04\x94."), -EINVAL, "nothing to remember",
		"a name of nothing");
	refused(READ("\x80\x04Nr\xff\xff\xff\xff."), -EINVAL, "memo 4294967295",
		"a name far ahead");
	refused(READ("\x80\x04h\x00."), -EINVAL, "memo 0 of 0",
		"a name that nothing has");
	refused(READ("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
		     "a."),
		-EINVAL, "in the middle", "a text of all addresses");
	refused(READ("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."), -EINVAL,
		"in the middle", "as many bytes");
	refused(READ("\x80\x04\x8b\xff\xff\xff\xff."), -EINVAL, "in the middle",
		"a long number");
	refused(READ("\x80\x04"
		     "cos\nsystem\n\x8c\x02id\x85R."),
		-EINVAL, "device_traces", "a call, which is not made");
	refused(READ("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R."), -EINVAL,
		"device_traces", "nor in other words");
	memset(deep + 2, '(', sizeof(deep) - 2);
	refused(read_bytes(deep, sizeof(deep), false), -EFBIG, "deep",
		"a thousand lists deep");
	refused(READ(EVENTS("}(" KEY("\x06", "action") KEY("\x05", "alloc") "u")),
		-EINVAL, "event 1", "an event without an address");
	is_int(read_bytes(EVENTS("}(" KEY("\x06", "action") KEY("\x05", "alloc") "u"),
		       sizeof(EVENTS(
			       "}(" KEY("\x06", "action") KEY("\x05", "alloc") "u")) -
			       1,
		       true),
		0, "which may be left out");
	is_int((int64_t)reading.skipped, 1, "and is counted");
	is_int(READ(EVENTS("")), 0, "no event at all");
	is_int(count, 0, "is no row");
	/* a list that is in itself */
	is_int(READ("\x80\x04}(" KEY("\x0d", "device_traces") "]\x94(h\x00"
							      "eu."),
		0, "a list of itself");
}

/* Whatever the bytes are, it is an answer. */
static void test_any(void)
{
	static const char good[] = "\x80\x04}(" KEY("\x08", "segments") "](}(" KEY("\x06",
		"device") "K\x00" KEY("\x06", "blocks") "](}(" KEY("\x05", "state")
		KEY("\x10", "active_allocated") KEY("\x07", "address") "M\x00\x30" KEY(
			"\x04",
			"size") "K\x05u\x94"
				"eueueu" KEY("\x0d", "device_traces") "](](" EVENT(
					"\x05", "alloc", "M\x34\x12", "K\x09")
					EVENT("\x0e", "free_requested", "M\x34\x12",
						"K\x09") "e]\x94h\x01"
							 "eu.";
	uint64_t seed = seed_thread(seed_start(), 0);
	int answers = 0, turns = tap_on_valgrind() ? 200 : 20000;
	char bytes[sizeof(good)];

	for (int i = 0; i < turns; i++) {
		size_t size = sizeof(good) - 1;

		memcpy(bytes, good, sizeof(good));
		for (int n = 0; n < 1 + i % 4; n++) {
			uint64_t random = seed_next(&seed);

			bytes[2 + (random >> 33) % (size - 2)] = (char)(random >> 20);
		}
		if (i % 5 == 0)
			size = 2 + (seed_next(&seed) >> 40) % (size - 2);
		answers += read_bytes(bytes, size, i % 2) <= 0;
	}
	is_int(answers, turns, "any bytes");
}

int main(void)
{
	tap_plan_later();
	test_good();
	test_shared();
	test_bad();
	test_any();
	return tap_done();
}
