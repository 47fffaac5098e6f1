/* SPDX-License-Identifier: MIT */
/*
 * A server is recognised by its working directory, which every process of PostgreSQL keeps on the
 * data directory, and which still tells after the postmaster is dead or the folder was erased. The
 * directory is compared by device and inode, so that symbolic links do not matter.
 */
#include "lib/pg_processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/owned.h"

enum { TITLE_SIZE = 1024 };

static const char *const class_names[] = {
    [PG_POSTMASTER] = "postmaster",     [PG_BACKEND] = "backend",
    [PG_CHECKPOINTER] = "checkpointer", [PG_BGWRITER] = "bgwriter",
    [PG_WALWRITER] = "walwriter",       [PG_WALSENDER] = "walsender",
    [PG_WALRECEIVER] = "walreceiver",   [PG_STARTUP] = "startup",
    [PG_ARCHIVER] = "archiver",         [PG_LOGGER] = "logger",
    [PG_AUTOVACUUM] = "autovacuum",     [PG_OTHER] = "other",
};

enum { CLASS_COUNT = sizeof class_names / sizeof class_names[0] };

/* First words of the titles that PostgreSQL 13 to 18 give their auxiliary processes. */
static const struct {
    const char *words;
    enum pg_class class;
} title_table[] = {
    {"checkpointer", PG_CHECKPOINTER},
    {"background writer", PG_BGWRITER},
    {"walwriter", PG_WALWRITER},
    {"walsender", PG_WALSENDER},
    {"walreceiver", PG_WALRECEIVER},
    {"startup", PG_STARTUP},
    {"archiver", PG_ARCHIVER},
    {"logger", PG_LOGGER},
    {"autovacuum launcher", PG_AUTOVACUUM},
    {"autovacuum worker", PG_AUTOVACUUM},
    {"logical replication", PG_OTHER},
    {"parallel worker", PG_OTHER},
    {"stats collector", PG_OTHER},
};

const char *pg_class_name(enum pg_class class)
{
    return (size_t) class < CLASS_COUNT ? class_names[class] : "other";
}

enum status pg_class_from_name(const char *name, enum pg_class *ret_class, struct error *err)
{
    OWNED_BUFFER struct buffer known = BUFFER(1024);

    for (size_t i = 0; i < CLASS_COUNT; i++) {
        if (strcmp(class_names[i], name) == 0) {
            *ret_class = (enum pg_class) i;
            return STATUS_OK;
        }
        buffer_printf(&known, "%s%s", i == 0 ? "" : ", ", class_names[i]);
    }
    error_set(err, STATUS_INVALID, "no class of PostgreSQL's processes is called \"%s\"", name);
    error_hint(err, "Known classes: %s.", buffer_text(&known));
    return STATUS_INVALID;
}

static bool begins_with_words(const char *text, const char *words)
{
    size_t length = strlen(words);

    return strncmp(text, words, length) == 0 && (text[length] == '\0' || text[length] == ' ');
}

static bool auxiliary_class(const char *title, enum pg_class *ret_class)
{
    for (size_t i = 0; i < sizeof title_table / sizeof title_table[0]; i++) {
        if (begins_with_words(title, title_table[i].words)) {
            *ret_class = title_table[i].class;
            return true;
        }
    }
    return false;
}

/* A word like "10.0.0.2(51234)": where a client of TCP comes from. */
static bool is_remote_end(const char *word, size_t length)
{
    size_t digits = 0;

    if (length < 4 || word[length - 1] != ')')
        return false;
    while (digits + 2 < length && isdigit((unsigned char) word[length - 2 - digits]))
        digits++;
    return digits > 0 && digits + 2 < length && word[length - 2 - digits] == '(';
}

/* Sessions are titled "user database [local] activity" or "user database host(port) activity". */
static bool is_session(const char *title)
{
    for (const char *word = title; *word != '\0';) {
        size_t length = strcspn(word, " ");
        if ((length == 7 && memcmp(word, "[local]", 7) == 0) || is_remote_end(word, length))
            return true;
        word += length + strspn(word + length, " ");
    }
    return false;
}

enum pg_class pg_class_of_title(const char *title)
{
    enum pg_class class = PG_OTHER;
    const char *after_cluster = strstr(title, ": ");

    /* with cluster_name set, titles begin with it: "15/main: checkpointer " */
    if (auxiliary_class(title, &class) ||
        (after_cluster != NULL && auxiliary_class(after_cluster + 2, &class)))
        return class;
    return is_session(title) ? PG_BACKEND : PG_OTHER;
}

/* What a scan of /proc looks for. */
struct search {
    struct arena *arena;
    const char *data_directory;
    struct stat directory;
    bool directory_exists;
    bool unreadable;  /* its file system answers nothing: its name must do */
    pid_t postmaster; /* as postmaster.pid says, 0 when it does not */
    size_t capacity;
    struct pg_processes found;
};

static pid_t postmaster_of_file(const char *data_directory)
{
    char path[PATH_MAX], line[32] = "";

    if (snprintf(path, sizeof path, "%s/postmaster.pid", data_directory) >= (int) sizeof path)
        return 0;
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, line, sizeof line - 1) <= 0)
        return 0;
    long pid = strtol(line, NULL, 10);
    return pid > 1 && pid <= INT_MAX ? (pid_t) pid : 0;
}

static bool read_link(const char *link, char target[PATH_MAX])
{
    ssize_t length = readlink(link, target, PATH_MAX - 1);

    if (length < 0)
        return false;
    target[length] = '\0';
    return true;
}

/* A folder's name as links in /proc show it, known to the kernel without asking the file system. */
static bool resolve(const char *path, char target[PATH_MAX])
{
    OWNED_FD int fd = open(path, O_PATH | O_CLOEXEC);
    char link[64];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return fd >= 0 && read_link(link, target);
}

/* An erased folder is still known to the kernel, as "/path (deleted)". */
static bool has_name(const struct search *search, const char *link)
{
    char target[PATH_MAX];
    size_t known = strlen(search->data_directory);

    if (!read_link(link, target) || strncmp(target, search->data_directory, known) != 0)
        return false;
    return strcmp(target + known, " (deleted)") == 0 ||
           (search->unreadable && target[known] == '\0');
}

static bool runs_in_directory(const struct search *search, pid_t pid)
{
    char link[64];
    struct stat directory;

    snprintf(link, sizeof link, "/proc/%d/cwd", (int) pid);
    if (search->directory_exists && stat(link, &directory) == 0 &&
        directory.st_dev == search->directory.st_dev &&
        directory.st_ino == search->directory.st_ino)
        return true;
    return has_name(search, link);
}

/* The command line with blanks between its words; PostgreSQL writes its title over it. */
static bool read_title(pid_t pid, char title[TITLE_SIZE])
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/cmdline", (int) pid);
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, title, TITLE_SIZE - 1);
    if (length <= 0)
        return false;
    while (length > 0 && title[length - 1] == '\0')
        length--;
    for (ssize_t i = 0; i < length; i++)
        if (title[i] == '\0')
            title[i] = ' ';
    title[length] = '\0';
    return true;
}

/* What is behind "postgres: "; NULL when a title does not begin with it. */
static const char *after_prefix(const char *title)
{
    static const char prefix[] = "postgres: ";

    return strncmp(title, prefix, sizeof prefix - 1) == 0 ? title + sizeof prefix - 1 : NULL;
}

bool pg_process_class(pid_t pid, enum pg_class *ret_class)
{
    char title[TITLE_SIZE];
    const char *name = read_title(pid, title) ? after_prefix(title) : NULL;

    if (name != NULL)
        *ret_class = pg_class_of_title(name);
    return name != NULL;
}

static bool runs_postgres(pid_t pid)
{
    char path[64], target[PATH_MAX];

    snprintf(path, sizeof path, "/proc/%d/exe", (int) pid);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    char *name = strrchr(target, '/');
    return name != NULL && begins_with_words(name + 1, "postgres");
}

static void keep(struct search *search, struct pg_process process)
{
    struct pg_processes *found = &search->found;

    if (found->count == search->capacity) {
        size_t capacity = search->capacity == 0 ? 32 : search->capacity * 2;
        found->items =
            arena_grow(search->arena, found->items, found->count, capacity, sizeof *found->items);
        search->capacity = capacity;
    }
    found->items[found->count++] = process;
    if (process.class == PG_POSTMASTER) {
        found->items[found->count - 1] = found->items[0];
        found->items[0] = process;
    }
}

static void consider(struct search *search, pid_t pid)
{
    struct pg_process process = {.class = PG_OTHER};
    char title[TITLE_SIZE];

    if (!runs_in_directory(search, pid) || !read_title(pid, title))
        return;
    const char *name = after_prefix(title);
    /* what commands the server runs (archive_command) shares its directory, but is not the server
     */
    if (name == NULL && !runs_postgres(pid))
        return;
    if (process_identify(pid, &process.id, NULL) != STATUS_OK)
        return;
    process.title = arena_strdup(search->arena, name != NULL ? name : title);
    if (pid == search->postmaster || (search->unreadable && name == NULL))
        process.class = PG_POSTMASTER; /* it alone keeps its command line */
    else if (name != NULL)
        process.class = pg_class_of_title(process.title);
    keep(search, process);
}

static enum status scan(struct search *search, struct error *err)
{
    OWNED_DIR DIR *proc = opendir("/proc");

    if (proc == NULL)
        return error_system(err, "opening /proc");
    errno = 0;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL; errno = 0)
        if (isdigit((unsigned char) entry->d_name[0]))
            consider(search, (pid_t) strtol(entry->d_name, NULL, 10));
    return errno != 0 ? error_system(err, "reading /proc") : STATUS_OK;
}

enum status pg_processes_list(struct arena *arena, const char *data_directory,
                              struct pg_processes *ret_processes, struct error *err)
{
    struct search search = {.arena = arena, .data_directory = data_directory};
    char resolved[PATH_MAX];

    search.directory_exists = stat(data_directory, &search.directory) == 0;
    int problem = search.directory_exists ? 0 : errno;
    search.unreadable = problem != 0 && problem != ENOENT;
    bool sure = !search.unreadable || resolve(data_directory, resolved);
    if (search.unreadable && sure)
        search.data_directory = resolved;
    search.postmaster = postmaster_of_file(data_directory);
    enum status status = scan(&search, err);
    if (status != STATUS_OK)
        return status;
    errno = problem;
    if (search.found.count == 0 && !sure) /* it may go by another name */
        return error_system(err, "looking at the data directory %s", data_directory);
    *ret_processes = search.found;
    return STATUS_OK;
}

pid_t pg_postmaster(const char *data_directory)
{
    struct search search = {.data_directory = data_directory};
    pid_t pid = postmaster_of_file(data_directory);

    search.directory_exists = stat(data_directory, &search.directory) == 0;
    return pid > 0 && runs_in_directory(&search, pid) ? pid : 0;
}
