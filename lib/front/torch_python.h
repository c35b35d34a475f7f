/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_TORCH_PYTHON_H
#define GLK_FRONT_TORCH_PYTHON_H

/*
 * The interpreter that this process runs, by the functions that it exports: neither its headers nor
 * its library are needed to build or to load the plug-in. Of Python 3.9 and later.
 */
#include <stdbool.h>
#include <stddef.h>

/* Where a call stands. Two are the same place if both fields are. */
struct glk_python_frame {
	void *code; /* a reference to the code object, which whoever has it gives back */
	int at;	    /* the instruction, or where Python does not tell it the line */
};

#define GLK_PYTHON_FILE_MAX 1024
#define GLK_PYTHON_NAME_MAX 256

/* What a place is called; longer texts are cut. */
struct glk_python_place {
	int line;
	char file[GLK_PYTHON_FILE_MAX], name[GLK_PYTHON_NAME_MAX];
};

/* Looks the interpreter up, which may be called again. 0; -ENOENT: there is none, or it is too old;
 * -EOPNOTSUPP: this thread is of another interpreter than the main one. */
int glk_python_find(void);

/*
 * Attaches this thread to the interpreter, and waits for the global lock if it does not
 * hold it. Fails, and changes nothing, for a thread that Python does not know, which is
 * never made known to it,
 * while there are other interpreters than the main one, and once Python ends.
 */
bool glk_python_enter(int *ret_state);
void glk_python_leave(int state);
/* While it is entered: lets other threads have the interpreter, and takes it again. */
void *glk_python_yield(void);
void glk_python_return(void *thread);

/*
 * While it is entered, with no lock held, as Python may collect garbage in any of these and run
 * whatever that ends. Frames of this thread, innermost first: their number.
 */
size_t glk_python_walk(struct glk_python_frame *ret_frames, size_t room);
/* An exception that is under way stays as it is. */
void glk_python_describe(
	const struct glk_python_frame *frame, struct glk_python_place *ret_place);
void glk_python_drop(void *code);

#endif
