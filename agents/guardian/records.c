/* SPDX-License-Identifier: MIT */
#include "agents/guardian/records.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agents/guardian/clients.h"
#include "agents/guardian/member.h"
#include "agents/guardian/undo.h"
#include "agents/guardian/writer.h"
#include "lib/kill_point.h"

enum { HISTORY_MAX = 1024 * 1024 };

static const char *const state_names[] = {
    [RECORD_FREE] = "free",         [RECORD_OPENING] = "opening", [RECORD_ARMED] = "armed",
    [RECORD_INJECTED] = "injected", [RECORD_KILLING] = "undoing", [RECORD_UNDOING] = "undoing",
    [RECORD_FAILED] = "failed",     [RECORD_CLOSING] = "undoing",
};

const char *record_state_name(enum record_state state)
{
    return state_names[state];
}

struct record *records_find(struct guardian *guardian, const char *uid)
{
    for (int i = 0; i < RECORDS_MAX; i++)
        if (guardian->records[i].state != RECORD_FREE && strcmp(guardian->records[i].uid, uid) == 0)
            return &guardian->records[i];
    return NULL;
}

bool record_of_run(const struct record *record, const char *run)
{
    return record->state != RECORD_FREE && (strcmp(run, "*") == 0 || strcmp(record->run, run) == 0);
}

static void record_free(struct record *record)
{
    if (record->injector >= 0)
        close(record->injector);
    free(record->text);
    *record = (struct record){.injector = -1, .helper_output = -1};
}

static enum status check_record(const char *uid, const char *text, struct error *err)
{
    char inside[JOURNAL_UID_SIZE], name[NAME_SIZE];

    if (!journal_uid_valid(uid))
        return error_set(err, STATUS_INVALID, "a uid is 1 to 40 of a-z, 0-9 and '-'");
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char) *c < ' ')
            return error_set(err, STATUS_INVALID, "a record is one line of JSON");
    if (!member_is_object(text) || !member_text(text, "uid", inside, sizeof inside) ||
        strcmp(inside, uid) != 0 || !member_text(text, "run", name, sizeof name) ||
        strchr(name, ' ') != NULL || !member_text(text, "fault", name, sizeof name) ||
        strchr(name, ' ') != NULL)
        return error_set(err, STATUS_INVALID, "a record has members uid, run and fault");
    return STATUS_OK;
}

/* For people and for `undo-all`; "?" when a record of another version does not say it. */
static void read_name(const char *text, const char *member, char name[NAME_SIZE])
{
    if (!member_text(text, member, name, NAME_SIZE) || name[0] == '\0' || strchr(name, ' ') != NULL)
        memcpy(name, "?", sizeof "?");
}

static struct record *free_slot(struct guardian *guardian)
{
    for (int i = 0; i < RECORDS_MAX; i++)
        if (guardian->records[i].state == RECORD_FREE)
            return &guardian->records[i];
    return NULL;
}

/* A free slot, filled, its state still RECORD_FREE; NULL (error is filled) when there is none. */
static struct record *add_record(struct guardian *guardian, const char *uid, const char *text,
                                 size_t length, struct error *err)
{
    struct record *record = free_slot(guardian);

    if (record == NULL) {
        error_set(err, STATUS_REFUSED, "%d faults are open already", RECORDS_MAX);
        return NULL;
    }
    if (asprintf(&record->text, "%.*s", (int) length, text) < 0) {
        record->text = NULL;
        error_system(err, "keeping a record of %zu bytes", length);
        return NULL;
    }
    snprintf(record->uid, sizeof record->uid, "%s", uid);
    read_name(record->text, "run", record->run);
    read_name(record->text, "fault", record->fault);
    if (!member_text(record->text, "excludes", record->excludes, sizeof record->excludes))
        record->excludes[0] = '\0';
    return record;
}

/* --- from before this guardian --------------------------------------------------------------- */

struct replay {
    struct guardian *guardian;
    struct error error;
    bool failed;
};

/*
 * Everything that the checksum confirms is taken over, also what this version does not understand:
 * its helper says so, and the fault stays visible as failed.
 */
static void replay_line(void *argument, const struct journal_line *line)
{
    struct replay *replay = argument;
    struct record *record = records_find(replay->guardian, line->uid);

    if (line->kind == JOURNAL_CLOSED) {
        if (record != NULL)
            record_free(record);
        return;
    }
    if (record != NULL) /* a line that was written again */
        return;
    record =
        add_record(replay->guardian, line->uid, line->record, line->record_length, &replay->error);
    if (record == NULL) {
        replay->failed = true;
        return;
    }
    bool same_boot = strcmp(line->boot_id, replay->guardian->boot_id) == 0;
    record->state = RECORD_INJECTED; /* perhaps; undoing does no harm */
    record->deadline_ns = 0;
    snprintf(record->who, sizeof record->who, "%s", same_boot ? "restart" : "boot");
}

/* A history without anything open is of no use once it is long. */
static enum status empty_journal(struct guardian *guardian, struct error *err)
{
    struct stat info;

    if (fstat(guardian->journal_fd, &info) != 0)
        return error_system(err, "looking at the journal");
    if (info.st_size > HISTORY_MAX && ftruncate(guardian->journal_fd, 0) != 0)
        return error_system(err, "emptying the journal");
    return STATUS_OK;
}

enum status records_replay(struct guardian *guardian, struct error *err)
{
    struct replay replay = {.guardian = guardian};
    struct journal_damage damage;

    for (int i = 0; i < RECORDS_MAX; i++)
        guardian->records[i] = (struct record){.injector = -1, .helper_output = -1};
    enum status status = journal_read(guardian->journal_fd, replay_line, &replay, &damage, err);
    if (status != STATUS_OK)
        return status;
    if (damage.lines > 0)
        say("the journal has %zu damaged lines, which were skipped; the last: %s", damage.lines,
            damage.last.message);
    if (damage.lines == 0 && records_count(guardian) == 0)
        status = empty_journal(guardian, err);
    if (status != STATUS_OK)
        return status;
    if (replay.failed)
        return error_set(err, STATUS_INVALID, "the journal: %s", replay.error.message);
    for (int i = 0; i < RECORDS_MAX; i++)
        if (guardian->records[i].state != RECORD_FREE)
            record_undo(guardian, &guardian->records[i], guardian->records[i].who);
    return STATUS_OK;
}

/* --- life ------------------------------------------------------------------------------------ */

static void set_lease(struct record *record, int64_t lease_ms)
{
    int64_t deadline_ns = deadline_in_ms(lease_ms);

    record->deadline_ns = deadline_ns < record->limit_ns ? deadline_ns : record->limit_ns;
}

/* One at a time, wherever the other came from. */
static enum status check_exclusion(const struct guardian *guardian, const char *text,
                                   struct error *err)
{
    char excludes[NAME_SIZE], fault[NAME_SIZE];

    if (!member_is_there(text, "excludes"))
        return STATUS_OK;
    if (!member_text(text, "excludes", excludes, sizeof excludes))
        return error_set(err, STATUS_INVALID, "a record's excludes is a plain text of at most %d",
                         NAME_SIZE - 1);
    if (excludes[0] == '\0')
        return STATUS_OK;
    read_name(text, "fault", fault);
    for (int i = 0; i < RECORDS_MAX; i++) {
        const struct record *other = &guardian->records[i];
        if (other->state != RECORD_FREE && strcmp(other->excludes, excludes) == 0)
            return error_set(err, STATUS_CONFLICT, "%s excludes %s, which is %s (%s)", fault,
                             other->fault, state_names[other->state], other->uid);
    }
    return STATUS_OK;
}

enum status records_open(struct guardian *guardian, const char *uid, int64_t lease_ms,
                         const char *text, int injector, struct error *err)
{
    struct record *record = NULL;

    if (records_find(guardian, uid) != NULL)
        return error_set(err, STATUS_EXISTS, "fault %s is open already", uid);
    enum status status = check_record(uid, text, err);
    if (status == STATUS_OK)
        status = check_exclusion(guardian, text, err);
    if (status != STATUS_OK)
        return status;
    record = add_record(guardian, uid, text, strlen(text), err);
    if (record == NULL)
        return err == NULL ? STATUS_REFUSED : err->code;
    int64_t hold_ms = member_number(text, "hold_ms", 0);
    record->state = RECORD_OPENING;
    record->injector = injector;
    record->limit_ns = hold_ms > 0 ? deadline_in_ms(hold_ms + GRACE_MS) : INT64_MAX;
    set_lease(record, lease_ms);
    struct journal_line line = {.kind = JOURNAL_OPEN,
                                .deadline_ns = record->deadline_ns,
                                .record = record->text,
                                .record_length = strlen(record->text)};
    memcpy(line.uid, record->uid, sizeof line.uid);
    memcpy(line.boot_id, guardian->boot_id, sizeof line.boot_id);
    writer_append(guardian, &line);
    return STATUS_OK;
}

static void forget_injector(struct record *record)
{
    if (record->injector >= 0)
        close(record->injector);
    record->injector = -1;
}

void record_injected(struct guardian *guardian, struct record *record)
{
    forget_injector(record);
    record->state = RECORD_INJECTED;
    clients_changed(guardian, record);
}

void record_renew(struct guardian *guardian, struct record *record, int64_t lease_ms)
{
    if (record->state != RECORD_ARMED && record->state != RECORD_INJECTED)
        return;
    set_lease(record, lease_ms);
    clients_changed(guardian, record);
}

/* The first reason counts: a later one only tries again what failed. */
static void set_who(struct record *record, const char *who)
{
    if (record->who[0] == '\0')
        snprintf(record->who, sizeof record->who, "%s", who);
}

void record_close(struct guardian *guardian, struct record *record, const char *effect)
{
    struct journal_line line = {.kind = JOURNAL_CLOSED, .at_ns = clock_boot_ns()};

    set_who(record, "agent");
    snprintf(record->effect, sizeof record->effect, "%s", effect);
    record->state = RECORD_CLOSING;
    record->deadline_ns = line.at_ns;
    memcpy(line.uid, record->uid, sizeof line.uid);
    memcpy(line.who, record->who, sizeof line.who);
    memcpy(line.state, record->effect, sizeof line.state);
    KILL_POINT("before-close");
    writer_append(guardian, &line);
}

void record_undo(struct guardian *guardian, struct record *record, const char *who)
{
    if (record->state == RECORD_OPENING) {
        record->abandoned = true; /* when its line is durable */
        set_who(record, who);
        return;
    }
    if (record->state != RECORD_ARMED && record->state != RECORD_INJECTED &&
        record->state != RECORD_FAILED)
        return;
    set_who(record, who);
    if (record->injector < 0) {
        undo_start(guardian, record);
        return;
    }
    /* it may be half-way: nothing is undone before it is dead */
    syscall(SYS_pidfd_send_signal, record->injector, SIGKILL, NULL, 0);
    record->state = RECORD_KILLING;
    clients_changed(guardian, record);
}

void records_undo_all(struct guardian *guardian, const char *who)
{
    for (int i = 0; i < RECORDS_MAX; i++)
        if (guardian->records[i].state != RECORD_FREE)
            record_undo(guardian, &guardian->records[i], who);
}

static void opened(struct guardian *guardian, struct record *record, int errnum)
{
    if (errnum != 0) {
        char reason[REASON_SIZE];
        snprintf(reason, sizeof reason, "writing the journal: %s", strerror(errnum));
        say("fault %s: %s", record->uid, reason);
        clients_opened(guardian, record, reason);
        record_free(record);
        return;
    }
    record->state = RECORD_ARMED;
    bool awaited = clients_opened(guardian, record, NULL);
    if (!awaited || record->abandoned)
        record_undo(guardian, record, "death");
    else
        clients_changed(guardian, record);
}

static void closed(struct guardian *guardian, struct record *record, int errnum)
{
    if (errnum != 0) {
        char reason[REASON_SIZE];
        /* over, but a start after this would not know: it stays visible until the journal says so
         */
        snprintf(reason, sizeof reason, "writing the journal: %s", strerror(errnum));
        forget_injector(record); /* who says that it is over is at work no more */
        undo_failed(guardian, record, reason);
        return;
    }
    struct record gone = *record;
    record->injector = -1; /* `gone` has it */
    record->text = NULL;
    record_free(record);
    clients_closed(guardian, &gone, gone.deadline_ns);
    record_free(&gone);
}

void records_written(struct guardian *guardian, enum journal_kind kind, const char *uid, int errnum)
{
    struct record *record = records_find(guardian, uid);

    if (record == NULL)
        return;
    if (kind == JOURNAL_OPEN && record->state == RECORD_OPENING)
        opened(guardian, record, errnum);
    else if (kind == JOURNAL_CLOSED && record->state == RECORD_CLOSING)
        closed(guardian, record, errnum);
}

bool records_settled(const struct guardian *guardian)
{
    for (int i = 0; i < RECORDS_MAX; i++) {
        const struct record *record = &guardian->records[i];
        if (record->state != RECORD_FREE && record->state != RECORD_FAILED && record->attempts <= 1)
            return false;
    }
    return true;
}

size_t records_count(const struct guardian *guardian)
{
    size_t count = 0;

    for (int i = 0; i < RECORDS_MAX; i++)
        count += guardian->records[i].state != RECORD_FREE;
    return count;
}

/* --- the loop -------------------------------------------------------------------------------- */

static void on_injector_dead(struct guardian *guardian, void *object, short events)
{
    struct record *record = object;

    (void) events;
    close(record->injector);
    record->injector = -1;
    undo_start(guardian, record);
}

void records_watch(struct guardian *guardian, struct watches *watches)
{
    for (int i = 0; i < RECORDS_MAX; i++) {
        struct record *record = &guardian->records[i];
        if (record->state == RECORD_ARMED || record->state == RECORD_INJECTED)
            watch_due(watches, record->deadline_ns);
        else if (record->state == RECORD_KILLING)
            watch(watches, record->injector, POLLIN, on_injector_dead, record);
        else if (record->state == RECORD_UNDOING)
            undo_watch(guardian, record, watches);
        else if (record->state == RECORD_FAILED)
            watch_due(watches, record->retry_ns);
    }
}

void records_tick(struct guardian *guardian, int64_t now_ns)
{
    for (int i = 0; i < RECORDS_MAX; i++) {
        struct record *record = &guardian->records[i];
        bool held = record->state == RECORD_ARMED || record->state == RECORD_INJECTED;
        if (held && now_ns >= record->deadline_ns) {
            say("fault %s (%s): its lease has lapsed; undoing", record->uid, record->fault);
            record_undo(guardian, record, "lease");
        } else if (record->state == RECORD_UNDOING)
            undo_tick(guardian, record, now_ns);
        else if (record->state == RECORD_FAILED && now_ns >= record->retry_ns)
            record_undo(guardian, record, record->who);
    }
}
