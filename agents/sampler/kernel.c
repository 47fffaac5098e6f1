/* SPDX-License-Identifier: MIT */
#include "agents/sampler/kernel.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"

enum { RETRY_MS = 1000, NAMED_MAX = 24, LONGEST_LINE = 512 };

/* --- files ------------------------------------------------------------------------------------ */

static void let_go(struct kernel_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

static struct kernel_file file_at(const char *path)
{
    return (struct kernel_file){.path = path, .fd = -1};
}

/*
 * The kernel gives as many whole lines as fit into a page. One more read at the end would cost as
 * much as all of it, so that what leaves room for a line counts as the end.
 */
static bool may_go_on(ssize_t count)
{
    static long page_bytes;

    if (page_bytes == 0)
        page_bytes = sysconf(_SC_PAGESIZE);
    return count > 0 && count > page_bytes - LONGEST_LINE;
}

const char *kernel_read(struct kernel *kernel, struct kernel_file *file)
{
    if (file->fd < 0 && file->path != NULL && deadline_passed(file->retry_ns)) {
        file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
        file->retry_ns = deadline_in_ms(RETRY_MS);
    }
    if (file->fd < 0)
        return NULL;
    size_t length = 0;
    ssize_t count;
    do {
        count =
            pread(file->fd, kernel->text + length, KERNEL_TEXT_SIZE - 1 - length, (off_t) length);
        length += count > 0 ? (size_t) count : 0;
    } while (may_go_on(count) && length < KERNEL_TEXT_SIZE - 1);
    if (count < 0) {
        let_go(file);
        return NULL;
    }
    kernel->text[length] = '\0';
    return kernel->text;
}

/* --- members ---------------------------------------------------------------------------------- */

/* Names of the kernel, and ours for them; names[] ends with {NULL}. */
struct renamed {
    const char *theirs, *ours;
};

static void put_renamed(struct line *line, const char *text, const struct renamed *names)
{
    const char *theirs[NAMED_MAX] = {NULL};
    int64_t values[NAMED_MAX];
    size_t count = 0;

    for (; count < NAMED_MAX && names[count].theirs != NULL; count++)
        theirs[count] = names[count].theirs;
    parse_named(text, theirs, count, values);
    for (size_t i = 0; i < count; i++)
        if (values[i] >= 0)
            line_pair(line, names[i].ours, values[i]);
}

void kernel_put_meminfo(struct line *line, const char *text)
{
    static const struct renamed names[] = {{"MemTotal", "total"},
                                           {"MemFree", "free"},
                                           {"MemAvailable", "available"},
                                           {"Buffers", "buffers"},
                                           {"Cached", "cached"},
                                           {"SwapCached", "swap_cached"},
                                           {"Active(anon)", "active_anon"},
                                           {"Inactive(anon)", "inactive_anon"},
                                           {"Mlocked", "locked"},
                                           {"SwapTotal", "swap_total"},
                                           {"SwapFree", "swap_free"},
                                           {"Dirty", "dirty"},
                                           {"Writeback", "writeback"},
                                           {"AnonPages", "anon"},
                                           {"Shmem", "shmem"},
                                           {"Slab", "slab"},
                                           {"PageTables", "page_tables"},
                                           {"Committed_AS", "committed"},
                                           {"HugePages_Free", "huge_free"},
                                           {NULL, NULL}};

    line_key(line, "mem");
    line_open(line, '{');
    put_renamed(line, text, names);
    line_close(line, '}');
}

void kernel_put_vmstat(struct line *line, const char *text)
{
    static const struct renamed names[] = {{"pswpin", "pswpin"},
                                           {"pswpout", "pswpout"},
                                           {"pgpgin", "pgpgin"},
                                           {"pgpgout", "pgpgout"},
                                           {"pgfault", "pgfault"},
                                           {"pgmajfault", "pgmajfault"},
                                           {"pgscan_kswapd", "pgscan_kswapd"},
                                           {"pgscan_direct", "pgscan_direct"},
                                           {"pgsteal_kswapd", "pgsteal_kswapd"},
                                           {"pgsteal_direct", "pgsteal_direct"},
                                           {"workingset_refault_anon", "refault_anon"},
                                           {"workingset_refault_file", "refault_file"},
                                           {"allocstall_normal", "allocstall"},
                                           {"oom_kill", "oom_kill"},
                                           {NULL, NULL}};

    line_key(line, "vm");
    line_open(line, '{');
    put_renamed(line, text, names);
    line_close(line, '}');
}

/* "memory": [some, full]; the processor's "full" is not there on older kernels. */
void kernel_put_pressure(struct line *line, const char *name, const char *text)
{
    struct pressure pressure;

    if (!parse_pressure(text, &pressure))
        return;
    line_key(line, name);
    line_open(line, '[');
    line_number(line, pressure.some_us);
    if (pressure.full_us >= 0)
        line_number(line, pressure.full_us);
    line_close(line, ']');
}

/* --- devices ---------------------------------------------------------------------------------- */

/* Where the device was kept; a new one gets a place. NULL when there is no room for it. */
static struct device_line *kept_device(struct kernel_devices *devices, const char *name,
                                       size_t guess)
{
    if (guess < devices->count && strcmp(devices->last[guess].name, name) == 0)
        return &devices->last[guess];
    for (size_t i = 0; i < devices->count; i++)
        if (strcmp(devices->last[i].name, name) == 0)
            return &devices->last[i];
    if (devices->count == devices->room)
        return NULL;
    struct device_line *place = &devices->last[devices->count++];
    *place = (struct device_line){0};
    memcpy(place->name, name, sizeof place->name);
    return place;
}

/* What never did anything stays out, and so does what did nothing since the last time. */
static void put_device(struct line *line, struct kernel_devices *devices,
                       const struct device_line *device, size_t guess, const size_t *columns,
                       size_t count)
{
    struct device_line *kept = kept_device(devices, device->name, guess);

    if (kept == NULL || memcmp(kept->values, device->values, sizeof device->values) == 0)
        return;
    memcpy(kept->values, device->values, sizeof device->values);
    line_key(line, device->name);
    line_open(line, '[');
    for (size_t i = 0; i < count; i++)
        line_number(line, device->values[columns[i]]);
    line_close(line, ']');
}

static void put_devices(struct line *line, const char *name, struct kernel_devices *devices,
                        const char *text,
                        const char *(*next)(const char *text, struct device_line *ret_device),
                        const size_t *columns, size_t count)
{
    struct device_line device;
    size_t guess = 0;

    line_key(line, name);
    line_open(line, '{');
    while ((text = next(text, &device)) != NULL)
        put_device(line, devices, &device, guess++, columns, count);
    line_close(line, '}');
}

/* Reads, sectors read, ms reading, writes, sectors written, ms writing, in flight, ms busy. */
void kernel_put_disks(struct line *line, struct kernel_devices *devices, const char *text)
{
    static const size_t columns[] = {0, 2, 3, 4, 6, 7, 8, 9};

    put_devices(line, "disk", devices, text, parse_disk, columns,
                sizeof columns / sizeof columns[0]);
}

/* Bytes, packets, errors and drops received, the same sent. */
void kernel_put_net(struct line *line, struct kernel_devices *devices, const char *text)
{
    static const size_t columns[] = {0, 1, 2, 3, 8, 9, 10, 11};

    put_devices(line, "net", devices, text, parse_net, columns, sizeof columns / sizeof columns[0]);
}

/* --- the server's control group --------------------------------------------------------------- */

void kernel_put_group_events(struct line *line, enum cgroup_version version, const char *text)
{
    static const struct renamed names_1[] = {
        {"under_oom", "under_oom"}, {"oom_kill", "oom_kill"}, {NULL, NULL}};
    static const struct renamed names_2[] = {{"low", "low"},           {"high", "high"},
                                             {"max", "failures"},      {"oom", "oom"},
                                             {"oom_kill", "oom_kill"}, {NULL, NULL}};

    put_renamed(line, text, version == CGROUP_V1 ? names_1 : names_2);
}

void kernel_put_group_stat(struct line *line, enum cgroup_version version, const char *text)
{
    static const struct renamed names_1[] = {{"total_cache", "cache"},
                                             {"total_rss", "anon"},
                                             {"total_shmem", "shmem"},
                                             {"total_mapped_file", "mapped"},
                                             {"total_dirty", "dirty"},
                                             {"total_writeback", "writeback"},
                                             {"total_pgmajfault", "pgmajfault"},
                                             {"total_workingset_refault_anon", "refault_anon"},
                                             {"total_workingset_refault_file", "refault_file"},
                                             {NULL, NULL}};
    static const struct renamed names_2[] = {{"file", "cache"},
                                             {"anon", "anon"},
                                             {"shmem", "shmem"},
                                             {"file_mapped", "mapped"},
                                             {"file_dirty", "dirty"},
                                             {"file_writeback", "writeback"},
                                             {"pgmajfault", "pgmajfault"},
                                             {"workingset_refault_anon", "refault_anon"},
                                             {"workingset_refault_file", "refault_file"},
                                             {NULL, NULL}};

    put_renamed(line, text, version == CGROUP_V1 ? names_1 : names_2);
}

/* Where each version has it; NULL: not at all. */
static const struct {
    size_t offset;
    const char *version_1, *version_2;
} group_files[] = {
    {offsetof(struct kernel, group_current), "memory.usage_in_bytes", "memory.current"},
    {offsetof(struct kernel, group_swap), "memory.memsw.usage_in_bytes", "memory.swap.current"},
    {offsetof(struct kernel, group_failures), "memory.failcnt", NULL},
    {offsetof(struct kernel, group_events), "memory.oom_control", "memory.events"},
    {offsetof(struct kernel, group_stat), "memory.stat", "memory.stat"},
    {offsetof(struct kernel, group_pressure), NULL, "memory.pressure"},
};

void kernel_follow_group(struct kernel *kernel, const char *group)
{
    if (strcmp(kernel->group, group) == 0 || strlen(group) >= sizeof kernel->group)
        return;
    snprintf(kernel->group, sizeof kernel->group, "%s", group);
    for (size_t i = 0; i < sizeof group_files / sizeof group_files[0]; i++) {
        struct kernel_file *file =
            (struct kernel_file *) (void *) ((char *) kernel + group_files[i].offset);
        const char *name =
            kernel->version == CGROUP_V1 ? group_files[i].version_1 : group_files[i].version_2;

        let_go(file);
        *file = file_at(name == NULL ? NULL : cgroup_memory_file(kernel->arena, group, name));
    }
}

static void put_file_number(struct kernel *kernel, struct line *line, const char *name,
                            struct kernel_file *file)
{
    const char *text = kernel_read(kernel, file);
    int64_t value = text == NULL ? -1 : parse_number(&text);

    if (value >= 0)
        line_pair(line, name, value);
}

static void put_group(struct kernel *kernel, struct line *line)
{
    const char *text;

    line_key(line, "cgroup");
    line_open(line, '{');
    put_file_number(kernel, line, "current", &kernel->group_current);
    put_file_number(kernel, line, kernel->version == CGROUP_V1 ? "with_swap" : "swap",
                    &kernel->group_swap);
    put_file_number(kernel, line, "failures", &kernel->group_failures);
    if ((text = kernel_read(kernel, &kernel->group_events)) != NULL)
        kernel_put_group_events(line, kernel->version, text);
    if ((text = kernel_read(kernel, &kernel->group_stat)) != NULL)
        kernel_put_group_stat(line, kernel->version, text);
    if ((text = kernel_read(kernel, &kernel->group_pressure)) != NULL)
        kernel_put_pressure(line, "pressure", text);
    line_close(line, '}');
}

/* --- all of it -------------------------------------------------------------------------------- */

static const char *const pressure_names[] = {"cpu", "memory", "io"};

void kernel_open(struct kernel *kernel, struct arena *arena)
{
    *kernel = (struct kernel){
        .arena = arena,
        .text = arena_alloc(arena, KERNEL_TEXT_SIZE),
        .version = cgroup_version(),
        .meminfo = file_at("/proc/meminfo"),
        .vmstat = file_at("/proc/vmstat"),
        .diskstats = file_at("/proc/diskstats"),
        .net = file_at("/proc/self/net/dev"),
        .disks = {.room = KERNEL_DISKS,
                  .last = arena_array(arena, KERNEL_DISKS, sizeof(struct device_line))},
        .nets = {.room = KERNEL_NETS,
                 .last = arena_array(arena, KERNEL_NETS, sizeof(struct device_line))}};
    for (size_t i = 0; i < 3; i++)
        kernel->pressure[i] = file_at(arena_printf(arena, "/proc/pressure/%s", pressure_names[i]));
    for (size_t i = 0; i < sizeof group_files / sizeof group_files[0]; i++)
        *(struct kernel_file *) (void *) ((char *) kernel + group_files[i].offset) = file_at(NULL);
}

void kernel_sample(struct kernel *kernel, struct line *line)
{
    const char *text;

    if ((text = kernel_read(kernel, &kernel->meminfo)) != NULL)
        kernel_put_meminfo(line, text);
    if ((text = kernel_read(kernel, &kernel->vmstat)) != NULL)
        kernel_put_vmstat(line, text);
    line_key(line, "psi");
    line_open(line, '{');
    for (size_t i = 0; i < 3; i++)
        if ((text = kernel_read(kernel, &kernel->pressure[i])) != NULL)
            kernel_put_pressure(line, pressure_names[i], text);
    line_close(line, '}');
    if ((text = kernel_read(kernel, &kernel->diskstats)) != NULL)
        kernel_put_disks(line, &kernel->disks, text);
    if ((text = kernel_read(kernel, &kernel->net)) != NULL)
        kernel_put_net(line, &kernel->nets, text);
    if (kernel->group[0] != '\0')
        put_group(kernel, line);
}
