/* SPDX-License-Identifier: MIT */
#include "agents/sampler/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/owned.h"

enum { SCAN_MS = 1000, LOOKS_MIN = 2, LOOKS_MAX = 20, TURNS = 10, STAT_SIZE = 1024 };

void processes_open(struct processes *processes, struct arena *arena, const char *data)
{
    struct rlimit limit;

    *processes =
        (struct processes){.arena = arena,
                           .data = data,
                           .children = {.fd = -1},
                           .list = arena_alloc(arena, KERNEL_TEXT_SIZE),
                           .last_list = arena_alloc(arena, KERNEL_TEXT_SIZE),
                           .items = arena_array(arena, PROCESSES_MAX, sizeof(struct tracked)),
                           .pids = arena_array(arena, PROCESSES_MAX, sizeof(pid_t)),
                           .tick_us = 1000000 / sysconf(_SC_CLK_TCK)};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) { /* two descriptors a process */
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* --- who is there ----------------------------------------------------------------------------- */

static int by_pid(const void *left, const void *right)
{
    const struct tracked *a = left, *b = right;

    return (a->pid > b->pid) - (a->pid < b->pid);
}

static bool is_tracked(const struct processes *processes, size_t sorted, pid_t pid)
{
    struct tracked wanted = {.pid = pid};

    return bsearch(&wanted, processes->items, sorted, sizeof wanted, by_pid) != NULL;
}

static int open_of(pid_t pid, const char *name)
{
    char path[48];

    snprintf(path, sizeof path, "/proc/%d/%s", (int) pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void track(struct processes *processes, pid_t pid)
{
    if (processes->count == PROCESSES_MAX) {
        processes->refused = true;
        return;
    }
    int fd = open_of(pid, "stat");
    if (fd < 0) { /* gone already, or no descriptor is left */
        processes->refused = processes->refused || errno == EMFILE || errno == ENFILE;
        return;
    }
    processes->items[processes->count++] =
        (struct tracked){.pid = pid,
                         .stat = fd,
                         .run = open_of(pid, "schedstat"),
                         .class = pid == processes->postmaster ? PG_POSTMASTER : PG_OTHER,
                         .rss_pages = -1};
}

static void track_all(struct processes *processes, const pid_t *pids, size_t count)
{
    size_t sorted = processes->count;

    for (size_t i = 0; i < count; i++)
        if (!is_tracked(processes, sorted, pids[i]))
            track(processes, pids[i]);
    if (processes->count > sorted)
        qsort(processes->items, processes->count, sizeof *processes->items, by_pid);
}

static void follow_group_of(pid_t pid, struct kernel *kernel)
{
    char path[32], text[1024], group[sizeof kernel->group];

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int) pid);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    if (parse_cgroup(text, kernel->version == CGROUP_V1, group, sizeof group))
        kernel_follow_group(kernel, group);
}

static void follow_postmaster(struct processes *processes, struct kernel *kernel, pid_t pid)
{
    char path[64];

    if (pid == 0 || pid == processes->postmaster)
        return;
    if (processes->children.fd >= 0)
        close(processes->children.fd);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int) pid, (int) pid);
    processes->children.fd = open(path, O_RDONLY | O_CLOEXEC);
    processes->postmaster = pid;
    processes->last_list[0] = '\0';
    track_all(processes, &pid, 1);
    if (!kernel->group_given)
        follow_group_of(pid, kernel);
}

/* The list of the kernel; parsed only when it is another one than the last. */
static void look_at_children(struct processes *processes, struct kernel *kernel)
{
    const char *text = kernel_read(kernel, &processes->children);

    if (text == NULL || strcmp(text, processes->last_list) == 0)
        return;
    snprintf(processes->last_list, KERNEL_TEXT_SIZE, "%s", text);
    processes->refused = false;
    track_all(processes, processes->pids, parse_children(text, processes->pids, PROCESSES_MAX));
}

/* Where the kernel keeps no such list. */
static void scan(struct processes *processes)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct pg_processes found = {0};

    if (!deadline_passed(processes->scan_ns) || processes->postmaster == 0)
        return;
    processes->scan_ns = deadline_in_ms(SCAN_MS);
    if (pg_processes_list(arena, processes->data, &found, NULL) != STATUS_OK)
        return;
    for (size_t i = 0; i < found.count && i < PROCESSES_MAX; i++)
        processes->pids[i] = found.items[i].id.pid;
    track_all(processes, processes->pids,
              found.count < PROCESSES_MAX ? found.count : PROCESSES_MAX);
}

/* --- what they do ----------------------------------------------------------------------------- */

struct sums {
    int64_t count, rss_pages;
};

/* A child is named like the postmaster until it says what it is. */
static void look_at_title(struct tracked *item, struct line *line)
{
    enum pg_class class = item->class;
    bool settled = item->class == PG_POSTMASTER || item->looks >= LOOKS_MAX ||
                   (item->class != PG_OTHER && item->looks >= LOOKS_MIN);

    if (settled)
        return;
    pg_process_class(item->pid, &class);
    if (item->looks++ > 0 && class == item->class)
        return;
    item->class = class;
    line_open(line, '[');
    line_number(line, item->pid);
    line_string(line, pg_class_name(class));
    line_close(line, ']');
}

static bool read_text(int fd, char text[STAT_SIZE])
{
    ssize_t length = pread(fd, text, STAT_SIZE - 1, 0);

    if (length <= 0)
        return false;
    text[length] = '\0';
    return true;
}

/* False when it has ended; *ret_ran: it has run since the last time, or nobody can tell. */
static bool look_at_run(struct tracked *item, bool *ret_ran)
{
    char text[STAT_SIZE];
    const char *at = text;

    *ret_ran = true;
    if (item->run < 0)
        return true;
    if (!read_text(item->run, text))
        return false;
    int64_t run_ns = parse_number(&at);
    *ret_ran = run_ns != item->run_ns;
    item->run_ns = run_ns;
    return true;
}

/* False when it has ended. What has not changed is not put again. */
static bool look_at_stat(struct processes *processes, struct tracked *item, struct line *line)
{
    char text[STAT_SIZE];
    struct process_stat stat;

    if (!read_text(item->stat, text) || !parse_stat(text, &stat) || stat.state == 'Z' ||
        stat.state == 'X')
        return false;
    int64_t cpu_us = item->run >= 0 ? item->run_ns / 1000 : stat.cpu_ticks * processes->tick_us;
    if (cpu_us == item->cpu_us && stat.rss_pages == item->rss_pages)
        return true;
    processes->cpu_us[item->class] += cpu_us - item->cpu_us;
    item->cpu_us = cpu_us;
    item->rss_pages = stat.rss_pages;
    line_open(line, '[');
    line_number(line, item->pid);
    line_number(line, item->cpu_us);
    line_number(line, item->rss_pages);
    line_close(line, ']');
    return true;
}

static void let_go(struct tracked *item)
{
    close(item->stat);
    if (item->run >= 0)
        close(item->run);
    item->stat = item->run = -1;
}

static void put_processes(struct processes *processes, struct line *line, struct sums *sums)
{
    size_t turn = processes->turn++;

    line_key(line, "p");
    line_open(line, '[');
    for (size_t i = 0; i < processes->count; i++) {
        struct tracked *item = &processes->items[i];
        bool ran = false;
        bool alive = look_at_run(item, &ran);

        if (alive && (ran || item->rss_pages < 0 || (i + turn) % TURNS == 0))
            alive = look_at_stat(processes, item, line);
        if (!alive) {
            let_go(item);
            continue;
        }
        sums[item->class].count++;
        sums[item->class].rss_pages += item->rss_pages;
    }
    line_close(line, ']');
}

static void put_gone(struct processes *processes, struct line *line)
{
    size_t kept = 0;

    line_key(line, "gone");
    line_open(line, '[');
    for (size_t i = 0; i < processes->count; i++) {
        const struct tracked *item = &processes->items[i];

        if (item->stat >= 0) {
            processes->items[kept++] = *item;
            continue;
        }
        line_number(line, item->pid);
    }
    if (kept < processes->count) /* a child may have the pid of one that is gone */
        processes->last_list[0] = '\0';
    processes->count = kept;
    line_close(line, ']');
}

static void put_new(struct processes *processes, struct line *line)
{
    line_key(line, "new");
    line_open(line, '[');
    for (size_t i = 0; i < processes->count; i++)
        look_at_title(&processes->items[i], line);
    line_close(line, ']');
}

/* "backend": [processes, CPU us of all that ever were there, resident pages] */
static void put_classes(const struct processes *processes, const struct sums *sums,
                        struct line *line)
{
    line_key(line, "pg");
    line_open(line, '{');
    for (int i = 0; i < PROCESSES_CLASSES; i++) {
        if (sums[i].count == 0 && processes->cpu_us[i] == 0)
            continue;
        line_key(line, pg_class_name((enum pg_class) i));
        line_open(line, '[');
        line_number(line, sums[i].count);
        line_number(line, processes->cpu_us[i]);
        line_number(line, sums[i].rss_pages);
        line_close(line, ']');
    }
    line_close(line, '}');
}

void processes_sample(struct processes *processes, struct kernel *kernel, pid_t postmaster,
                      struct line *line)
{
    struct sums sums[PROCESSES_CLASSES] = {0};

    follow_postmaster(processes, kernel, postmaster);
    if (processes->children.fd >= 0)
        look_at_children(processes, kernel);
    else
        scan(processes);
    put_new(processes, line);
    put_processes(processes, line, sums);
    put_gone(processes, line);
    put_classes(processes, sums, line);
    if (processes->refused)
        line_pair(line, "incomplete", 1);
}
