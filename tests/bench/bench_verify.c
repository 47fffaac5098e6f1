/* SPDX-License-Identifier: MIT */
/*
 * How fast a run's ledger is verified, on one core and apart from fetching what the database holds:
 * reading the run directory (every record's checksum included), then the durability check against
 * the present sets of three nodes. Every size has one token too few on the primary, which the check
 * must find.
 *
 * usage: bench_verify [MILLIONS-OF-TOKENS...]      (1 10)
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/clock.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/run_judge.h"

enum { CLIENTS = 100, FIRST_CLIENT = 100, BATCH = 4096, NODES = 3, SIZES_MAX = 8 };

static long sizes[SIZES_MAX] = {1, 10}; /* in million tokens */
static int size_count = 2;

/* --- a run with that many tokens ---------------------------------------------------------------
 */

struct output {
    FILE *file;
    struct ledger_record batch[BATCH];
    size_t count;
};

static void flush_batch(struct output *output)
{
    ck_assert_uint_eq(fwrite(output->batch, sizeof output->batch[0], output->count, output->file),
                      output->count);
    output->count = 0;
}

static void put(struct output *output, struct ledger_record record)
{
    record.crc = ledger_crc(&record);
    output->batch[output->count++] = record;
    if (output->count == BATCH)
        flush_batch(output);
}

/* The tokens of all clients take turns, as in a real ledger. */
static void put_tokens(struct output *output, uint64_t tokens)
{
    int64_t begin_ns = run_client_ns(1000), span_ns = run_client_ns(9000) - begin_ns;

    for (uint32_t c = 0; c < CLIENTS; c++)
        put(output, (struct ledger_record){.kind = LEDGER_SESSION,
                                           .class = LEDGER_ON,
                                           .client = FIRST_CLIENT + c,
                                           .timeline = 1,
                                           .done_ns = begin_ns});
    for (uint64_t i = 0; i < tokens; i++) {
        int64_t at_ns = begin_ns + (int64_t) ((double) i / (double) tokens * (double) span_ns);
        struct ledger_record record = {.kind = LEDGER_INTENT,
                                       .client = FIRST_CLIENT + (uint32_t) (i % CLIENTS),
                                       .seq = i / CLIENTS + 1,
                                       .timeline = 1,
                                       .scheduled_ns = at_ns,
                                       .sent_ns = at_ns};
        put(output, record);
        record.kind = LEDGER_OUTCOME;
        record.phase = LEDGER_COMMITTING;
        record.lsn = run_lsn(1000);
        record.done_ns = at_ns + NS_PER_MS;
        put(output, record);
    }
}

/* The workload's ledger of the standard run, its tokens before the end. */
static void write_ledger(const struct run_builder *run, uint64_t tokens)
{
    static struct output output;
    static const char zeros[LEDGER_HEADER_SIZE];
    const struct run_ledger *ledger = &run->ledgers[0];
    char path[96];

    snprintf(path, sizeof path, "%s/ledger/c1-worker-0.ledger", run->folder);
    output = (struct output){.file = fopen(path, "we")};
    ck_assert_ptr_nonnull(output.file);
    fwrite(&ledger->header, sizeof ledger->header, 1, output.file);
    fwrite(zeros, LEDGER_HEADER_SIZE - sizeof ledger->header, 1, output.file);
    for (size_t i = 0; i + 1 < ledger->count; i++)
        put(&output, ledger->records[i]);
    put_tokens(&output, tokens);
    put(&output, ledger->records[ledger->count - 1]);
    flush_batch(&output);
    ck_assert_int_eq(fclose(output.file), 0);
}

/* Behind the ranges that are there; the primary's lacks the last token of the last client. */
static void write_present(const struct run_builder *run, const char *node, uint64_t each,
                          uint64_t there)
{
    char path[96], *text = NULL;
    size_t size = 0;

    snprintf(path, sizeof path, "%s/ledger/present-%s.tokens", run->folder, node);
    OWNED_FILE FILE *old = fopen(path, "re");
    ck_assert_ptr_nonnull(old);
    ck_assert_int_gt(getdelim(&text, &size, '\0', old), 0);
    char *end = strstr(text, "end tokens=");
    ck_assert_ptr_nonnull(end);
    /* sorted by client: the standard run's own clients are 1 to 4, and probes above 999999 */
    char *probes = strstr(text, " 1000000 ");
    while (probes != NULL && probes > text && probes[-1] != '\n')
        probes--;
    ck_assert_ptr_nonnull(probes);
    OWNED_FILE FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "%.*s", (int) (probes - text), text);
    uint64_t lacking = strcmp(node, "n1") == 0 ? 1 : 0;
    for (uint32_t c = 0; c < CLIENTS; c++)
        fprintf(file, "range %u 1 %llu\n", FIRST_CLIENT + c,
                (unsigned long long) (each - (c + 1 == CLIENTS ? lacking : 0)));
    fprintf(file, "%.*send tokens=%llu\n", (int) (end - probes), probes,
            (unsigned long long) (there + each * CLIENTS - lacking));
    free(text);
}

/* --- verifying ----------------------------------------------------------------------------------
 */

static double processor_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void verify(const struct run_builder *run, uint64_t tokens)
{
    struct judged judged = {.arena = arena_new()};
    const struct check *check = check_find("durability");
    OWNED_JSON json_t *values = json_object();
    struct error err = {0};

    ck_assert_int_eq(param_complete(check->params, values, &err), STATUS_OK);
    double begun = processor_seconds();
    ck_assert_msg(record_load(judged.arena, run->folder, &judged.record, &err) == STATUS_OK, "%s",
                  err.message);
    double loaded = processor_seconds();
    ck_assert_msg(check->judge(judged.record, values, judged.arena, &judged.result, &err) ==
                      STATUS_OK,
                  "%s", err.message);
    double judged_at = processor_seconds();
    int64_t lost = judged_number(&judged, "ledger", "lost");
    printf("verify   %4.0f million tokens: read %5.2f s, judged %5.2f s, %5.1f million tokens a "
           "second and core; lost %lld (planted 1)\n",
           (double) tokens / 1e6, loaded - begun, judged_at - loaded,
           (double) tokens / (judged_at - begun) / 1e6, (long long) lost);
    fflush(stdout);
    ck_assert_int_eq(judged.result.verdict, VERDICT_FAIL);
    ck_assert_int_eq(lost, 1);
    judged_free(&judged);
}

START_TEST(bench_size)
{
    static const char *const nodes[NODES] = {"n1", "n2", "n3"};
    uint64_t each = (uint64_t) sizes[_i] * 1000000 / CLIENTS;
    struct run_builder *run = run_standard(&(struct run_plan){.no_fault = true});

    run_write(run);
    write_ledger(run, each * CLIENTS);
    for (size_t i = 0; i < NODES; i++)
        write_present(run, nodes[i], each, run->present[i].count);
    verify(run, each * CLIENTS);
    run_free(run);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("verify");
    TCase *cases = tcase_create("bench");

    for (int i = 1; i < argc && i <= SIZES_MAX; i++) {
        sizes[i - 1] = strtol(argv[i], NULL, 10);
        size_count = i;
    }
    tcase_set_timeout(cases, 3600);
    tcase_add_loop_test(cases, bench_size, 0, size_count);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
