/* SPDX-License-Identifier: MIT */
/*
 * Can this host hold that lab? Asked before anything is changed.
 */
#ifndef ORDEAL_TOPOLOGIES_LAB_PREFLIGHT_H
#define ORDEAL_TOPOLOGIES_LAB_PREFLIGHT_H

#include "topologies/lab/lab.h"

/* STATUS_REFUSED, STATUS_UNSUPPORTED or STATUS_EXISTS with a remedy. */
MUST_CHECK enum status lab_preflight(const struct lab_spec *spec,
                                     const struct lab_programs *programs, struct error *err);
/* Parts of it that a test can ask with figures of its own. */
MUST_CHECK enum status preflight_memory(const struct lab_spec *spec, int64_t available_bytes,
                                        struct error *err);
MUST_CHECK enum status preflight_disk(const struct lab_spec *spec, int64_t free_bytes,
                                      struct error *err);

#endif
