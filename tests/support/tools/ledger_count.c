/* SPDX-License-Identifier: MIT */
/*
 * Counts in a run's ledgers by itself, with nothing of the checks, so that a calibration can hold
 * their numbers against numbers of another origin. It also says what a calibration plants.
 *
 *   ledger_count losses RUN NODE TIMELINE FORK   acknowledged outcomes against the present set of
 *                                                NODE and the position at which TIMELINE ended
 *   ledger_count classes RUN NODE                outcomes of each class, and how many of them NODE
 *                                                holds; gaps between the tokens of a client
 *   ledger_count writers RUN OLD NEW             rows that timeline OLD took when NEW had taken one
 *   ledger_count aborted LEDGER                  client and token of a direct probe's last
 *                                                aborted outcome
 *   ledger_count row CLIENT SEQ                  the values of one whole row of that token
 *
 * Where an acknowledged commit of TIMELINE lies: above (written at or behind the fork), below (the
 * same client read a position at or before the fork after it), between (neither is certain).
 */
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ledger.h"
#include "lib/owned.h"
#include "lib/pg.h"
#include "lib/units.h"

enum { CLIENTS_MAX = 256, FAILED = 1, USAGE = 4 };

struct client {
    uint32_t number;
    enum ledger_level level;
    uint64_t next_lsn; /* the position that it read next; 0: none */
    uint32_t next_timeline;
};

struct clients {
    size_t count;
    struct client list[CLIENTS_MAX];
};

struct place {
    uint64_t acked, lost;
};

struct losses {
    const struct present *present;
    uint32_t timeline;
    uint64_t fork;
    uint64_t weaker; /* acknowledged by a session below synchronous_commit = on */
    struct place above, between, below, later, unplaced;
};

static int usage(void)
{
    fputs("usage: ledger_count losses RUN NODE TIMELINE FORK | classes RUN NODE |"
          " writers RUN OLD NEW | aborted LEDGER | row CLIENT SEQ\n",
          stderr);
    return USAGE;
}

static int failed(const struct error *error)
{
    fprintf(stderr, "ledger_count: %s\n", error->message);
    return FAILED;
}

static struct client *client_of(struct clients *clients, uint32_t number)
{
    for (size_t i = 0; i < clients->count; i++)
        if (clients->list[i].number == number)
            return &clients->list[i];
    if (clients->count == CLIENTS_MAX)
        abort(); /* a calibration has a few dozen */
    clients->list[clients->count] = (struct client){.number = number};
    return &clients->list[clients->count++];
}

/* ---- losses ---- */

static struct place *place_of(struct losses *losses, const struct ledger_record *outcome,
                              const struct client *client)
{
    if (outcome->timeline > losses->timeline)
        return &losses->later;
    if (outcome->timeline != losses->timeline || outcome->lsn == 0)
        return &losses->unplaced;
    if (outcome->lsn >= losses->fork)
        return &losses->above;
    bool bounded = client->next_lsn != 0 && client->next_timeline == outcome->timeline;
    return bounded && client->next_lsn <= losses->fork ? &losses->below : &losses->between;
}

/* From the end, so that a client's next position is known before the outcome that it bounds. */
static void count_places(struct losses *losses, const struct ledger *ledger)
{
    struct clients clients = {0};

    for (size_t i = ledger->count; i-- > 0;) {
        const struct ledger_record *record = &ledger->records[i];

        if (record->kind != LEDGER_OUTCOME)
            continue;
        struct client *client = client_of(&clients, record->client);
        if (record->class == LEDGER_ACKED) {
            struct place *place = place_of(losses, record, client);
            place->acked++;
            place->lost += present_has(losses->present, record->client, record->seq) ? 0 : 1;
        }
        if (record->lsn != 0) {
            client->next_lsn = record->lsn;
            client->next_timeline = record->timeline;
        }
    }
}

static void count_weaker(struct losses *losses, const struct ledger *ledger)
{
    struct clients clients = {0};

    for (size_t i = 0; i < ledger->count; i++) {
        const struct ledger_record *record = &ledger->records[i];

        if (record->kind == LEDGER_SESSION)
            client_of(&clients, record->client)->level = (enum ledger_level) record->class;
        else if (record->kind == LEDGER_OUTCOME && record->class == LEDGER_ACKED)
            losses->weaker += client_of(&clients, record->client)->level < LEDGER_ON ? 1 : 0;
    }
}

/* Give each ledger of a run to `look`. */
static enum status each_ledger(const char *run,
                               void (*look)(void *argument, const struct ledger *ledger),
                               void *argument, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    enum status status = STATUS_OK;
    glob_t files = {0};

    if (glob(arena_printf(arena, "%s/ledger/*.ledger", run), 0, NULL, &files) != 0)
        status = error_set(err, STATUS_NOT_FOUND, "%s has no ledger", run);
    for (size_t i = 0; i < files.gl_pathc && status == STATUS_OK; i++) {
        struct ledger ledger;

        status = ledger_open(files.gl_pathv[i], &ledger, err);
        if (status != STATUS_OK)
            break;
        look(argument, &ledger);
        ledger_close(&ledger);
    }
    globfree(&files);
    return status;
}

static void look_for_losses(void *argument, const struct ledger *ledger)
{
    count_places(argument, ledger);
    count_weaker(argument, ledger);
}

static void print_losses(const struct losses *losses)
{
    const struct {
        const char *name;
        struct place place;
    } places[] = {{"above", losses->above},
                  {"between", losses->between},
                  {"below", losses->below},
                  {"later", losses->later},
                  {"unplaced", losses->unplaced}};
    struct place all = {0};

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        printf("%s=%" PRIu64 " %s_lost=%" PRIu64 " ", places[i].name, places[i].place.acked,
               places[i].name, places[i].place.lost);
        all.acked += places[i].place.acked;
        all.lost += places[i].place.lost;
    }
    printf("acked=%" PRIu64 " lost=%" PRIu64 " weaker=%" PRIu64 "\n", all.acked, all.lost,
           losses->weaker);
}

static int say_losses(char **arguments)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct present present;
    struct losses losses = {.present = &present, .fork = pg_lsn_parse(arguments[3])};
    struct error error = {0};
    int64_t timeline = 0;
    const char *path =
        arena_printf(arena, "%s/ledger/present-%s.tokens", arguments[0], arguments[1]);
    enum status status = units_integer(arguments[2], &timeline, &error);

    losses.timeline = (uint32_t) timeline;
    if (status == STATUS_OK && losses.fork == 0)
        status = error_set(&error, STATUS_INVALID, "%s is no position", arguments[3]);
    if (status == STATUS_OK)
        status = present_load(arena, path, &present, &error);
    if (status == STATUS_OK)
        status = each_ledger(arguments[0], look_for_losses, &losses, &error);
    if (status != STATUS_OK)
        return failed(&error);
    print_losses(&losses);
    return 0;
}

/* ---- classes ---- */

enum { SEQ_MAX = 65536, KINDS = LEDGER_UNSENT + 2 }; /* the last one: an intent and no outcome */

struct classes {
    const struct present *present;
    uint64_t count[KINDS], held[KINDS];
    uint64_t told;     /* in doubt, and the server said why it ended in the wait (57P01) */
    uint64_t panicked; /* in doubt after an error of the system (58...) */
    uint64_t gaps, twice;
};

/* What became of the tokens of one client in one ledger: 0 nothing, else kind + 1. */
static void note_outcome(struct classes *classes, unsigned char *tokens,
                         const struct ledger_record *record)
{
    bool in_doubt = record->kind == LEDGER_OUTCOME && record->class == LEDGER_IN_DOUBT;

    if (record->seq == 0 || record->seq >= SEQ_MAX)
        abort(); /* a calibration is short */
    if (record->kind == LEDGER_OUTCOME)
        classes->twice += tokens[record->seq] != 0 && tokens[record->seq] != KINDS ? 1 : 0;
    tokens[record->seq] =
        (unsigned char) (record->kind == LEDGER_INTENT ? KINDS : record->class + 1);
    classes->told += in_doubt && strcmp(record->sqlstate, "57P01") == 0 ? 1 : 0;
    classes->panicked += in_doubt && strncmp(record->sqlstate, "58", 2) == 0 ? 1 : 0;
}

static void count_client(struct classes *classes, const struct ledger *ledger, uint32_t client,
                         unsigned char *tokens)
{
    uint64_t last = 0;

    memset(tokens, 0, SEQ_MAX);
    for (size_t i = 0; i < ledger->count; i++) {
        const struct ledger_record *record = &ledger->records[i];

        if (record->client != client ||
            (record->kind != LEDGER_OUTCOME && record->kind != LEDGER_INTENT))
            continue;
        note_outcome(classes, tokens, record);
        last = record->seq > last ? record->seq : last;
    }
    for (uint64_t seq = 1; seq <= last; seq++) {
        if (tokens[seq] == 0) {
            classes->gaps++;
            continue;
        }
        classes->count[tokens[seq] - 1]++;
        classes->held[tokens[seq] - 1] += present_has(classes->present, client, seq) ? 1 : 0;
    }
}

static void look_for_classes(void *argument, const struct ledger *ledger)
{
    static unsigned char tokens[SEQ_MAX];
    struct clients clients = {0};

    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->records[i].kind == LEDGER_RESERVE)
            client_of(&clients, ledger->records[i].client);
    for (size_t i = 0; i < clients.count; i++)
        count_client(argument, ledger, clients.list[i].number, tokens);
}

static int say_classes(char **arguments)
{
    static const char *const names[KINDS] = {"acked",   "weak",   "in_doubt",
                                             "aborted", "unsent", "unanswered"};
    OWNED_ARENA struct arena *arena = arena_new();
    struct present present;
    struct classes classes = {.present = &present};
    struct error error = {0};
    const char *path =
        arena_printf(arena, "%s/ledger/present-%s.tokens", arguments[0], arguments[1]);
    enum status status = present_load(arena, path, &present, &error);

    if (status == STATUS_OK)
        status = each_ledger(arguments[0], look_for_classes, &classes, &error);
    if (status != STATUS_OK)
        return failed(&error);
    for (size_t i = 0; i < KINDS; i++)
        printf("%s=%" PRIu64 " %s_held=%" PRIu64 " ", names[i], classes.count[i], names[i],
               classes.held[i]);
    printf("told=%" PRIu64 " panicked=%" PRIu64 " gaps=%" PRIu64 " twice=%" PRIu64 "\n",
           classes.told, classes.panicked, classes.gaps, classes.twice);
    return 0;
}

/* ---- two writers ---- */

struct writers {
    uint32_t old, new;
    int64_t begun_ns; /* the new one's first acknowledgement */
    int64_t last_ns;  /* of what the old one was sent after that */
    uint64_t old_rows, new_rows;
};

static bool taken_by(const struct ledger_record *record, uint32_t timeline)
{
    return record->kind == LEDGER_OUTCOME && record->class <= LEDGER_WEAK &&
           record->timeline == timeline;
}

static void look_for_begin(void *argument, const struct ledger *ledger)
{
    struct writers *writers = argument;

    for (size_t i = 0; i < ledger->count; i++)
        if (taken_by(&ledger->records[i], writers->new) &&
            (writers->begun_ns == 0 || ledger->records[i].done_ns < writers->begun_ns))
            writers->begun_ns = ledger->records[i].done_ns;
}

static void look_for_old(void *argument, const struct ledger *ledger)
{
    struct writers *writers = argument;

    for (size_t i = 0; i < ledger->count; i++) {
        const struct ledger_record *record = &ledger->records[i];

        if (!taken_by(record, writers->old) || record->sent_ns < writers->begun_ns)
            continue;
        writers->old_rows++;
        writers->last_ns = record->done_ns > writers->last_ns ? record->done_ns : writers->last_ns;
    }
}

static void look_for_new(void *argument, const struct ledger *ledger)
{
    struct writers *writers = argument;

    for (size_t i = 0; i < ledger->count; i++)
        writers->new_rows += taken_by(&ledger->records[i], writers->new) &&
                                     ledger->records[i].done_ns <= writers->last_ns
                                 ? 1
                                 : 0;
}

static int say_writers(char **arguments)
{
    void (*const looks[])(void *, const struct ledger *) = {look_for_begin, look_for_old,
                                                            look_for_new};
    struct error error = {0};
    int64_t old, new;

    if (units_integer(arguments[1], &old, &error) != STATUS_OK ||
        units_integer(arguments[2], &new, &error) != STATUS_OK)
        return failed(&error);
    struct writers writers = {.old = (uint32_t) old, .new = (uint32_t) new};
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++)
        if (each_ledger(arguments[0], looks[i], &writers, &error) != STATUS_OK)
            return failed(&error);
    if (writers.begun_ns == 0 || writers.old_rows == 0) {
        puts("old_rows=0 new_rows=0 overlap_ms=0");
        return 0;
    }
    printf("old_rows=%" PRIu64 " new_rows=%" PRIu64 " overlap_ms=%.0f\n", writers.old_rows,
           writers.new_rows, (double) (writers.last_ns - writers.begun_ns) / 1e6);
    return 0;
}

/* ---- what is planted ---- */

static int say_aborted(char **arguments)
{
    struct ledger ledger;
    struct error error = {0};
    const struct ledger_record *found = NULL;

    if (ledger_open(arguments[0], &ledger, &error) != STATUS_OK)
        return failed(&error);
    for (size_t i = 0; i < ledger.count; i++)
        if (ledger.records[i].kind == LEDGER_OUTCOME && ledger.records[i].class == LEDGER_ABORTED &&
            ledger.records[i].flags == LEDGER_DIRECT)
            found = &ledger.records[i];
    if (found != NULL)
        printf("%" PRIu32 " %" PRIu64 "\n", found->client, found->seq);
    ledger_close(&ledger);
    return found != NULL ? 0 : FAILED;
}

static int say_row(char **arguments)
{
    static const char payload[] = "planted";
    struct error error = {0};
    int64_t client, seq;

    if (units_integer(arguments[0], &client, &error) != STATUS_OK ||
        units_integer(arguments[1], &seq, &error) != STATUS_OK)
        return failed(&error);
    printf("(%" PRId64 ",%" PRId64 ",1,1,%" PRId64 ",'%s')\n", client, seq,
           ledger_digest((uint64_t) client, (uint64_t) seq, 1, payload, sizeof payload - 1),
           payload);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *word;
        int arguments;
        int (*say)(char **arguments);
    } words[] = {{"losses", 4, say_losses},
                 {"classes", 2, say_classes},
                 {"writers", 3, say_writers},
                 {"aborted", 1, say_aborted},
                 {"row", 2, say_row}};

    for (size_t i = 0; argc > 1 && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(argv[1], words[i].word) == 0 && argc == words[i].arguments + 2)
            return words[i].say(argv + 2);
    return usage();
}
