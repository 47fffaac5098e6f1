/* SPDX-License-Identifier: MIT */
/* The methods of all tables of methods.def, for the server. */
#ifndef ORDEAL_AGENTS_METHOD_TABLE_H
#define ORDEAL_AGENTS_METHOD_TABLE_H

#include "agents/method.h"

const struct method *method_find(const char *name); /* NULL when there is none */
/* Names, types, required ones; STATUS_INVALID names the first that is wrong. */
MUST_CHECK enum status method_check(const struct method *method, const json_t *params,
                                    struct error *err);

#endif
