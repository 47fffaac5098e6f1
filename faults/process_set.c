/* SPDX-License-Identifier: MIT */
#include "faults/process_set.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults/needs.h"
#include "lib/json.h"
#include "lib/owned.h"

bool process_word_is_many(const char *word)
{
    return strcmp(word, "backend") == 0 || strcmp(word, "walsender") == 0;
}

bool process_word_has_postmaster(const char *word)
{
    return strcmp(word, "postmaster") == 0 || strcmp(word, PROCESS_EVERYTHING) == 0;
}

static enum status is_meant(const char *word, enum pg_class class, bool *ret_meant,
                            struct error *err)
{
    enum pg_class wanted = PG_OTHER;
    enum status status = STATUS_OK;

    if (strcmp(word, PROCESS_EVERYTHING) == 0) {
        *ret_meant = true;
    } else if (strcmp(word, PROCESS_CHILDREN) == 0) {
        *ret_meant = class != PG_POSTMASTER;
    } else {
        status = pg_class_from_name(word, &wanted, err);
        *ret_meant = class == wanted;
    }
    return status;
}

/* The postmaster first, then by age; pids decide between those of one tick. */
static int by_age(const void *left, const void *right)
{
    const struct pg_process *a = left, *b = right;

    if ((a->class == PG_POSTMASTER) != (b->class == PG_POSTMASTER))
        return a->class == PG_POSTMASTER ? -1 : 1;
    if (a->id.start_ticks != b->id.start_ticks)
        return a->id.start_ticks < b->id.start_ticks ? -1 : 1;
    return (a->id.pid > b->id.pid) - (a->id.pid < b->id.pid);
}

/* splitmix64 (Steele, Lea, Flood 2014): enough to draw with, the same on every host. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Bring `count` members, drawn without repetition, to the front (Fisher and Yates). */
static void draw(struct pg_processes *set, size_t count, int64_t seed)
{
    uint64_t state = (uint64_t) seed;

    for (size_t i = 0; i < count && i < set->count; i++) {
        size_t j = i + (size_t) (next_random(&state) % (set->count - i));
        struct pg_process taken = set->items[j];
        set->items[j] = set->items[i];
        set->items[i] = taken;
    }
}

/* A fault that is to hit some clients would be seen by nobody if it hit who only looks. */
static void spare(struct pg_processes *set, pid_t pid)
{
    size_t kept = 0;

    for (size_t i = 0; i < set->count; i++)
        if (set->items[i].id.pid != pid)
            set->items[kept++] = set->items[i];
    set->count = kept;
}

static enum status complain_of_none(const char *data_directory, const char *word, struct error *err)
{
    error_set(err, STATUS_NOT_FOUND, "no process \"%s\" of the server in %s runs", word,
              data_directory);
    error_hint(err, "Choose a node and a moment at which it runs: a walreceiver runs on a standby, "
                    "an archiver with archive_mode on, a startup process during recovery.");
    return STATUS_NOT_FOUND;
}

enum status process_choose(struct arena *arena, const char *data_directory,
                           const struct process_choice *choice, struct pg_processes *ret_chosen,
                           struct error *err)
{
    struct pg_processes all = {0}, chosen = {0};
    enum status status = pg_processes_list(arena, data_directory, &all, err);

    if (status != STATUS_OK)
        return status;
    chosen.items = arena_array(arena, all.count, sizeof *chosen.items);
    for (size_t i = 0; i < all.count; i++) {
        bool meant = false;
        status = is_meant(choice->process, all.items[i].class, &meant, err);
        if (status != STATUS_OK)
            return status;
        if (meant)
            chosen.items[chosen.count++] = all.items[i];
    }
    if (chosen.count == 0)
        return complain_of_none(data_directory, choice->process, err);
    qsort(chosen.items, chosen.count, sizeof *chosen.items, by_age);
    if (choice->count > 0 && process_word_is_many(choice->process) &&
        (size_t) choice->count < chosen.count) {
        spare(&chosen, choice->spared);
        if (choice->drawn)
            draw(&chosen, (size_t) choice->count, choice->seed);
        chosen.count = (size_t) choice->count;
    }
    *ret_chosen = chosen;
    return STATUS_OK;
}

json_t *process_set_to_json(const struct pg_processes *set)
{
    json_t *list = json_array();

    for (size_t i = 0; i < set->count; i++)
        json_array_append_new(list,
                              json_pack("{s:i, s:I, s:s}", "pid", (int) set->items[i].id.pid,
                                        "start_ticks", (json_int_t) set->items[i].id.start_ticks,
                                        "class", pg_class_name(set->items[i].class)));
    return list;
}

enum status process_set_from_json(struct arena *arena, const json_t *json,
                                  struct pg_processes *ret_set, struct error *err)
{
    struct pg_processes set = {0};

    if (!json_is_array(json))
        return error_set(err, STATUS_INVALID, "record: no list of processes");
    set.items = arena_array(arena, json_array_size(json), sizeof *set.items);
    for (size_t i = 0; i < json_array_size(json); i++) {
        struct pg_process *process = &set.items[set.count++];
        json_int_t ticks = 0;
        const char *class = NULL;
        int pid = 0;
        enum status status =
            json_read(json_array_get(json, i), "record, process", err, "{s:i, s:I, s:s !}", "pid",
                      &pid, "start_ticks", &ticks, "class", &class);
        if (status == STATUS_OK)
            status = pg_class_from_name(class, &process->class, err);
        if (status != STATUS_OK)
            return status;
        process->id = (struct process_id){.pid = pid, .start_ticks = (uint64_t) ticks};
        process->title = "";
    }
    *ret_set = set;
    return STATUS_OK;
}

bool process_set_has(const struct pg_processes *set, struct process_id id)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->items[i].id.pid == id.pid && set->items[i].id.start_ticks == id.start_ticks)
            return true;
    return false;
}

pid_t process_parent(struct process_id id)
{
    char path[48], text[1024] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int) id.pid);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return 0;
    /* proc(5): "pid (name) state parent", and the name may hold anything */
    const char *after = strrchr(text, ')');
    if (after == NULL || strlen(after) < 5)
        return 0;
    pid_t parent = (pid_t) strtol(after + 4, NULL, 10);
    /* looked at after reading, so that the parent is that very process's */
    return process_alive(id) ? parent : 0;
}

json_t *process_record(const struct fault_context *context, const char *process, json_t *processes)
{
    return json_pack("{s:s, s:s, s:s, s:s?, s:i, s:o}", "process", process, "data_directory",
                     context->data_directory, "node", context->node, "address",
                     context_address(context, context->node), "port", context->database_port,
                     "processes", processes);
}
