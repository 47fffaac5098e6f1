/* SPDX-License-Identifier: MIT */
#include "agents/sampler/parse.h"

#include <limits.h>
#include <string.h>

int64_t parse_number(const char **text)
{
    const char *at = *text;
    int64_t value = 0;
    bool fits = *at >= '0' && *at <= '9';

    for (; *at >= '0' && *at <= '9'; at++)
        fits = fits && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_add_overflow(value, *at - '0', &value);
    *text = at;
    return fits ? value : -1;
}

static const char *skip_blanks(const char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    return text;
}

/* Where the next line begins, or the text's end. */
static const char *next_line(const char *text)
{
    const char *end = strchr(text, '\n');

    return end == NULL ? text + strlen(text) : end + 1;
}

void parse_named(const char *text, const char *const *names, size_t count, int64_t *values)
{
    for (size_t i = 0; i < count; i++)
        values[i] = -1;
    for (; *text != '\0'; text = next_line(text)) {
        size_t length = strcspn(text, ": \t\n");
        for (size_t i = 0; i < count; i++) {
            if (values[i] >= 0 || strncmp(names[i], text, length) != 0 || names[i][length] != '\0')
                continue;
            const char *value = skip_blanks(text + length + (text[length] == ':'));
            values[i] = parse_number(&value);
            break;
        }
    }
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" */
static int64_t total_of(const char *line)
{
    static const char mark[] = " total=";
    const char *at = strstr(line, mark), *end = strchr(line, '\n');

    if (at == NULL || (end != NULL && at > end))
        return -1;
    at += sizeof mark - 1;
    return parse_number(&at);
}

bool parse_pressure(const char *text, struct pressure *ret_pressure)
{
    struct pressure pressure = {-1, -1};

    for (; *text != '\0'; text = next_line(text)) {
        if (strncmp(text, "some ", 5) == 0)
            pressure.some_us = total_of(text);
        else if (strncmp(text, "full ", 5) == 0)
            pressure.full_us = total_of(text);
    }
    *ret_pressure = pressure;
    return pressure.some_us >= 0;
}

static bool take_values(const char *text, int64_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        text = skip_blanks(text);
        values[i] = parse_number(&text);
        if (values[i] < 0 || (*text != ' ' && *text != '\t' && *text != '\n' && *text != '\0'))
            return false;
    }
    return true;
}

static bool take_name(const char *text, size_t length, struct device_line *device)
{
    if (length == 0 || length >= sizeof device->name)
        return false;
    memcpy(device->name, text, length);
    device->name[length] = '\0';
    return true;
}

/* "   8       0 sda 1 2 3 ..." */
static bool take_disk(const char *line, struct device_line *device)
{
    int64_t numbers[2];

    if (!take_values(line, numbers, 2))
        return false;
    for (int i = 0; i < 2; i++) {
        line = skip_blanks(line);
        line += strcspn(line, " \t\n");
    }
    line = skip_blanks(line);
    size_t length = strcspn(line, " \t\n");
    return take_name(line, length, device) &&
           take_values(line + length, device->values, DISK_FIELDS);
}

/* "  eth0: 1 2 3 ..."; no blank need follow the colon, and a name may hold one ("eth0:1") */
static bool take_net(const char *line, struct device_line *device)
{
    const char *colon = NULL;

    line = skip_blanks(line);
    for (const char *at = line; *at != '\0' && *at != '\n' && *at != ' '; at++)
        if (*at == ':')
            colon = at;
    return colon != NULL && take_name(line, (size_t) (colon - line), device) &&
           take_values(colon + 1, device->values, NET_FIELDS);
}

static const char *next_device(const char *text, struct device_line *ret_device,
                               bool (*take)(const char *line, struct device_line *device))
{
    struct device_line device = {0};

    for (; *text != '\0'; text = next_line(text)) {
        if (!take(text, &device))
            continue;
        *ret_device = device;
        return next_line(text);
    }
    return NULL;
}

const char *parse_disk(const char *text, struct device_line *ret_device)
{
    return next_device(text, ret_device, take_disk);
}

const char *parse_net(const char *text, struct device_line *ret_device)
{
    return next_device(text, ret_device, take_net);
}

/* Fields of proc(5), counted from the state, which is the third. */
enum { FIELD_PARENT = 1, FIELD_UTIME = 11, FIELD_STIME = 12, FIELD_RSS = 21, STAT_FIELDS = 22 };

bool parse_stat(const char *text, struct process_stat *ret_stat)
{
    int64_t fields[STAT_FIELDS] = {0};
    int64_t pid = parse_number(&text);
    const char *at = strrchr(text, ')'); /* a name may hold blanks and brackets */

    if (pid <= 0 || pid > INT_MAX || at == NULL || at[1] != ' ' || at[2] == '\0')
        return false;
    char state = at[2];
    at += 3;
    for (int i = 1; i < STAT_FIELDS; i++) {
        at = skip_blanks(at);
        bool negative = *at == '-'; /* tpgid, nice */
        at += negative;
        fields[i] = parse_number(&at);
        if (fields[i] < 0 || (*at != ' ' && *at != '\n' && *at != '\0'))
            return false;
    }
    *ret_stat = (struct process_stat){.pid = (pid_t) pid,
                                      .parent = (pid_t) fields[FIELD_PARENT],
                                      .state = state,
                                      .cpu_ticks = fields[FIELD_UTIME] + fields[FIELD_STIME],
                                      .rss_pages = fields[FIELD_RSS]};
    return true;
}

size_t parse_children(const char *text, pid_t *pids, size_t room)
{
    size_t count = 0;

    for (text = skip_blanks(text); *text >= '0' && *text <= '9' && count < room;
         text = skip_blanks(text)) {
        int64_t pid = parse_number(&text);
        if (pid > 0 && pid <= INT_MAX)
            pids[count++] = (pid_t) pid;
    }
    return count;
}

/* "4:cpu,memory:/path" */
static bool names_memory(const char *line, size_t length)
{
    static const char name[] = "memory";

    while (length > 0) {
        size_t word = 0;
        while (word < length && line[word] != ',')
            word++;
        if (word == sizeof name - 1 && memcmp(line, name, word) == 0)
            return true;
        line += word;
        length -= word;
        if (length > 0)
            line++, length--;
    }
    return false;
}

bool parse_cgroup(const char *text, bool version_1, char *ret_path, size_t size)
{
    for (; *text != '\0'; text = next_line(text)) {
        const char *controllers = strchr(text, ':');
        const char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (path == NULL)
            return false;
        size_t named = (size_t) (path - controllers - 1);
        if (version_1 ? !names_memory(controllers + 1, named) : named != 0)
            continue;
        path += 1 + (path[1] == '/');
        size_t length = strcspn(path, "\n");
        if (length == 0 || length >= size)
            return false;
        memcpy(ret_path, path, length);
        ret_path[length] = '\0';
        return true;
    }
    return false;
}
