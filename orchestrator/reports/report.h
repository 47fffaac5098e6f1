/* SPDX-License-Identifier: MIT */
/*
 * The verdict on a recorded run, for machines (result.json, docs/result.schema.json) and for
 * people (summary.txt). A report reads nothing but the run directory, so it can be repeated at any
 * time and gives the same answer.
 *
 *     if (report_run("runs/20261130T101500-primary-kill", false, &exit_code, &err) != STATUS_OK)
 * ...
 */
#ifndef ORDEAL_ORCHESTRATOR_REPORTS_REPORT_H
#define ORDEAL_ORCHESTRATOR_REPORTS_REPORT_H

#include "orchestrator/checks/evidence.h"

enum run_verdict {
    RUN_PASS,
    RUN_FAIL,
    RUN_INCONCLUSIVE,
    RUN_ABORTED,
    RUN_REFUSED,
    RUN_NOT_RECOVERED
};

struct report_check {
    const struct check *check;
    bool counts; /* named by the scenario; others are run for what they measure */
    struct check_result result;
};

struct report {
    struct record *record;
    struct arena *arena;
    enum run_verdict verdict;
    int exit_code;
    struct reasons reasons; /* why it is not a pass, beyond the checks themselves */
    struct evidence_faults faults;
    size_t count;
    struct report_check *checks; /* in order of checks.def */
};

/*
 * Load the record, run its scenario's checks (all of them, with defaults, when it names none),
 * write result.json and summary.txt into the folder and print one of them to stdout.
 */
MUST_CHECK enum status report_run(const char *folder, bool json, int *ret_exit_code,
                                  struct error *err);

/* The parts, for tests. */
MUST_CHECK enum status report_new(struct arena *arena, const char *folder,
                                  struct report **ret_report, struct error *err);
void report_free(struct report *report);
const char *run_verdict_name(enum run_verdict verdict); /* "not-recovered" ... */
json_t *report_json(const struct report *report);
/* A member of the details of a check ("ledger" of durability), or NULL. */
const json_t *report_detail(const struct report *report, const char *check, const char *member);
/* `colour`: for a terminal. */
void report_text(const struct report *report, bool colour, struct buffer *text);

/* The last event `residue` of a node, or NULL: nobody looked. */
const json_t *report_residue(const struct report *report, const char *node);
json_t *report_residue_json(const struct report *report);
/* What is left, node by node, each with the command that removes it; nothing when all is clean. */
void report_residue_text(const struct report *report, struct buffer *text);
/* Decides verdict, exit code and reasons; the checks must have been judged. */
void report_decide(struct report *report);

#endif
