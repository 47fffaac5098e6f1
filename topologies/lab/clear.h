/* SPDX-License-Identifier: MIT */
/*
 * Clearing a lab away, whatever is there of it: `lab down`, and `lab up` when it failed.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_CLEAR_H
#define ORDEAL_TOPOLOGIES_LAB_CLEAR_H

#include "topologies/lab/lab.h"

/* The caller holds the lock. */
MUST_CHECK enum status lab_clear(const char *name, struct error *err);

#endif
