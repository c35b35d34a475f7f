/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_LATE_H
#define GLK_BASE_LATE_H

/*
 * Libraries that only a few questions need, as what lies on disk of a kernel module. They are
 * loaded when one is asked and stay; a program that asks none does not bear them, nor what they
 * bring along.
 */
#include <stddef.h>

/*
 * Finds functions of a library by their names: the structure at ret_functions is made of pointers
 * to them in this order. Of several libraries, with a space between two, the first one that is there is taken.
 * 0; -ENOENT with a record that names all of them, and nothing is written.
 */
int glk_late_load(const char *libraries, const char *const *names, size_t count,
	void *ret_functions);

/* For tests: no library is found from now on, or again. */
void glk_late_hide(int hide);

#endif
