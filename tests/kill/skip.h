/* SPDX-License-Identifier: MIT */
/* Injections that do nothing and report that all is well: only the observed effect can tell. */
#ifndef ORDEAL_TESTS_KILL_SKIP_H
#define ORDEAL_TESTS_KILL_SKIP_H

#include "lib/error.h"

/* For the hosts of a NULL-terminated list; prints "ready" and returns only when it fails. */
MUST_CHECK enum status skip_injections(const char *folder, char *const *hosts, struct error *err);

#endif
