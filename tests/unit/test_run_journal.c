/* SPDX-License-Identifier: MIT */
/* The journal of a run: durable before somebody is told so, on a full disk, after its writer died.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "orchestrator/journal.h"
#include "tests/support/suite.h"

enum { TURN_MS = 5000 };

static struct loop *loop;
static struct journal *journal;
static char folder[64];
static int told;
static enum status said;

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void setup(void)
{
    struct error err = {0};

    strcpy(folder, "/tmp/ordeal-journal-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(loop_new(&loop, &err), STATUS_OK);
    ck_assert_int_eq(journal_open(folder, NULL, NULL, &journal, &err), STATUS_OK);
    told = 0;
    said = STATUS_OK;
}

static void teardown(void)
{
    journal_close(journal);
    loop_free(loop);
    unlink(path_of("journal.ndjson"));
    unlink(path_of("schedule.txt"));
    rmdir(folder);
}

static void on_synced(void *argument, const struct error *error)
{
    ck_assert_ptr_eq(argument, &told);
    if (error != NULL)
        said = error->code;
    told++;
}

static void turn_until_told(int count)
{
    int64_t deadline_ns = deadline_in_ms(TURN_MS);
    struct error err = {0};

    while (told < count) {
        ck_assert_msg(!deadline_passed(deadline_ns), "told %d of %d", told, count);
        ck_assert_int_eq(loop_turn(loop, 100, &err), STATUS_OK);
    }
}

START_TEST(everybody_who_waits_for_the_disk_is_told)
{
    journal_note(journal, "first");
    journal_sync(journal, loop, on_synced, &told);
    journal_note(journal, "second"); /* while the first is on its way */
    journal_sync(journal, loop, on_synced, &told);
    journal_sync(journal, loop, on_synced, &told);
    ck_assert_int_eq(told, 0); /* from the loop only */
    turn_until_told(3);
    ck_assert_int_eq(said, STATUS_OK);
    journal_sync(journal, loop, on_synced, &told);
    turn_until_told(4);
}
END_TEST

START_TEST(nobody_is_told_after_the_loop_is_left)
{
    struct error err = {0};

    journal_sync(journal, loop, on_synced, &told);
    journal_sync(journal, loop, on_synced, &told);
    journal_leave_loop(journal);
    ck_assert_int_eq(loop_turn(loop, 50, &err), STATUS_OK);
    ck_assert_int_eq(told, 0);
}
END_TEST

/* A limit on the size of files is a full disk: the reserve cannot help, which is not hidden. */
START_TEST(what_is_not_written_is_not_durable)
{
    struct rlimit limit = {.rlim_cur = 300, .rlim_max = RLIM_INFINITY};
    struct error err = {0};

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 10; i++)
        journal_note(journal, "a line of a run that goes on and on");
    limit.rlim_cur = RLIM_INFINITY;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(journal_failure(journal, &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.message, "journal.ndjson"));
    ck_assert_ptr_nonnull(strstr(err.detail, "lines are missing"));
    journal_sync(journal, loop, on_synced, &told);
    turn_until_told(1);
    ck_assert_int_eq(said, STATUS_SYSTEM);
    /* and no half line is left in the middle */
    struct stat info;
    ck_assert_int_eq(stat(path_of("journal.ndjson"), &info), 0);
    ck_assert_int_le(info.st_size, 300);
    OWNED_FILE FILE *file = fopen(path_of("journal.ndjson"), "re");
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        OWNED_JSON json_t *event = NULL;
        ck_assert_int_eq(json_parse_text(line, strlen(line), &event, &err), STATUS_OK);
    }
}
END_TEST

START_TEST(a_journal_goes_on_after_its_last_whole_line)
{
    struct error err = {0};
    char line[512];

    journal_note(journal, "the last words");
    journal_close(journal);
    journal = NULL;
    OWNED_FILE FILE *file = fopen(path_of("journal.ndjson"), "a+e");
    fputs("{\"seq\":2,\"t\":1,\"ev", file); /* it died in the middle of a write */
    fflush(file);
    ck_assert_int_eq(journal_reopen(folder, 1, NULL, NULL, &journal, &err), STATUS_OK);
    journal_note(journal, "and on");
    rewind(file);
    for (int i = 1; i <= 2; i++) {
        OWNED_JSON json_t *event = NULL;
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        ck_assert_msg(json_parse_text(line, strlen(line), &event, &err) == STATUS_OK, "%s", line);
        ck_assert_int_eq(json_number(event, "seq", 0), i);
    }
    ck_assert_str_eq(strstr(line, "\"text\""), "\"text\":\"and on\"}\n");
    ck_assert_ptr_null(fgets(line, sizeof line, file));
}
END_TEST

START_TEST(nothing_is_reopened_that_is_not_there)
{
    struct journal *other = NULL;
    struct error err = {0};

    unlink(path_of("journal.ndjson"));
    ck_assert_int_eq(journal_reopen(folder, 1, NULL, NULL, &other, &err), STATUS_SYSTEM);
    ck_assert_ptr_null(other);
}
END_TEST

TEST_MAIN("run_journal", 20, setup, teardown, everybody_who_waits_for_the_disk_is_told,
          nobody_is_told_after_the_loop_is_left, what_is_not_written_is_not_durable,
          a_journal_goes_on_after_its_last_whole_line, nothing_is_reopened_that_is_not_there)
