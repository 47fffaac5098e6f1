/* SPDX-License-Identifier: MIT */
#include "lib/ledger.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/crc32c.h"
#include "lib/owned.h"

static const char magic[16] = "ordeal-ledger-1\n";

uint32_t ledger_crc(const struct ledger_record *record)
{
    return crc32c(record, offsetof(struct ledger_record, crc));
}

/* --- names ---------------------------------------------------------------------------------- */

const char *ledger_class_name(enum ledger_class class)
{
    static const char *const names[] = {"acked", "weak", "in-doubt", "aborted", "unsent"};
    size_t index = class;

    return index < sizeof(names) / sizeof(names[0]) ? names[index] : "unknown";
}

static const char *const level_names[] = {"unknown",      "off", "local",
                                          "remote_write", "on",  "remote_apply"};
enum { LEVEL_COUNT = sizeof(level_names) / sizeof(level_names[0]) };

const char *ledger_level_name(enum ledger_level level)
{
    int index = level;

    return index >= 0 && index < LEVEL_COUNT ? level_names[index] : level_names[0];
}

enum ledger_level ledger_level_from_name(const char *name)
{
    for (int level = LEDGER_OFF; level < LEVEL_COUNT; level++)
        if (strcmp(name, level_names[level]) == 0)
            return (enum ledger_level) level;
    return LEDGER_LEVEL_UNKNOWN;
}

/* --- classification -------------------------------------------------------------------------- */

static bool is(const char *text, const char *expected)
{
    return text != NULL && strcmp(text, expected) == 0;
}

/* Severities below FATAL leave the session alive. */
static bool statement_failed(const struct ledger_evidence *evidence)
{
    return !evidence->connection_lost && is(evidence->severity, "ERROR");
}

/* Class 08 and 40003 say by themselves that the outcome is not known. */
static bool says_unknown(const char *sqlstate)
{
    return sqlstate != NULL && (strncmp(sqlstate, "08", 2) == 0 || is(sqlstate, "40003"));
}

static enum ledger_class classify_commit(const struct ledger_evidence *evidence)
{
    if (is(evidence->tag, "COMMIT"))
        return evidence->sync_wait_notice || evidence->warnings_hidden ? LEDGER_WEAK : LEDGER_ACKED;
    /* The wait begins after the local commit: whatever follows its notice cannot undo that. */
    if (evidence->sync_wait_notice)
        return LEDGER_IN_DOUBT;
    /* A failed block answers COMMIT with success and this tag. */
    if (is(evidence->tag, "ROLLBACK"))
        return LEDGER_ABORTED;
    if (statement_failed(evidence) && !says_unknown(evidence->sqlstate))
        return LEDGER_ABORTED;
    return LEDGER_IN_DOUBT;
}

enum ledger_class ledger_classify(const struct ledger_evidence *evidence)
{
    if (evidence->phase == LEDGER_COMMITTING)
        return classify_commit(evidence);
    if (evidence->phase == LEDGER_IN_TRANSACTION && statement_failed(evidence))
        return LEDGER_ABORTED;
    return LEDGER_UNSENT;
}

/* --- digest ---------------------------------------------------------------------------------- */

static uint64_t fnv1a(uint64_t hash, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char) bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Decimal digits of a number and a colon; returns the length. */
static size_t put_number(char text[21], uint64_t value)
{
    char digits[20];
    size_t count = 0;

    do {
        digits[count++] = (char) ('0' + value % 10);
        value /= 10;
    } while (value > 0);
    for (size_t i = 0; i < count; i++)
        text[i] = digits[count - 1 - i];
    text[count] = ':';
    return count + 1;
}

int64_t ledger_digest(uint64_t client, uint64_t seq, unsigned row, const char *payload,
                      size_t payload_length)
{
    const uint64_t numbers[] = {client, seq, row};
    uint64_t hash = UINT64_C(14695981039346656037);
    char text[21] = "";

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        hash = fnv1a(hash, text, put_number(text, numbers[i]));
    return (int64_t) fnv1a(hash, payload, payload_length);
}

/* --- files ----------------------------------------------------------------------------------- */

static bool terminated(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static enum status check_header(const char *path, const struct ledger_header *header,
                                struct error *err)
{
    if (memcmp(header->magic, magic, sizeof(magic)) != 0)
        return error_set(err, STATUS_INVALID, "%s is not a ledger", path);
    if (header->version != LEDGER_VERSION || header->record_size != sizeof(struct ledger_record))
        return error_set(err, STATUS_INVALID,
                         "ledger %s has version %u with records of %u bytes, known is version %d "
                         "with %zu",
                         path, header->version, header->record_size, LEDGER_VERSION,
                         sizeof(struct ledger_record));
    if (header->node_count < 1 || header->node_count > LEDGER_NODES_MAX)
        return error_set(err, STATUS_INVALID, "ledger %s names %u nodes, 1 to %d are possible",
                         path, header->node_count, LEDGER_NODES_MAX);
    bool whole = terminated(header->run, sizeof(header->run)) &&
                 terminated(header->client_node, sizeof(header->client_node));
    for (uint32_t i = 0; i < header->node_count; i++)
        whole = whole && terminated(header->nodes[i], sizeof(header->nodes[i]));
    if (!whole)
        return error_set(err, STATUS_INVALID, "ledger %s has a name without an end", path);
    return STATUS_OK;
}

/* Readers index tables with these, so a record that is out of range must not reach them. */
static bool in_range(const struct ledger_record *record, uint32_t node_count)
{
    uint8_t classes = record->kind == LEDGER_SESSION ? LEDGER_REMOTE_APPLY : LEDGER_UNSENT;

    return record->kind >= LEDGER_SESSION && record->kind <= LEDGER_END &&
           record->class <= classes && record->phase <= LEDGER_COMMITTING &&
           record->node < node_count && terminated(record->sqlstate, sizeof(record->sqlstate)) &&
           record->zero == 0 && (record->kind != LEDGER_SESSION || record->flags <= LEDGER_DIRECT);
}

static bool all_zero(const unsigned char *bytes, size_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

static enum status scan(const char *path, struct ledger *ledger, struct error *err)
{
    size_t room = (ledger->map_size - LEDGER_HEADER_SIZE) / sizeof(struct ledger_record);
    const unsigned char *base = (const unsigned char *) ledger->map + LEDGER_HEADER_SIZE;

    ledger->records = (const struct ledger_record *) base;
    for (; ledger->count < room; ledger->count++) {
        const struct ledger_record *record = &ledger->records[ledger->count];
        if (ledger_crc(record) != record->crc)
            break;
        if (!in_range(record, ledger->header.node_count))
            return error_set(err, STATUS_INVALID,
                             "record %zu of ledger %s is intact but has an impossible value "
                             "(kind %d, class %d, node %d)",
                             ledger->count, path, record->kind, record->class, record->node);
        ledger->ended = record->kind == LEDGER_END;
    }
    size_t used = ledger->count * sizeof(struct ledger_record);
    ledger->torn_tail = !all_zero(base + used, ledger->map_size - LEDGER_HEADER_SIZE - used);
    return STATUS_OK;
}

enum status ledger_open(const char *path, struct ledger *ret_ledger, struct error *err)
{
    OWNED_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        return error_system(err, "opening ledger %s", path);
    if (!S_ISREG(info.st_mode) || info.st_size < LEDGER_HEADER_SIZE)
        return error_set(err, STATUS_INVALID, "%s is too short for a ledger (%lld bytes)", path,
                         (long long) info.st_size);

    struct ledger ledger = {.map_size = (size_t) info.st_size};
    ledger.map = mmap(NULL, ledger.map_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (ledger.map == MAP_FAILED)
        return error_system(err, "mapping ledger %s", path);
    memcpy(&ledger.header, ledger.map, sizeof(ledger.header));
    enum status status = check_header(path, &ledger.header, err);
    if (status == STATUS_OK)
        status = scan(path, &ledger, err);
    if (status != STATUS_OK) {
        ledger_close(&ledger);
        return status;
    }
    *ret_ledger = ledger;
    return STATUS_OK;
}

void ledger_close(struct ledger *ledger)
{
    if (ledger->map != NULL)
        munmap(ledger->map, ledger->map_size);
    *ledger = (struct ledger){0};
}
