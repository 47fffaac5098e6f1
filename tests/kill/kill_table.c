/* SPDX-License-Identifier: MIT */
/*
 * kill_table FOLDER LAB [PATTERN]    the table, on the lab LAB, whose programs lie in FOLDER
 * kill_table FOLDER --skip HOST...   until it is killed, every injection on these hosts is left out
 *
 * One worker for each database node takes the cells of faults that the node's own agent carries
 * out; one for the power node takes those that need the power agent. PATTERN picks cells whose
 * "fault moment victim" contains it. Prints lines "summary: ..." and a last line in the form of
 * Check.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"
#include "lib/process.h"
#include "tests/kill/caller.h"
#include "tests/kill/cell.h"
#include "tests/kill/skip.h"
#include "topologies/lab/lab.h"

enum { CELLS_MAX = 4096, WORKERS_MAX = 8, POWER_QUEUE = 1, WRONG_MAX = 6, AGAIN_TIMES = 3 };

/* Parameters with which a fault can be injected on a database node, or by the power node. */
static const struct {
    const char *fault, *params;
} subjects[] = {
    {"process.kill", "{\"process\": \"everything\"}"},
    {"process.freeze", "{\"process\": \"everything\"}"},
    {"network.partition", "{\"peers\": [\"c2\"]}"},
    {"node.crash", "{\"node\": \"c1\"}"},
};

static const char crashed_node[] = "c1"; /* what power faults take away */

static const struct moment moments[] = {
    {.name = "record written", .point = "journal-written", .nth = 1},
    {.name = "record durable", .point = "journal-durable", .nth = 1},
    {.name = "before inject", .point = "before-inject", .nth = 1},
    {.name = "inside inject", .point = "inside-inject", .nth = 1},
    {.name = "after inject", .point = "after-inject", .nth = 1},
    {.name = "before observe", .point = "before-observe", .nth = 1},
    {.name = "holding", .holding_only = true},
    {.name = "before undo", .point = "before-undo", .nth = 1, .of_undo = true},
    {.name = "inside undo", .point = "inside-undo", .nth = 1, .of_undo = true},
    {.name = "before close", .point = "before-close", .nth = 1},
    {.name = "close written", .point = "journal-written", .nth = 2},
    {.name = "close durable", .point = "journal-durable", .nth = 2},
};
enum { MOMENTS = sizeof moments / sizeof moments[0] };

enum outcome { NOT_RUN, CLEAN, LATE, WRONG };

/* Shared by the workers. */
struct board {
    atomic_size_t next[2]; /* queue of the nodes, of the power node */
    atomic_int again;      /* cells that were late and were measured again */
    size_t count;
    struct cell cells[CELLS_MAX];
    struct {
        atomic_int outcome;
        int64_t ms;
    } results[CELLS_MAX];
};

static struct board *board;

static const char *params_of(const struct fault *fault)
{
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        if (strcmp(subjects[i].fault, fault->name) == 0)
            return subjects[i].params;
    return NULL;
}

static int queue_of(const struct fault *fault)
{
    return fault->executor == EXECUTE_POWER ? POWER_QUEUE : 0;
}

/* --- the cells ------------------------------------------------------------------------------- */

/* The power node has no switch, and its supervisor is the lab's; an instant does not hold. */
static bool exists(const struct fault *fault, const struct moment *moment, enum victim victim)
{
    bool of_node = victim == VICTIM_POWER || victim == VICTIM_SUPERVISOR;

    return (!of_node || fault->executor != EXECUTE_POWER) &&
           (fault->holds || !moment->holding_only);
}

static void cell_title(const struct cell *cell, char *text, size_t size)
{
    snprintf(text, size, "%s, %s, %s", cell->fault->name, cell->moment->name,
             victim_name(cell->victim));
}

static void add_cell(const struct fault *fault, const struct moment *moment, enum victim victim,
                     const char *pattern)
{
    struct cell cell = {.fault = fault,
                        .params = params_of(fault),
                        .moment = moment,
                        .victim = victim,
                        .number = (int) board->count + 1};
    char title[128];

    cell_title(&cell, title, sizeof title);
    if (board->count < CELLS_MAX && exists(fault, moment, victim) &&
        (pattern == NULL || strstr(title, pattern) != NULL))
        board->cells[board->count++] = cell;
}

static void add_cells(const char *pattern)
{
    for (size_t m = 0; m < MOMENTS; m++)
        for (int victim = 0; victim < VICTIM_COUNT; victim++)
            for (size_t f = 0; fault_list()[f] != NULL; f++)
                add_cell(fault_list()[f], &moments[m], (enum victim) victim, pattern);
}

/* --- the workers ----------------------------------------------------------------------------- */

static enum outcome run_one(struct rig *rig, size_t index)
{
    const struct cell *cell = &board->cells[index];
    char title[128];
    struct error err = {0};
    enum status status =
        cell->params == NULL
            ? error_set(&err, STATUS_NOT_FOUND, "%s has no line in `subjects`", cell->fault->name)
            : cell_run(rig, cell, &board->results[index].ms, &err);
    enum outcome outcome = status == STATUS_OK ? CLEAN : status == STATUS_TIMEOUT ? LATE : WRONG;

    atomic_store(&board->results[index].outcome, (int) outcome);
    cell_title(cell, title, sizeof title);
    if (outcome != CLEAN)
        printf("%s on %s: %s: %s\n", outcome == LATE ? "late" : "wrong", rig->node->name, title,
               err.message);
    fflush(stdout);
    return outcome;
}

static int learn(struct rig *rig)
{
    struct error err = {0};

    if (rig_learn(rig, &err) == STATUS_OK)
        return 0;
    printf("worker of %s: %s\n", rig->node->name, err.message);
    return 1;
}

static int work(void *argument)
{
    struct rig *rig = argument;
    int queue = rig->place.power ? POWER_QUEUE : 0;
    int wrong = 0; /* a node that does not come back would only be waited for again and again */

    if (learn(rig) != 0)
        return 1;
    for (size_t index;
         wrong < WRONG_MAX && (index = atomic_fetch_add(&board->next[queue], 1)) < board->count;)
        if (queue_of(board->cells[index].fault) == queue)
            wrong += run_one(rig, index) == WRONG;
    rig_forget(rig);
    return wrong;
}

/*
 * What was late beside the others was measured with four nodes on one host: each of several times
 * alone must be in time, since the bound is of Ordeal and not of the machine.
 */
static int work_again(void *argument)
{
    struct rig *rig = argument;
    int queue = rig->place.power ? POWER_QUEUE : 0;
    bool learnt = false;

    for (size_t i = 0; i < board->count; i++) {
        if (queue_of(board->cells[i].fault) != queue ||
            atomic_load(&board->results[i].outcome) != LATE)
            continue;
        if (!learnt && learn(rig) != 0)
            return 1;
        learnt = true;
        atomic_fetch_add(&board->again, 1);
        for (int time = 0; time < AGAIN_TIMES && run_one(rig, i) == CLEAN; time++)
            continue;
    }
    rig_forget(rig);
    return 0;
}

static bool is_worker(const struct topology_node *node)
{
    return (node->roles & (ROLE_DATABASE | ROLE_POWER)) != 0;
}

static struct rig rig_of(const struct topology *topology, const struct topology_node *node,
                         const char *folder, const char *lab)
{
    bool power = (node->roles & ROLE_POWER) != 0;
    struct rig rig = {.topology = topology,
                      .lab = lab,
                      .folder = folder,
                      .node = node,
                      .place = {.lab = lab, .node = node->name, .power = power}};

    if (power) {
        rig.target = (struct place){.lab = lab, .node = crashed_node};
        rig.target_address = topology_node(topology, crashed_node)->address;
    }
    return rig;
}

static enum status run_workers(const struct topology *topology, const char *folder, const char *lab,
                               struct error *err)
{
    struct process workers[WORKERS_MAX], again = {.pidfd = -1};
    struct rig rigs[WORKERS_MAX];
    size_t count = 0;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < topology->node_count && count < WORKERS_MAX; i++)
        if (is_worker(&topology->nodes[i]))
            rigs[count++] = rig_of(topology, &topology->nodes[i], folder, lab);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = process_fork(work, &rigs[i], &workers[i], err);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        waitpid(workers[i].pid, NULL, 0);
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        status = process_fork(work_again, &rigs[i], &again, err);
        if (status == STATUS_OK)
            waitpid(again.pid, NULL, 0);
    }
    return status;
}

/* --- the table ------------------------------------------------------------------------------- */

static bool find_cell(const struct fault *fault, const struct moment *moment, enum victim victim,
                      size_t *ret_index)
{
    for (size_t i = 0; i < board->count; i++)
        if (board->cells[i].fault == fault && board->cells[i].moment == moment &&
            board->cells[i].victim == victim) {
            *ret_index = i;
            return true;
        }
    return false;
}

static void print_row(const struct fault *fault, const struct moment *moment)
{
    bool any = false;
    char line[256] = "";

    for (int victim = 0; victim < VICTIM_COUNT; victim++) {
        char word[24] = "-";
        size_t index = 0;
        if (find_cell(fault, moment, (enum victim) victim, &index)) {
            any = true;
            int outcome = atomic_load(&board->results[index].outcome);
            if (outcome == CLEAN || outcome == LATE)
                snprintf(word, sizeof word, "%lld%s", (long long) board->results[index].ms,
                         outcome == LATE ? " LATE" : "");
            else
                snprintf(word, sizeof word, "%s", outcome == WRONG ? "WRONG" : "not run");
        }
        size_t length = strlen(line);
        snprintf(line + length, sizeof line - length, "%13s", word);
    }
    if (any)
        printf("summary: %-18s %-15s%s\n", fault->name, moment->name, line);
}

static void print_table(void)
{
    printf("summary: ms until a node is clean after a death at that moment (lease %d ms)\n",
           KILL_LEASE_MS);
    printf("summary: %-18s %-15s", "fault", "moment");
    for (int victim = 0; victim < VICTIM_COUNT; victim++)
        printf("%13s", victim_name((enum victim) victim));
    printf("\n");
    for (size_t f = 0; fault_list()[f] != NULL; f++)
        for (size_t m = 0; m < MOMENTS; m++)
            print_row(fault_list()[f], &moments[m]);
}

/* The last lines; the number of cells that were not clean. */
static size_t conclude(int64_t took_ns)
{
    size_t wrong = 0, worst = 0;
    char title[128] = "none";

    for (size_t i = 0; i < board->count; i++) {
        bool clean = atomic_load(&board->results[i].outcome) == CLEAN;
        wrong += !clean;
        if (clean && board->results[i].ms > board->results[worst].ms)
            worst = i;
    }
    if (board->count > 0)
        cell_title(&board->cells[worst], title, sizeof title);
    printf("summary: %zu of %zu clean within %d ms, worst %lld ms (%s), %d measured again alone, "
           "%lld s\n",
           board->count - wrong, board->count, KILL_LEASE_MS + KILL_GRACE_MS,
           (long long) board->results[worst].ms, title, atomic_load(&board->again),
           (long long) (took_ns / NS_PER_SECOND));
    printf("%zu%%: Checks: %zu, Failures: %zu, Errors: 0\n",
           board->count == 0 ? 0 : 100 * (board->count - wrong) / board->count, board->count,
           wrong);
    return wrong;
}

static enum status enter_lab(const struct topology *topology, struct error *err)
{
    OWNED_FD int fd = open(topology->control.network_namespace, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        return error_system(err, "entering %s", topology->control.network_namespace);
    return STATUS_OK;
}

static enum status run_table(const char *folder, const char *lab, const char *pattern,
                             struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct yaml_errors errors = {0};
    struct topology *topology = NULL;

    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return error_system(err, "allocating the board");
    enum status status = topology_load(
        arena, arena_printf(arena, "%s/%s/topology.yaml", LAB_ROOT, lab), &topology, &errors, err);
    if (status == STATUS_OK)
        status = enter_lab(topology, err);
    if (status != STATUS_OK)
        return status;
    add_cells(pattern);
    printf("%zu cells, lease %d ms, bound %d ms\n", board->count, KILL_LEASE_MS,
           KILL_LEASE_MS + KILL_GRACE_MS);
    fflush(stdout);
    int64_t start_ns = clock_boot_ns();
    status = run_workers(topology, folder, lab, err);
    print_table();
    fflush(stdout);
    if (conclude(clock_boot_ns() - start_ns) > 0 && status == STATUS_OK)
        status = error_set(err, STATUS_FAILED, "not everything was clean");
    return status;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    enum status status =
        argc >= 4 && strcmp(argv[2], "--skip") == 0 ? skip_injections(argv[1], argv + 3, &err)
        : argc == 3 || argc == 4                    ? run_table(argv[1], argv[2], argv[3], &err)
                                 : error_set(&err, STATUS_USAGE, "see the head of this source");

    if (status != STATUS_OK)
        fprintf(stderr, "%s\n", err.message);
    return status == STATUS_OK ? 0 : 1;
}
