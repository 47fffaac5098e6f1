/* SPDX-License-Identifier: MIT */
/*
 * What the checks of data share: the list of problems that they answer with.
 */
#ifndef ORDEAL_AGENTS_POSTGRES_CHECKS_H
#define ORDEAL_AGENTS_POSTGRES_CHECKS_H

#include <jansson.h>

enum { POSTGRES_PROBLEMS_MAX = 50 }; /* the first ones; counts are whole */

/* Add the lines of a program's output that contain `word` ("": all but empty ones). */
void postgres_problem_lines(json_t *problems, const char *text, const char *word);

#endif
