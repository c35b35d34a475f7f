/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_API_SECOND_H
#define GLK_API_SECOND_H

/*
 * Another copy of this library in the process, as where a program was linked with one and loads a
 * package that brings its own. Both work, but neither knows the other's memory: a block of one is
 * none to the other, each keeps what it holds from the other, and each has a budget. Warns of it
 * once, with both versions and files.
 */
void glk_second_warn(void);

#endif
