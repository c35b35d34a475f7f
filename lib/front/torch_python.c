/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * PyTorch lets the global lock go before it computes, so a thread that asks for memory has to take it
 * again, as PyTorch does for its own allocator's stacks.
 *
 * With several interpreters a thread may be in one while PyGILState_Ensure would attach it to another,
 * and before Python 3.12 wait for a lock that it holds itself. A new interpreter is the first in Python's
 * list, so the main one is first only where it is the only one; a thread that is in another one keeps
 * that in the list, so the answer holds for as long as it matters.
 */
#include "front/torch_python.h"

#include "base/atomic.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct object; /* of Python */
struct thread;
struct interpreter;

static struct {
	int (*is_initialized)(void);
	int (*is_finalizing)(void); /* NULL where it is not exported */
	struct interpreter *(*main)(void);
	struct interpreter *(*head)(void);
	struct thread *(*this_thread)(void);
	struct interpreter *(*interpreter_of)(struct thread *);
	int (*ensure)(void);
	void (*release)(int);
	struct thread *(*save)(void);
	void (*restore)(struct thread *);
	struct thread *(*current)(void);
	struct object *(*frame)(struct thread *);
	struct object *(*code)(struct object *);
	struct object *(*back)(struct object *);
	int (*line)(struct object *);
	int (*lasti)(struct object *); /* from 3.11 on */
	int (*line_of)(struct object *, int);
	struct object *(*get)(struct object *, const char *);
	struct object *(*encode)(struct object *, const char *, const char *);
	int (*bytes)(struct object *, char **, ptrdiff_t *);
	void (*fetch)(struct object **, struct object **, struct object **);
	void (*give_back)(struct object *, struct object *, struct object *);
	void (*clear)(void);
	void (*unref)(struct object *);
} py;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static glk_atomic(int) is_found;

static bool look(void *function, const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol;
}

static bool look_all(void)
{
	if (!look(&py.is_finalizing, "Py_IsFinalizing"))
		look(&py.is_finalizing, "_Py_IsFinalizing");
	look(&py.lasti, "PyFrame_GetLasti");
	return look(&py.is_initialized, "Py_IsInitialized") &&
		look(&py.main, "PyInterpreterState_Main") &&
		look(&py.head, "PyInterpreterState_Head") &&
		look(&py.this_thread, "PyGILState_GetThisThreadState") &&
		look(&py.interpreter_of, "PyThreadState_GetInterpreter") &&
		look(&py.ensure, "PyGILState_Ensure") &&
		look(&py.release, "PyGILState_Release") &&
		look(&py.save, "PyEval_SaveThread") &&
		look(&py.restore, "PyEval_RestoreThread") &&
		look(&py.current, "PyThreadState_Get") &&
		look(&py.frame, "PyThreadState_GetFrame") &&
		look(&py.code, "PyFrame_GetCode") && look(&py.back, "PyFrame_GetBack") &&
		look(&py.line, "PyFrame_GetLineNumber") &&
		look(&py.line_of, "PyCode_Addr2Line") &&
		look(&py.get, "PyObject_GetAttrString") &&
		look(&py.encode, "PyUnicode_AsEncodedString") &&
		look(&py.bytes, "PyBytes_AsStringAndSize") &&
		look(&py.fetch, "PyErr_Fetch") && look(&py.give_back, "PyErr_Restore") &&
		look(&py.clear, "PyErr_Clear") && look(&py.unref, "Py_DecRef");
}

/* Whether this thread is known, and in the only interpreter that there is. */
static bool is_ours(void)
{
	struct interpreter *main;
	struct thread *thread;

	if (!py.is_initialized() || (py.is_finalizing && py.is_finalizing()))
		return false;
	main = py.main();
	thread = py.this_thread();
	return thread && main && py.head() == main && py.interpreter_of(thread) == main;
}

int glk_python_find(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (!glk_load_relaxed(&is_found) && !look_all())
		err = -ENOENT;
	else
		/* pairs with: the acquire in glk_python_enter */
		glk_store_release(&is_found, 1);
	pthread_mutex_unlock(&lock);
	if (!err && !is_ours())
		err = -EOPNOTSUPP;
	return err;
}

bool glk_python_enter(int *ret_state)
{
	/* pairs with: the release in glk_python_find */
	if (!glk_load_acquire(&is_found) || !is_ours())
		return false;
	*ret_state = py.ensure();
	return true;
}

void glk_python_leave(int state)
{
	py.release(state);
}

void *glk_python_yield(void)
{
	return py.save();
}

void glk_python_return(void *thread)
{
	py.restore(thread);
}

size_t glk_python_walk(struct glk_python_frame *ret_frames, size_t room)
{
	struct object *frame = py.frame(py.current()), *back;
	size_t count = 0;

	while (frame && count < room) {
		ret_frames[count].code = py.code(frame);
		ret_frames[count].at = py.lasti ? py.lasti(frame) : py.line(frame);
		count++;
		back = py.back(frame);
		py.unref(frame);
		frame = back;
	}
	if (frame)
		py.unref(frame);
	return count;
}

/* A text of a code object; names of files keep the bytes that they have on the disk. */
static bool read_text(struct object *code, const char *name, char *ret_text, size_t room)
{
	struct object *text = py.get(code, name), *bytes = NULL;
	ptrdiff_t length = 0;
	char *at = NULL;
	bool found;

	if (text)
		bytes = py.encode(text, "utf-8", "surrogateescape");
	found = bytes && !py.bytes(bytes, &at, &length);
	if (found)
		snprintf(ret_text, room, "%.*s", (int)length, at);
	if (bytes)
		py.unref(bytes);
	if (text)
		py.unref(text);
	if (!found)
		py.clear();
	return found;
}

void glk_python_describe(
	const struct glk_python_frame *frame, struct glk_python_place *ret_place)
{
	struct object *type, *value, *trace;

	py.fetch(&type, &value, &trace);
	ret_place->line = py.lasti ? py.line_of(frame->code, frame->at) : frame->at;
	if (ret_place->line < 0)
		ret_place->line = 0;
	if (!read_text(
		    frame->code, "co_filename", ret_place->file, sizeof(ret_place->file)))
		strcpy(ret_place->file, "?");
	if (!read_text(frame->code, "co_qualname", ret_place->name,
		    sizeof(ret_place->name)) &&
		!read_text(
			frame->code, "co_name", ret_place->name, sizeof(ret_place->name)))
		strcpy(ret_place->name, "?");
	py.give_back(type, value, trace);
}

void glk_python_drop(void *code)
{
	py.unref(code);
}
