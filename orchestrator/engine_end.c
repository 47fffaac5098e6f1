/* SPDX-License-Identifier: MIT */
/*
 * The end of a run: everything put back, the last event, the report. The same for a run that went
 * its way and for one whose orchestrator died (engine_resume.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/command.h"
#include "orchestrator/engine_state.h"
#include "orchestrator/reports/report.h"

enum { CLOSE_MS = 5000 };

/* ---- putting back ---- */

/* An end before the end promises that everything is as it was: a cluster that is not back is not.
 */
static void recover(struct engine *engine)
{
    struct error error = {0};

    if (recovery_run(engine, &error) == STATUS_OK)
        return;
    journal_note(engine->journal, "recovery: %s", error.message);
    if (strcmp(engine->outcome, "aborted") == 0)
        engine->clean = false;
}

/* From here on nothing stops before every node is as it was. */
void engine_wind_up(struct engine *engine)
{
    struct error error = {0};

    engine->winding_up = true;
    cluster_shield(engine->cluster);
    recover(engine);
    if (engine->ha_begun)
        engine->ha.driver->end(&engine->ha);
    samples_end(engine);
    engine_phase(engine, "checks");
    engine_leavable(engine, true);
    if (!engine_hurried(engine)) {
        collect_run(engine);
        samples_fetch(engine);
    }
    engine_leavable(engine, false);
    collect_integrity(engine);
    if (load_drop(engine, &error) != STATUS_OK) {
        journal_note(engine->journal, "dropping the workload's tables: %s", error.message);
        engine->clean = false;
    }
    residue_after(engine);
}

/* ---- closing ---- */

static void close_sessions(struct engine *engine)
{
    struct cluster_request requests[64];
    size_t count = 0;

    for (size_t i = 0; i < engine->topology->node_count && count < 64; i++) {
        const char *name = engine->topology->nodes[i].name;

        if (cluster_connected(engine->cluster, name))
            requests[count++] = (struct cluster_request){
                .node = name,
                .method = "session.close",
                .params = json_pack("{s:s, s:b}", "run", engine->run, "purge", true),
                .timeout_ms = CLOSE_MS};
    }
    cluster_call_all(engine->cluster, requests, count);
    for (size_t i = 0; i < count; i++) {
        if (requests[i].status != STATUS_OK)
            journal_note(engine->journal, "closing the session of %s: %s", requests[i].node,
                         requests[i].error.message);
        json_decref(requests[i].result);
    }
}

static void journal_end(struct engine *engine)
{
    json_t *end = json_pack("{s:s, s:b, s:b}", "outcome", engine->outcome, "clean", engine->clean,
                            "changed", engine->changed);

    if (engine->reason.message[0] != '\0')
        json_object_set_new(end, "reason", json_string(engine->reason.message));
    if (engine->reason.hint[0] != '\0')
        json_object_set_new(end, "hint", json_string(engine->reason.hint));
    journal_event(engine->journal, "run.end", end);
}

/* The last event; then nobody is connected any more. */
void engine_close(struct engine *engine)
{
    struct error error = {0};

    if (engine->cluster != NULL) {
        cluster_shield(engine->cluster);
        close_sessions(engine);
    }
    if (engine->changed && engine->clean && journal_failure(engine->journal, &error) != STATUS_OK)
        engine_outcome(engine, "aborted", &error);
    journal_end(engine);
    journal_leave_loop(engine->journal);
    cluster_free(engine->cluster);
    engine->cluster = NULL;
}

/* ---- the report ---- */

static int code_of(const struct engine *engine)
{
    if (!engine->clean)
        return EXIT_NOT_RECOVERED;
    if (strcmp(engine->outcome, "refused") == 0)
        return EXIT_REFUSED;
    return strcmp(engine->outcome, "aborted") == 0 ? EXIT_ABORTED : EXIT_PASS;
}

static int worse(int left, int right)
{
    return left == EXIT_NOT_RECOVERED || right == EXIT_NOT_RECOVERED ? EXIT_NOT_RECOVERED : right;
}

/* A part of a profile or of repeats is judged without being printed. */
static int silence_stdout(void)
{
    OWNED_FD int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    fflush(stdout);
    int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (kept >= 0 && nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0)
        return kept;
    if (kept >= 0)
        close(kept);
    return -1;
}

static void restore_stdout(int kept)
{
    if (kept < 0)
        return;
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
}

int engine_report(const struct engine *engine)
{
    struct error error = {0};
    int exit_code = code_of(engine);

    if (engine->reason.message[0] != '\0') {
        fprintf(stderr, "ordeal: %s: %s\n", engine->outcome, engine->reason.message);
        if (engine->reason.hint[0] != '\0')
            fprintf(stderr, "  %s\n", engine->reason.hint);
    }
    int stdout_fd = engine->options->quiet ? silence_stdout() : -1;
    enum status status =
        report_run(engine->options->folder, engine->options->json, &exit_code, &error);
    restore_stdout(stdout_fd);
    if (status != STATUS_OK) {
        command_fail(&error);
        return exit_code == EXIT_PASS ? EXIT_INTERNAL : exit_code;
    }
    return worse(code_of(engine), exit_code);
}
