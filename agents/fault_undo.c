/* SPDX-License-Identifier: MIT */
/*
 * `ordeald --undo`: the guardian's helper. It gets a record on stdin, undoes the fault and looks
 * whether it is gone. The last line on stdout is the effect that was observed, or what went wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "agents/fault_record.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/kill_point.h"
#include "lib/log.h"
#include "lib/owned.h"

enum { UNDO_MS = 55000, GONE_MS = 10000, INPUT_MAX = 1024 * 1024, CHUNK = 4096 };

static enum status read_input(struct buffer *input, struct error *err)
{
    char chunk[CHUNK];
    ssize_t count;

    while ((count = read(STDIN_FILENO, chunk, sizeof chunk)) != 0) {
        if (count < 0 && errno != EINTR)
            return error_system(err, "reading the record");
        if (count > 0)
            buffer_append(input, chunk, (size_t) count);
    }
    return input->overflow ? error_set(err, STATUS_INVALID, "a record that is too long")
                           : STATUS_OK;
}

/* What cannot be undone cannot be observed gone either. */
static bool must_be_gone(const struct fault *fault)
{
    return fault->holds || fault->reversible;
}

static enum status undo(const struct fault_record *record, struct observation *ret_observation,
                        struct error *err)
{
    enum effect wanted = must_be_gone(record->fault) ? EFFECT_ABSENT : EFFECT_UNKNOWN;

    KILL_POINT("before-undo");
    enum status status = record->fault->undo(&record->context, record->record, err);

    if (status != STATUS_OK)
        return error_context(err, "undoing %s", record->fault->name);
    int64_t deadline_ns = must_be_gone(record->fault) ? deadline_in_ms(GONE_MS) : clock_boot_ns();
    status = fault_observe_until(record, wanted, deadline_ns, NULL, ret_observation, err);
    if (status != STATUS_OK || !must_be_gone(record->fault) ||
        ret_observation->effect == EFFECT_ABSENT)
        return status;
    json_decref(ret_observation->numbers);
    return error_set(err, STATUS_FAILED, "%s is undone but still %s: %s", record->fault->name,
                     effect_name(ret_observation->effect), ret_observation->text);
}

static enum status undo_input(struct observation *ret_observation, struct error *err)
{
    OWNED_BUFFER struct buffer input = BUFFER(INPUT_MAX);
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *json = NULL;
    struct fault_record record;
    enum status status = read_input(&input, err);

    if (status == STATUS_OK)
        status = json_parse_text(buffer_text(&input), input.length, &json, err);
    if (status == STATUS_OK)
        status = fault_record_read(arena, json, deadline_in_ms(UNDO_MS), &record, err);
    return status == STATUS_OK ? undo(&record, ret_observation, err) : status;
}

int fault_undo_main(void)
{
    struct observation observation = {0};
    struct error err = {0};

    log_init("ordeald undo", LOG_INFO);
    if (undo_input(&observation, &err) != STATUS_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    printf("%s\n", effect_name(observation.effect));
    json_decref(observation.numbers);
    return 0;
}
