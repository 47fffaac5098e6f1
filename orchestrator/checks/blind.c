/* SPDX-License-Identifier: MIT */
#include "orchestrator/checks/blind.h"

struct silence {
    struct blind *blind;
    const char *path;
    int64_t from_ns, to_ns, limit_ns;
};

static void note(const struct silence *silence, int64_t begin_ns, int64_t end_ns)
{
    struct blind *blind = silence->blind;
    int64_t length_ns = end_ns - begin_ns;

    if (length_ns <= silence->limit_ns || end_ns < silence->from_ns || begin_ns > silence->to_ns)
        return;
    blind->count++;
    if (length_ns <= blind->longest_ns)
        return;
    blind->longest_ns = length_ns;
    blind->at_ns = begin_ns;
    blind->path = silence->path;
}

static bool has_role(const struct ledger *ledger, unsigned roles)
{
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_SESSION &&
            (roles & (1U << ledger->records[i].flags)) != 0)
            return true;
    return false;
}

static bool is_sign_of_life(const struct ledger_record *record)
{
    return record->kind == LEDGER_BEAT || record->kind == LEDGER_END;
}

static void look_at(const struct silence *silence, const struct ledger *ledger)
{
    int64_t last_ns = 0;

    for (size_t i = 0; i < ledger->count; i++) {
        const struct ledger_record *record = &ledger->records[i];
        if (!is_sign_of_life(record))
            continue;
        note(silence, last_ns == 0 ? silence->from_ns : last_ns, record->done_ns);
        last_ns = record->done_ns;
    }
    note(silence, last_ns == 0 ? silence->from_ns : last_ns, silence->to_ns);
}

struct blind blind_find(const struct record *record, unsigned roles, int64_t from_ns, int64_t to_ns,
                        int64_t limit_ns)
{
    struct blind blind = {0};

    for (size_t i = 0; i < record->ledger_count; i++) {
        const struct record_ledger *file = &record->ledgers[i];
        const struct silence silence = {&blind, file->path, from_ns, to_ns, limit_ns};
        if (has_role(&file->ledger, roles))
            look_at(&silence, &file->ledger);
    }
    return blind;
}

bool blind_span(const struct record *record, int64_t *ret_from_ns, int64_t *ret_to_ns)
{
    int64_t from_ns = INT64_MAX;
    int64_t to_ns = INT64_MIN;

    for (size_t i = 0; i < record->ledger_count; i++) {
        const struct ledger *ledger = &record->ledgers[i].ledger;
        for (size_t j = 0; j < ledger->count; j++) {
            const struct ledger_record *at = &ledger->records[j];
            if (!is_sign_of_life(at))
                continue;
            if (at->done_ns < from_ns)
                from_ns = at->done_ns;
            if (at->done_ns > to_ns)
                to_ns = at->done_ns;
        }
    }
    if (from_ns > to_ns)
        return false;
    *ret_from_ns = from_ns;
    *ret_to_ns = to_ns;
    return true;
}
