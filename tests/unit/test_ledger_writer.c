/* SPDX-License-Identifier: MIT */
/* Writing ledgers: growth, durability, kill -9 of the writer, a full disk. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/load/ledger_writer.h"
#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/support/suite.h"

static char folder[64], path[96];
static const struct ledger_header header = {.magic = {"ordeal-ledger-1"},
                                            .version = LEDGER_VERSION,
                                            .record_size = sizeof(struct ledger_record),
                                            .run = "r",
                                            .client_node = "c1",
                                            .node_count = 1,
                                            .nodes = {"n1"}};

static void setup(void)
{
    snprintf(folder, sizeof(folder), "/tmp/ordeal-writer-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/c1-worker-1.ledger", folder);
}

static void teardown(void)
{
    unlink(path);
    rmdir(folder);
}

static struct ledger_header made_header(void)
{
    struct ledger_header made = header;

    memcpy(made.magic, "ordeal-ledger-1\n", sizeof(made.magic));
    return made;
}

static struct ledger_writer *open_writer(void)
{
    struct ledger_header made = made_header();
    struct ledger_writer *writer = NULL;
    struct error err = {0};

    if (ledger_writer_open(path, &made, &writer, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    return writer;
}

static struct ledger_record record(uint64_t seq)
{
    return (struct ledger_record){.kind = LEDGER_INTENT, .client = 1, .seq = seq, .sent_ns = 42};
}

/* As slow as its disk: room comes from the flusher. False when a record found none. */
static bool append_at_ease(struct ledger_writer *writer, uint64_t seq)
{
    int64_t deadline_ns = deadline_in_ms(20000);

    while (seq % 1000 == 0 && !ledger_writer_durable(writer, ledger_writer_position(writer)) &&
           !deadline_passed(deadline_ns))
        poll(NULL, 0, 1);
    return ledger_append(writer, record(seq));
}

static void wait_durable(struct ledger_writer *writer, uint64_t position)
{
    int64_t deadline_ns = deadline_in_ms(20000);
    struct pollfd event = {.fd = ledger_writer_descriptor(writer), .events = POLLIN};

    while (!ledger_writer_durable(writer, position)) {
        ck_assert_msg(!deadline_passed(deadline_ns), "never durable");
        ledger_writer_ask(writer);
        poll(&event, 1, 100);
        ledger_writer_notified(writer);
    }
}

/* A writer that was killed may have been half-way through storing one record. */
static void check_file(size_t count, bool killed)
{
    struct ledger ledger;
    struct error err = {0};

    if (ledger_open(path, &ledger, &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    ck_assert(killed || !ledger.torn_tail);
    ck_assert_uint_ge(ledger.count, count);
    size_t right = 0;
    while (right < ledger.count && ledger.records[right].seq == right + 1)
        right++;
    ck_assert_uint_eq(right, ledger.count);
    ledger_close(&ledger);
}

START_TEST(grows_and_ends_at_its_length)
{
    enum { COUNT = 5 * LEDGER_STEP_RECORDS + 3 };
    struct ledger_writer *writer = open_writer();
    struct error err = {0};

    uint64_t seq = 0;
    while (seq < COUNT && append_at_ease(writer, seq + 1))
        seq++;
    ck_assert_uint_eq(seq, COUNT);
    wait_durable(writer, ledger_writer_position(writer));
    if (ledger_writer_close(writer, deadline_in_ms(20000), &err) != STATUS_OK)
        ck_abort_msg("%s", err.message);
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_size, LEDGER_HEADER_SIZE + COUNT * 72L);
    check_file(COUNT, false);
}
END_TEST

START_TEST(never_over_another_file)
{
    struct ledger_header made = made_header();
    struct ledger_writer *writer = open_writer();
    struct ledger_writer *second = NULL;
    struct error err;

    ck_assert_int_eq(ledger_writer_open(path, &made, &second, &err), STATUS_SYSTEM);
    ck_assert_int_eq(err.errnum, EEXIST);
    ck_assert_int_eq(ledger_writer_close(writer, deadline_in_ms(20000), &err), STATUS_OK);
}
END_TEST

/* What a record promises stands in shared memory: the count of appended ones, seen from outside. */
static _Atomic uint64_t *appended;

/* No assertions in here: two processes must not report through one pipe. */
static int endless_writer(void *argument)
{
    struct ledger_header made = made_header();
    struct ledger_writer *writer = NULL;

    (void) argument;
    if (ledger_writer_open(path, &made, &writer, NULL) != STATUS_OK)
        return 1;
    for (uint64_t seq = 1; append_at_ease(writer, seq); seq++)
        *appended = seq;
    return 1;
}

START_TEST(killed_writer_loses_nothing)
{
    appended = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(appended, MAP_FAILED);
    for (int round = 0; round < 5; round++) {
        struct process process;
        uint64_t enough = 500 + (uint64_t) round * 7001;
        int64_t deadline_ns = deadline_in_ms(20000);
        *appended = 0;
        ck_assert_int_eq(process_fork(endless_writer, NULL, &process, NULL), STATUS_OK);
        while (*appended < enough) {
            ck_assert(!deadline_passed(deadline_ns));
            usleep(100);
        }
        process_kill(&process);
        ck_assert_uint_ge(*appended, enough);
        check_file(*appended, true);
        unlink(path);
    }
}
END_TEST

/* The limit of a file's size stands for a full disk: the room that was allocated stays usable. */
START_TEST(full_disk)
{
    struct rlimit limit = {.rlim_cur = LEDGER_HEADER_SIZE + 4 * LEDGER_STEP_SIZE,
                           .rlim_max = RLIM_INFINITY};
    struct error err;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct ledger_writer *writer = open_writer();
    uint64_t seq = 0;
    while (ledger_writer_failed(writer) == 0 && append_at_ease(writer, seq + 1))
        seq++;
    ck_assert_int_eq(ledger_writer_failed(writer), EFBIG);
    uint64_t failed_at = seq;
    while (ledger_append(writer, record(seq + 1)))
        seq++;
    ck_assert_uint_ge(seq - failed_at, LEDGER_STEP_RECORDS); /* room to end in order */
    ck_assert(!ledger_append(writer, record(seq + 1)));
    ck_assert_int_eq(ledger_writer_close(writer, deadline_in_ms(20000), &err), STATUS_OK);
    check_file(seq, false);
}
END_TEST

START_TEST(no_room_at_all)
{
    struct rlimit limit = {.rlim_cur = LEDGER_STEP_SIZE, .rlim_max = RLIM_INFINITY};
    struct ledger_header made = made_header();
    struct ledger_writer *writer = NULL;
    struct error err;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(ledger_writer_open(path, &made, &writer, &err), STATUS_SYSTEM);
    ck_assert_int_eq(err.errnum, EFBIG);
    ck_assert_ptr_nonnull(strstr(err.message, path));
}
END_TEST

/* A flusher that is gone: closing cannot say that the end is on the disk. */
START_TEST(lost_flusher)
{
    struct ledger_writer *writer = open_writer();
    struct pollfd event = {.fd = ledger_writer_flusher(writer), .events = POLLIN};
    char children[64];
    pid_t flusher = 0;
    struct error err;

    snprintf(children, sizeof(children), "/proc/self/task/%d/children", (int) getpid());
    OWNED_FILE FILE *file = fopen(children, "re");
    ck_assert_int_eq(fscanf(file, "%d", &flusher), 1);
    ck_assert_int_eq(poll(&event, 1, 0), 0);
    kill(flusher, SIGKILL);
    ck_assert_int_eq(poll(&event, 1, 5000), 1);
    ck_assert(ledger_append(writer, record(1)));
    ck_assert_int_eq(ledger_writer_close(writer, deadline_in_ms(1000), &err), STATUS_SYSTEM);
    check_file(1, false);
}
END_TEST

TEST_MAIN("ledger writer", 60, setup, teardown, grows_and_ends_at_its_length,
          never_over_another_file, killed_writer_loses_nothing, full_disk, no_room_at_all,
          lost_flusher)
