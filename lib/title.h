/* SPDX-License-Identifier: MIT */
/*
 * The name under which ps shows this process.
 *
 * A forked child that becomes something of its own (the lab's supervisor, a node's init) would
 * otherwise bear the command line of the command that began it.
 */
#ifndef ORDEAL_LIB_TITLE_H
#define ORDEAL_LIB_TITLE_H

#include "lib/error.h"

/*
 * Writes over the arguments that the process was started with, so nothing may use them any more. A
 * title that is longer than they were is cut off.
 */
void title_set(const char *format, ...) PRINTF_LIKE(1, 2);

#endif
