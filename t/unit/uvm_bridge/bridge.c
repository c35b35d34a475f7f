/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counters against a model of the module, and each way that the bridge ends before its time: what
 * fails when it opens, and while it is open; pauses; a module that is another than it seemed.
 */
#include "unit/uvm_bridge/opened.h"

static void counters_alone(void)
{
	struct glk_uvm *uvm;

	fake_init(&fake, 'D');
	uvm = open_it(0, 0, 0);
	is_int(fake_open_fds(&fake), FAKE_OPEN + 2, "counters alone: no queue");
	is_int(fake.maps, 1, "and no ring");
	happen();
	is_int(figures_of(uvm).to_gpu_bytes, 2 << 20, "they count");
	is_int(figures_of(uvm).events, 0, "and see no event");
	close_it(uvm);
}

/* The module's end of it fails while it is open. */
static void fails(int ioctl_errno, uint32_t sticky, int state, int err)
{
	struct glake_uvm_event events[16];
	struct glake_uvm_pressure got;
	struct glake_uvm_figures figures;
	struct glk_uvm *uvm;
	size_t count;

	fake_init(&fake, 'D');
	uvm = open_it(0, GLAKE_UVM_ALL, 16);
	happen();
	fake.ioctl_errno = ioctl_errno;
	fake.sticky = sticky;
	is_int(glk_uvm_drain(uvm, events, 16, &count), 0, "what is in the ring is given");
	is_int(count, MOVES, "all of it");
	figures = figures_of(uvm);
	is_int(figures.state, state, "the state says what happened");
	ok(*figures.text, "and a sentence: %s", figures.text);
	is_int(figures.to_gpu_bytes, 2 << 20, "counters are the last ones");
	is_int(glk_uvm_drain(uvm, events, 16, &count), err, "then it is an error");
	is_int(glk_uvm_pressure(uvm, &got), err, "pressure too");
	is_int(fake_open_fds(&fake), FAKE_OPEN, "descriptors were closed at once");
	close_it(uvm);
}

static void suspended_driver(void)
{
	struct glake_uvm_event events[16];
	struct glk_uvm *uvm;
	size_t count;

	fake_init(&fake, 'D');
	uvm = open_it(0, GLAKE_UVM_ALL, 16);
	happen();
	fake.ioctl_errno = -EAGAIN;
	is_int(glk_uvm_drain(uvm, events, 16, &count), 0, "while the driver suspends");
	is_int(count, MOVES, "what is there is given");
	is_int(figures_of(uvm).state, GLAKE_UVM_OK, "and nothing ends");
	glk_uvm_pause(uvm);
	glk_uvm_continue(uvm);
	is_int(figures_of(uvm).state, GLAKE_UVM_AGAIN, "it cannot begin meanwhile");
	is_int(glk_uvm_drain(uvm, events, 16, &count), -EAGAIN, "which is told");
	fake.ioctl_errno = 0;
	is_int(glk_uvm_drain(uvm, events, 16, &count), 0, "and does so later by itself");
	is_int(figures_of(uvm).state, GLAKE_UVM_OK, "it counts");
	close_it(uvm);
}

/* What the module writes there is not believed. */
static void broken_index(void)
{
	struct glake_uvm_event events[16];
	struct glk_uvm *uvm;
	size_t count;

	fake_init(&fake, 'D');
	uvm = open_it(0, GLAKE_UVM_ALL, 16);
	happen();
	is_int(glk_uvm_drain(uvm, events, 2, &count), 0, "two are drained");
	for (int i = 0; i < FAKE_FDS; i++)
		if (fake.files[i].control)
			fake.files[i].control->put_behind = 16;
	is_int(glk_uvm_drain(uvm, events, 16, &count), 0,
		"what was seen before is given");
	is_int(count, MOVES - 2, "no more");
	is_int(glk_uvm_drain(uvm, events, 16, &count), -EIO, "then it is refused");
	is_int(figures_of(uvm).state, GLAKE_UVM_BROKEN, "for an index out of range");
	is_int(fake_open_fds(&fake), FAKE_OPEN, "descriptors were closed");
	close_it(uvm);
}

static void paused(void)
{
	struct glake_uvm_event events[16];
	struct glake_uvm_figures figures;
	struct glk_uvm *uvm;
	size_t count;
	int fd;

	fake_init(&fake, 'D');
	uvm = open_it(0, GLAKE_UVM_ALL, 16);
	happen();
	glk_uvm_pause(uvm);
	is_int(fake_open_fds(&fake), FAKE_OPEN, "paused: no descriptor is held");
	glk_uvm_pause(uvm);
	is_int(figures_of(uvm).state, GLAKE_UVM_PAUSED, "the state says so");
	is_int(figures_of(uvm).to_gpu_bytes, 2 << 20, "counters stay");
	is_int(glk_uvm_drain(uvm, events, 1, &count), 0, "events too");
	is_int(events[0].to, 0, "with their processors");
	happen(); /* nobody counts */
	/* CUDA has its descriptors anew */
	fake_close(&fake, 4);
	fake_close(&fake, 5);
	fd = fake_add(&fake, FAKE_SPACE);
	fake_add(&fake, FAKE_MM);
	glk_uvm_continue(uvm);
	glk_uvm_continue(uvm);
	is_int(figures_of(uvm).state, GLAKE_UVM_OK, "continued on CUDA's new one");
	happen();
	figures = figures_of(uvm);
	is_int(figures.to_gpu_bytes, 2 * (2 << 20), "counters go on");
	is_int(figures.dropped, MOVES - 1, "what was not drained is counted as lost");
	is_int(glk_uvm_drain(uvm, events, 16, &count), 0, "new events");
	is_int(count, MOVES, "come");
	glk_uvm_pause(uvm);
	fake_close(&fake, fd);
	glk_uvm_continue(uvm);
	is_int(figures_of(uvm).state, GLAKE_UVM_NO_CUDA, "CUDA may be gone");
	is_int(glk_uvm_drain(uvm, events, 16, &count), -ENOENT, "which is told");
	fake_add(&fake, FAKE_SPACE);
	close_it(uvm);
}

static void refuses(const char *what, int err, int opened)
{
	struct glk_uvm_setup setup = setup_of(GLAKE_UVM_ALL, 0);
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_uvm *uvm = NULL;

	is_int(glk_uvm_open(&setup, &uvm), err, what);
	glake_last_error(&record);
	ok(record.err == err && *record.text, "%s", record.text);
	is_int(fake_open_fds(&fake), opened, "nothing stays open");
	is_int(fake.maps, 0, "or mapped");
	is_int(fake.unknown, 0, "and no unknown number was tried");
}

static void opening_fails(void)
{
	static const struct {
		int open_errno, err;
	} nodes[] = {{-ENOENT, -EOPNOTSUPP}, {-EACCES, -EACCES}, {-EPERM, -EACCES},
		{-ENXIO, -ENODEV}, {-ENODEV, -ENODEV}, {-EMFILE, -EMFILE},
		{-EIO, -ENODEV}};

	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
		fake_init(&fake, 'D');
		fake.open_errno = nodes[i].open_errno;
		refuses("the node of the tools", nodes[i].err, FAKE_OPEN);
	}
	fake_init(&fake, 'B');
	fake.sticky = 0x3f;
	refuses("a fatal error of the driver", -ENODEV, FAKE_OPEN);
	fake_init(&fake, 'A');
	fake.no_map = true;
	refuses("no memory", -ENOMEM, FAKE_OPEN);
	fake_init(&fake, 'A');
	fake.sticky = GLK_UVM_WARNING | 6;
	fake.open_errno = -EMFILE;
	fake_close(&fake, 4); /* which would answer so too */
	refuses("a remark is no failure", -EMFILE, FAKE_OPEN - 1);
}

/* A module that is not of the generation that it was taken for is seen by its first answer. */
static void other_generations(void)
{
	for (char is = 'A'; is <= 'D'; is++) {
		for (char taken = 'A'; taken <= 'D'; taken++) {
			struct glk_uvm_setup setup;
			struct glk_uvm *uvm = NULL;
			bool alike = (is == 'A' && taken == 'D') ||
				(is == 'D' && taken == 'A');

			fake_init(&fake, is);
			setup = setup_of(0, 0);
			setup.generation = taken;
			if (is == taken || alike) {
				/* counters of A and D are one */
				is_int(glk_uvm_open(&setup, &uvm), 0, "it opens");
				glk_uvm_close(uvm);
			} else {
				is_int(glk_uvm_open(&setup, &uvm), -EOPNOTSUPP,
					"an answer that does not fit");
			}
			is_int(fake_open_fds(&fake), FAKE_OPEN, "nothing stays");
		}
	}
	fake_init(&fake, 'A');
	fake.generation = 'D';
	{
		struct glk_uvm_setup setup = setup_of(GLAKE_UVM_ALL, 0);
		struct glk_uvm *uvm = NULL;

		setup.generation = 'A';
		is_int(glk_uvm_open(&setup, &uvm), -EOPNOTSUPP, "nor does the table's");
	}
}

static void bad_options(void)
{
	struct glk_uvm_setup setup;
	struct glk_uvm *uvm;

	fake_init(&fake, 'D');
	static const uint32_t entries[] = {1, 3, 12, 16384, 1u << 31};
	for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		setup = setup_of(GLAKE_UVM_ALL, entries[i]);
		is_int(glk_uvm_open(&setup, &uvm), -EINVAL, "a ring of such a size");
	}
	setup = setup_of(1u << 1, 0);
	is_int(glk_uvm_open(&setup, &uvm), -EINVAL, "an event that is not offered");
	setup = setup_of(0, 0);
	setup.flags = 2;
	is_int(glk_uvm_open(&setup, &uvm), -EINVAL, "a flag that there is not");
	is_int(fake.calls, 0, "and nothing was asked");
}

int main(void)
{
	tap_plan_later();
	counters_alone();
	fails(-ENODEV, 0, GLAKE_UVM_GONE, -ENODEV);
	fails(-EBADF, 0, GLAKE_UVM_GONE, -ENODEV);
	fails(-ENOTTY, 0, GLAKE_UVM_REFUSED, -EIO);
	fails(-EIO, 0, GLAKE_UVM_SICK, -ENODEV);
	fails(0, 0x3f, GLAKE_UVM_SICK, -ENODEV);
	suspended_driver();
	broken_index();
	paused();
	opening_fails();
	other_generations();
	bad_options();
	return tap_done();
}
