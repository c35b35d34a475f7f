/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_DOCTOR_H
#define GLK_TOOL_DOCTOR_H

/*
 * glakectl doctor in three steps: facts are gathered, judged, and shown. Judging looks at the facts
 * alone, so that tests can make any machine up.
 */
#include <glake/info.h>
#include <glake/uvm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What came of one GPU. */
struct doctor_gpu {
	struct glake_device device;
	int err;	   /* of the trial: 0 or -errno */
	char failure[300]; /* its sentence */
	uint32_t can;	   /* GLAKE_CAN_... of a block that was given for trial */
};

/* What came of loading a module. */
enum doctor_loading {
	DOCTOR_LOAD_DONE,
	DOCTOR_LOAD_ALREADY,
	DOCTOR_LOAD_FAILED,
	DOCTOR_LOAD_NOT_THERE, /* all went well, and it is not there */
	DOCTOR_LOAD_NOT_TRIED, /* nvidia, which it is nothing without, was not loaded */
};

struct doctor_load {
	enum doctor_loading how;
	int status;	/* exit status of modprobe, or -errno where it could not be run */
	char said[400]; /* what it said */
};

/* What came of making nodes. */
enum doctor_making {
	DOCTOR_MADE_NEEDLESS,
	DOCTOR_MADE_DONE,
	DOCTOR_MADE_NO_PROGRAM,
	DOCTOR_MADE_FAILED,
	DOCTOR_MADE_IN_VAIN, /* the program did not fail, and some are missing still */
};

struct doctor_made {
	enum doctor_making how;
	int status;    /* exit status of the program, or -errno */
	char left[32]; /* the first one that is missing still */
};

#define DOCTOR_NODES 64 /* of the host that are looked at; more are only counted */

struct doctor_facts {
	struct glake_host host;
	struct glake_module modules[2]; /* nvidia, nvidia_uvm */
	struct glake_uvm_tools tools;	/* of the latter */
	/* glake_parameter_get, or what stands for it */
	int (*parameter)(const char *name, char *ret_text, size_t size);
	struct glake_node nodes[DOCTOR_NODES];
	size_t node_count;
	const char *visible; /* CUDA_VISIBLE_DEVICES; NULL if it is not set */

	bool load; /* modules were to be loaded */
	struct doctor_load loads[2];
	struct doctor_made made;

	bool soft_wanted; /* the software device was asked for */
	bool opened;
	bool soft; /* opened, on the software device */
	struct glake_driver driver;
	char failure[300];	 /* why it did not open */
	char export[128];	 /* pool.export */
	struct doctor_gpu *gpus; /* of the context */
	int gpu_count;

	unsigned int conf_errors, conf_warnings;
	char conf_text[400]; /* the first finding; for want of one, which file there is */
};

/* Loads nvidia and nvidia_uvm and has their nodes made. As root. */
void doctor_load_both(struct doctor_facts *facts);

enum doctor_status {
	DOCTOR_OK,
	DOCTOR_NOTE,	/* works, and could be better, or wants to be known */
	DOCTOR_PROBLEM, /* does not work */
};

struct doctor_check {
	enum doctor_status status;
	const char *part; /* heading that it stands under */
	char name[64];	  /* stable, as "limit.maps" */
	char text[480];	  /* what is so */
	char advice[400]; /* what to do; "" where all is well */
};

#define DOCTOR_CHECKS 512

struct doctor {
	const char *part;
	size_t count;
	bool left_out; /* there were more */
	struct doctor_check checks[DOCTOR_CHECKS];
};

/* Adds a check; the advice of one that is not ok follows by doctor_advise. */
void doctor_add(struct doctor *doctor, enum doctor_status status, const char *name,
	const char *format, ...) __attribute__((format(printf, 4, 5)));
void doctor_advise(struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Judges all. `doctor` is zero before. */
void doctor_judge(const struct doctor_facts *facts, struct doctor *doctor);
/* Its parts. */
void doctor_judge_load(const struct doctor_facts *facts, struct doctor *doctor);
void doctor_judge_driver(const struct doctor_facts *facts, struct doctor *doctor);
void doctor_judge_parameters(const struct doctor_facts *facts, struct doctor *doctor);
void doctor_judge_host(const struct doctor_facts *facts, struct doctor *doctor);
void doctor_judge_gpus(const struct doctor_facts *facts, struct doctor *doctor);

size_t doctor_count(const struct doctor *doctor, enum doctor_status status);
/* "ok", "note", "problem". */
const char *doctor_status_name(enum doctor_status status);

/*
 * doctor_load.c, the one place of glake that loads kernel modules, in steps that tests can give other
 * programs and another machine. Loads names[0] and then names[1], which depends on it and is not tried
 * without it, by `program`, which is modprobe. `root` is "" but for tests.
 */
void doctor_load_names(const char *program, const char *root, const char *const *names,
	struct doctor_load *ret_loads);

#define DOCTOR_MINORS 255 /* of GPUs; the one after them is nvidiactl */

/* Nodes that are missing, or have another's number. */
struct doctor_missing {
	bool control, uvm, tools;
	bool gpu[DOCTOR_MINORS]; /* by its minor number */
};

/* Those of what is loaded: of each GPU that the driver has, below a root that is "" but for tests. */
void doctor_find_missing(const char *root, const struct glake_module *modules,
	const struct glake_uvm_tools *tools, struct doctor_missing *ret_missing);

/* Runs `program`, which is nvidia-modprobe, once for each node; one run makes both of nvidia_uvm. */
void doctor_make_nodes(const char *program, const struct doctor_missing *missing,
	struct doctor_made *ret_made);

/* After that: whether it helped. */
void doctor_look_again(const struct doctor_missing *missing, struct doctor_made *made);

#endif
