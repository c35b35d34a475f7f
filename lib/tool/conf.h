/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_CONF_H
#define GLK_TOOL_CONF_H

/* The two halves of glakectl conf; the one in conf.c has the help for both. */
#define CONF_SHOW "conf show"

void conf_print_help(void);

/* glakectl conf show; returns the exit status. */
int conf_show(int argc, char **argv);

#endif
