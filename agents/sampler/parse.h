/* SPDX-License-Identifier: MIT */
/*
 * The texts of the kernel that the sampler reads, taken apart. All functions are pure, take a
 * NUL-terminated text and survive any: what they do not understand they leave out.
 */
#ifndef ORDEAL_AGENTS_SAMPLER_PARSE_H
#define ORDEAL_AGENTS_SAMPLER_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A digit string; -1 when there is none or it does not fit. *text is moved past it. */
int64_t parse_number(const char **text);

/*
 * Lines "NAME VALUE" or "NAME: VALUE kB": meminfo, vmstat, memory.stat, memory.events,
 * memory.oom_control. values[i] is that of names[i], or -1 when there is no such line.
 */
void parse_named(const char *text, const char *const *names, size_t count, int64_t *values);

/* Pressure stall information: stalled us since boot; -1 where the kernel has no such line. */
struct pressure {
    int64_t some_us, full_us;
};
bool parse_pressure(const char *text, struct pressure *ret_pressure);

enum { DISK_FIELDS = 11, NET_FIELDS = 16, DEVICE_NAME_SIZE = 32 };

/* Counters of a line of /proc/diskstats or /proc/net/dev, in the kernel's order. */
struct device_line {
    char name[DEVICE_NAME_SIZE];
    int64_t values[NET_FIELDS];
};
/*
 * The next whole line at or after `text`: where the one after it begins, or NULL when there is none
 * any more (ret_device is untouched then). Heads and broken lines are passed over.
 */
const char *parse_disk(const char *text, struct device_line *ret_device);
const char *parse_net(const char *text, struct device_line *ret_device);

/* /proc/PID/stat */
struct process_stat {
    pid_t pid, parent;
    char state;
    int64_t cpu_ticks, rss_pages; /* user and system time of the process itself */
};
bool parse_stat(const char *text, struct process_stat *ret_stat);

/* /proc/PID/task/PID/children; at most `room`, the rest is left out. */
size_t parse_children(const char *text, pid_t *pids, size_t room);

/*
 * The group of a process from /proc/PID/cgroup, without its leading "/": of the memory controller
 * on version 1, of the one hierarchy on version 2. False when it is the root or does not fit.
 */
bool parse_cgroup(const char *text, bool version_1, char *ret_path, size_t size);

#endif
