/* SPDX-License-Identifier: MIT */
/*
 * network.partition: packets between this node and its peers get lost, or are rejected.
 *
 * One table of nftables, named after the uid, with an input and an output chain in front of every
 * other (priority -450: also before connection tracking), and a named counter for each peer and
 * direction. Before anything else it accepts the control connection: TCP between the orchestrator's
 * address and the agent's port. What is dropped gives neither FIN nor RST: connections that exist
 * fall silent.
 *
 * The effect is measured, not assumed: each peer is called by TCP, and the counter of its rule must
 * have moved. A peer sees it better still: see witness().
 */
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "faults/fault.h"
#include "faults/needs.h"
#include "faults/nft.h"
#include "faults/tcp_probe.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/kill_point.h"
#include "lib/owned.h"

enum { PROBE_MS = 300, SCRIPT_MAX = 256 * 1024, PRIORITY = -450 };

static const struct param params[] = {
    {.name = "peers",
     .type = PARAM_NODES,
     .required = true,
     .help = "the nodes that this one is cut off from"},
    {.name = "direction",
     .type = PARAM_CHOICE,
     .choices = "in|out|both",
     .fallback = "both",
     .help = "packets from the peers, to the peers, or both"},
    {.name = "action",
     .type = PARAM_CHOICE,
     .choices = "drop|reject",
     .fallback = "drop",
     .help = "drop: silence; reject: TCP resets, else ICMP errors"},
    {.name = "port",
     .type = PARAM_INTEGER,
     .minimum = 1,
     .maximum = 65535,
     .help = "only TCP to and from this port, on either side"},
    {0},
};

/* A record, read. */
struct partition {
    const char *table, *node, *address;
    const char *control_address;
    int control_port, database_port;
    bool in, out, reject;
    int port;          /* 0: everything */
    bool served_here;  /* port: the node listens on it */
    bool served_there; /* port: one of the peers accepted a connection */
    size_t count;
    struct fault_peer *peers;
};

static bool is_table_name(const char *name)
{
    return strncmp(name, "ordeal_", 7) == 0 && strlen(name) < NFT_TABLE_SIZE &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static enum status read_peers(struct arena *arena, const json_t *list, struct partition *partition,
                              struct error *err)
{
    partition->peers = arena_array(arena, json_array_size(list), sizeof *partition->peers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct fault_peer peer = {json_text(item, "name", ""), json_text(item, "address", "")};
        if (tcp_address_family(peer.address) == 0)
            return error_set(err, STATUS_INVALID, "node %s: not an address in numbers: \"%s\"",
                             peer.name, peer.address);
        partition->peers[partition->count++] = peer;
    }
    if (partition->count == 0)
        return error_set(err, STATUS_INVALID, "record: no peers");
    return STATUS_OK;
}

/* Everything that gets into a script is checked here: addresses, numbers and the table's name. */
static enum status read_record(struct arena *arena, const json_t *record,
                               struct partition *partition, struct error *err)
{
    const char *direction = json_text(record, "direction", "");

    *partition = (struct partition){
        .table = json_text(record, "table", ""),
        .node = json_text(record, "node", ""),
        .address = json_text(record, "address", ""),
        .control_address = json_text(record, "control_address", ""),
        .control_port = (int) json_number(record, "control_port", 0),
        .database_port = (int) json_number(record, "database_port", 0),
        .in = strcmp(direction, "out") != 0,
        .out = strcmp(direction, "in") != 0,
        .reject = strcmp(json_text(record, "action", ""), "reject") == 0,
        .port = (int) json_number(record, "port", 0),
        .served_here = json_flag(record, "served_here", false),
        .served_there = json_flag(record, "served_there", false),
    };
    if (!is_table_name(partition->table))
        return error_set(err, STATUS_INVALID, "record: \"%s\" is no table of Ordeal's",
                         partition->table);
    if (tcp_address_family(partition->control_address) == 0 || partition->control_port <= 0)
        return error_set(err, STATUS_INVALID, "record: no control connection to be exempted");
    return read_peers(arena, json_object_get(record, "peers"), partition, err);
}

/* --- the ruleset ----------------------------------------------------------------------------- */

static const char *family_word(const char *address)
{
    return tcp_address_family(address) == AF_INET6 ? "ip6" : "ip";
}

static void write_verdict(const struct partition *partition, const char *match, const char *counter,
                          struct buffer *script)
{
    if (!partition->reject) {
        buffer_printf(script, "%s counter name \"%s\" drop\n", match, counter);
        return;
    }
    buffer_printf(script, "%s meta l4proto tcp counter name \"%s\" reject with tcp reset\n", match,
                  counter);
    if (partition->port == 0)
        buffer_printf(script, "%s counter name \"%s\" reject with icmpx type admin-prohibited\n",
                      match, counter);
}

/* side: "saddr" in the input chain, "daddr" in the output chain. */
static void write_peer(const struct partition *partition, size_t index, const char *side,
                       const char *counter, struct buffer *script)
{
    static const char *const ends[] = {"sport", "dport"};
    const char *address = partition->peers[index].address;
    char match[160];

    if (partition->port == 0) {
        snprintf(match, sizeof match, "%s %s %s", family_word(address), side, address);
        write_verdict(partition, match, counter, script);
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(match, sizeof match, "%s %s %s tcp %s %d", family_word(address), side, address,
                 ends[i], partition->port);
        write_verdict(partition, match, counter, script);
    }
}

static void write_chain(const struct partition *partition, bool input, struct buffer *script)
{
    const char *word = input ? "in" : "out", *side = input ? "saddr" : "daddr";
    char counter[32];

    buffer_printf(script, "chain %s {\ntype filter hook %s priority %d; policy accept;\n", word,
                  input ? "input" : "output", PRIORITY);
    buffer_printf(script, "%s %s %s tcp %s %d counter name \"control_%s\" accept\n",
                  family_word(partition->control_address), side, partition->control_address,
                  input ? "dport" : "sport", partition->control_port, word);
    /* as ARP is not touched, so its sister: the exempted connection may need it */
    buffer_puts(script, "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n");
    /* what the reject rules answer must come through: to ourselves, and to the peer */
    if (partition->reject && input)
        buffer_puts(script, "iif \"lo\" accept\n");
    if (partition->reject && !input)
        buffer_puts(script, "tcp flags & rst == rst accept\n"
                            "icmp type destination-unreachable accept\n"
                            "icmpv6 type destination-unreachable accept\n");
    for (size_t i = 0; i < partition->count; i++) {
        snprintf(counter, sizeof counter, "%s_%zu", word, i);
        write_peer(partition, i, side, counter, script);
    }
    buffer_puts(script, "}\n");
}

static void write_counters(const struct partition *partition, const char *word,
                           struct buffer *script)
{
    buffer_printf(script, "counter control_%s { }\n", word);
    for (size_t i = 0; i < partition->count; i++)
        buffer_printf(script, "counter %s_%zu { }\n", word, i);
}

static enum status write_ruleset(const struct partition *partition, struct buffer *script,
                                 struct error *err)
{
    nft_write_removal(partition->table, script);
    buffer_printf(script, "table inet %s {\n", partition->table);
    if (partition->in)
        write_counters(partition, "in", script);
    if (partition->out)
        write_counters(partition, "out", script);
    if (partition->in)
        write_chain(partition, true, script);
    if (partition->out)
        write_chain(partition, false, script);
    buffer_puts(script, "}\n");
    if (script->overflow)
        return error_set(err, STATUS_INVALID, "too many peers: the ruleset exceeds %d bytes",
                         SCRIPT_MAX);
    return STATUS_OK;
}

/* How many rules write_ruleset() makes. */
static size_t rules_expected(const struct partition *partition)
{
    size_t of_peer = partition->port != 0 || partition->reject ? 2 : 1;
    size_t incoming = 2 + (partition->reject ? 1 : 0) + partition->count * of_peer;
    size_t outgoing = 2 + (partition->reject ? 3 : 0) + partition->count * of_peer;

    return (partition->in ? incoming : 0) + (partition->out ? outgoing : 0);
}

/* --- supported and prepare ------------------------------------------------------------------- */

static enum status add_peers(const struct fault_context *context, const json_t *names,
                             json_t *record, struct error *err)
{
    json_t *peers = json_array();

    json_object_set_new(record, "peers", peers);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const char *address = name == NULL ? NULL : context_address(context, name);
        if (address == NULL)
            return error_set(err, STATUS_INVALID, "peers: the topology has no node \"%s\"",
                             name == NULL ? "" : name);
        if (strcmp(name, context->node) != 0)
            json_array_append_new(peers, json_pack("{s:s, s:s}", "name", name, "address", address));
    }
    if (json_array_size(peers) > 0)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "peers: no node but %s itself", context->node);
}

static enum status build_record(const struct fault_context *context, const json_t *values,
                                json_t **ret_record, struct error *err)
{
    char table[NFT_TABLE_SIZE];

    if (context->control_address == NULL) {
        error_set(err, STATUS_UNSUPPORTED, "the control connection's address is not known");
        error_hint(err, "Without it the connection cannot be exempted. Connect over TCP.");
        return STATUS_UNSUPPORTED;
    }
    nft_table_name(context->uid, table);
    OWNED_JSON json_t *record = json_pack(
        "{s:s, s:s, s:s?, s:s, s:i, s:i, s:s, s:s, s:I}", "table", table, "node", context->node,
        "address", context_address(context, context->node), "control_address",
        context->control_address, "control_port", context->control_port, "database_port",
        context->database_port, "direction", json_text(values, "direction", "both"), "action",
        json_text(values, "action", "drop"), "port", (json_int_t) json_number(values, "port", 0));
    enum status status = add_peers(context, json_object_get(values, "peers"), record, err);
    if (status == STATUS_OK)
        *ret_record = json_incref(record);
    return status;
}

static enum status supported(const struct fault_context *context, const json_t *values,
                             struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_BUFFER struct buffer script = BUFFER(SCRIPT_MAX);
    OWNED_JSON json_t *record = NULL;
    struct partition partition;
    enum status status = needs_program("nft", "nftables", err);

    if (status == STATUS_OK)
        status = needs_capability(CAP_NET_ADMIN, "CAP_NET_ADMIN", err);
    if (status == STATUS_OK)
        status = build_record(context, values, &record, err);
    if (status == STATUS_OK)
        status = read_record(arena, record, &partition, err);
    if (status == STATUS_OK)
        status = write_ruleset(&partition, &script, err);
    if (status != STATUS_OK)
        return status;
    if (nft_check(buffer_text(&script), context->deadline_ns, err) == STATUS_OK)
        return STATUS_OK;
    error_context(err, "this kernel does not take the ruleset");
    error_hint(err, "It needs nf_tables with the family inet, counters and reject.");
    if (err != NULL)
        err->code = STATUS_UNSUPPORTED;
    return STATUS_UNSUPPORTED;
}

/* proc_net_tcp(5): "sl: address:PORT address:port STATE ..." in hexadecimal; 0A is LISTEN. */
static bool is_listener(const char *line, int port)
{
    const char *local = strchr(line, ':');
    const char *colon = local == NULL ? NULL : strchr(local + 1, ':');
    const char *remote = colon == NULL ? NULL : strchr(colon + 1, ':');
    const char *state = remote == NULL ? NULL : strchr(remote, ' ');

    return state != NULL && strtoul(colon + 1, NULL, 16) == (unsigned long) port &&
           strtoul(state, NULL, 16) == 0x0a;
}

static bool listens_in(const char *path, int port)
{
    OWNED_FILE FILE *file = fopen(path, "re");
    char line[512];

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (is_listener(line, port))
            return true;
    return false;
}

static enum status probe_peers(struct arena *arena, const struct partition *partition,
                               struct tcp_probe **ret_probes, struct error *err)
{
    struct tcp_probe *probes = arena_array(arena, partition->count, sizeof *probes);

    for (size_t i = 0; i < partition->count; i++)
        probes[i] = (struct tcp_probe){.address = partition->peers[i].address,
                                       .port = partition->port != 0 ? partition->port
                                                                    : partition->control_port};
    *ret_probes = probes;
    return tcp_probe_all(probes, partition->count, PROBE_MS, err);
}

/* A port that nobody serves can be cut, but nothing is lost by it: see observe(). */
static enum status look_who_serves(struct arena *arena, json_t *record, struct error *err)
{
    struct partition partition;
    struct tcp_probe *probes = NULL;
    bool there = false;
    enum status status = read_record(arena, record, &partition, err);

    if (status != STATUS_OK || partition.port == 0)
        return status;
    status = probe_peers(arena, &partition, &probes, err);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < partition.count; i++)
        there = there || probes[i].outcome == TCP_CONNECTED;
    bool here = listens_in("/proc/self/net/tcp", partition.port) ||
                listens_in("/proc/self/net/tcp6", partition.port);
    json_object_set_new(record, "served_here", json_boolean(here));
    json_object_set_new(record, "served_there", json_boolean(there));
    return STATUS_OK;
}

static enum status prepare(const struct fault_context *context, const json_t *values,
                           json_t **ret_record, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *record = NULL;
    enum status status = build_record(context, values, &record, err);

    if (status == STATUS_OK)
        status = look_who_serves(arena, record, err);
    if (status == STATUS_OK)
        *ret_record = json_incref(record);
    return status;
}

/* --- inject and undo ------------------------------------------------------------------------- */

static enum status inject(const struct fault_context *context, const json_t *record,
                          struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_BUFFER struct buffer script = BUFFER(SCRIPT_MAX);
    struct partition partition;
    enum status status = read_record(arena, record, &partition, err);

    if (status == STATUS_OK)
        status = write_ruleset(&partition, &script, err);
    if (status == STATUS_OK)
        status = nft_apply(buffer_text(&script), context->deadline_ns, err);
    KILL_POINT("inside-inject"); /* one transaction: there is no half of it */
    return status;
}

static enum status undo(const struct fault_context *context, const json_t *record,
                        struct error *err)
{
    OWNED_BUFFER struct buffer script = BUFFER(SCRIPT_MAX);
    const char *table = json_text(record, "table", "");

    if (!is_table_name(table))
        return error_set(err, STATUS_INVALID, "record: \"%s\" is no table of Ordeal's", table);
    nft_write_removal(table, &script);
    enum status status = nft_apply(buffer_text(&script), context->deadline_ns, err);
    KILL_POINT("inside-undo");
    return status;
}

/* --- observe --------------------------------------------------------------------------------- */

struct tally {
    size_t cut, open, unproven;
    int64_t packets;
};

/* Has traffic come through? With reject a refusal is what the rule itself answers. */
static bool comes_through(const struct partition *partition, enum tcp_outcome outcome)
{
    return outcome == TCP_CONNECTED || (outcome == TCP_REFUSED && !partition->reject);
}

static int64_t packets_of(const struct partition *partition, const json_t *objects, size_t index)
{
    char counter[32];
    int64_t packets = 0, one = 0;

    if (partition->in) {
        snprintf(counter, sizeof counter, "in_%zu", index);
        one = nft_packets(objects, counter);
        packets += one > 0 ? one : 0;
    }
    if (partition->out) {
        snprintf(counter, sizeof counter, "out_%zu", index);
        one = nft_packets(objects, counter);
        packets += one > 0 ? one : 0;
    }
    return packets;
}

static struct tally count_peers(const struct partition *partition, const struct tcp_probe *probes,
                                const json_t *objects)
{
    struct tally tally = {0};

    for (size_t i = 0; i < partition->count; i++) {
        int64_t packets = packets_of(partition, objects, i);
        tally.packets += packets;
        if (comes_through(partition, probes[i].outcome))
            tally.open++;
        else if (packets > 0)
            tally.cut++;
        else
            tally.unproven++;
    }
    return tally;
}

static enum effect judge(const struct partition *partition, const struct tally *tally, bool whole)
{
    if (tally->cut == partition->count)
        return whole ? EFFECT_ACTIVE : EFFECT_PARTIAL;
    if (tally->cut > 0)
        return EFFECT_PARTIAL;
    return tally->open > 0 ? EFFECT_ABSENT : EFFECT_UNKNOWN;
}

static bool cuts_nothing(const struct partition *partition, struct observation *observation)
{
    if (partition->port == 0 || partition->served_here || partition->served_there)
        return false;
    observation_set(observation, EFFECT_ABSENT, NULL,
                    "the rule matches nothing: port %d is served neither by %s nor by a peer",
                    partition->port, partition->node);
    return true;
}

static void describe(const struct partition *partition, const struct tcp_probe *probes,
                     const json_t *objects, struct observation *observation)
{
    struct tally tally = count_peers(partition, probes, objects);
    size_t rules = nft_count(objects, "rule"), expected = rules_expected(partition);
    json_t *numbers =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "peers", (json_int_t) partition->count, "cut",
                  (json_int_t) tally.cut, "open", (json_int_t) tally.open, "packets",
                  (json_int_t) tally.packets, "rules", (json_int_t) rules, "rules_expected",
                  (json_int_t) expected);
    json_t *connects = json_object();

    for (size_t i = 0; i < partition->count; i++)
        json_object_set_new(connects, partition->peers[i].name,
                            json_string(tcp_outcome_name(probes[i].outcome)));
    json_object_set_new(numbers, "connects", connects);
    observation_set(observation, judge(partition, &tally, rules == expected), numbers,
                    "%zu of %zu peers are cut off, %zu still answer, %lld packets matched, %zu of "
                    "%zu rules in place",
                    tally.cut, partition->count, tally.open, (long long) tally.packets, rules,
                    expected);
}

static enum status observe(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    OWNED_JSON json_t *before = NULL, *after = NULL;
    struct partition partition;
    struct tcp_probe *probes = NULL;
    enum status status = read_record(arena, record, &partition, err);

    if (status == STATUS_OK)
        status = nft_list(partition.table, context->deadline_ns, &before, err);
    if (status == STATUS_NOT_FOUND) {
        observation_set(ret_observation, EFFECT_ABSENT, NULL, "there is no table inet %s",
                        partition.table);
        return STATUS_OK;
    }
    if (status != STATUS_OK || cuts_nothing(&partition, ret_observation))
        return status;
    status = probe_peers(arena, &partition, &probes, err);
    if (status == STATUS_OK)
        status = nft_list(partition.table, context->deadline_ns, &after, err);
    if (status == STATUS_OK)
        describe(&partition, probes, after, ret_observation);
    return status;
}

/* --- witness --------------------------------------------------------------------------------- */

static bool is_peer(const struct partition *partition, const char *node)
{
    for (size_t i = 0; i < partition->count; i++)
        if (strcmp(partition->peers[i].name, node) == 0)
            return true;
    return false;
}

/*
 * The port by which the witness calls the target, 0 when there is none that would tell. From the
 * orchestrator's own address the agent's port is exempt.
 */
static int port_to_call(const struct fault_context *context, const struct partition *partition)
{
    const char *own = context_address(context, context->node);

    if (partition->port != 0)
        return partition->served_here ? partition->port : 0;
    if (own == NULL || strcmp(own, partition->control_address) != 0)
        return partition->control_port;
    return partition->database_port;
}

static enum effect judge_call(const struct partition *partition, int port, enum tcp_outcome outcome)
{
    if (comes_through(partition, outcome))
        return EFFECT_ABSENT;
    /* a database that is down refuses as well */
    if (outcome == TCP_REFUSED && port != partition->control_port)
        return EFFECT_UNKNOWN;
    return EFFECT_ACTIVE;
}

static enum status call_target(const struct partition *partition, int port, const char *witness,
                               struct observation *ret_observation, struct error *err)
{
    enum tcp_outcome outcome = TCP_SILENT;
    enum status status = tcp_probe(partition->address, port, PROBE_MS, &outcome, err);

    if (status != STATUS_OK)
        return status;
    observation_set(ret_observation, judge_call(partition, port, outcome),
                    json_pack("{s:s}", "connect", tcp_outcome_name(outcome)),
                    "connect from %s to %s port %d: %s", witness, partition->address, port,
                    tcp_outcome_name(outcome));
    return STATUS_OK;
}

static enum status witness(const struct fault_context *context, const json_t *record,
                           struct observation *ret_observation, struct error *err)
{
    OWNED_ARENA struct arena *arena = arena_new();
    struct partition partition;
    enum status status = read_record(arena, record, &partition, err);

    if (status != STATUS_OK || cuts_nothing(&partition, ret_observation))
        return status;
    int port = port_to_call(context, &partition);
    if (is_peer(&partition, context->node) && port > 0)
        return call_target(&partition, port, context->node, ret_observation, err);
    observation_set(ret_observation, EFFECT_UNKNOWN, NULL,
                    "%s cannot tell: it is no peer of %s, or has no port to call", context->node,
                    partition.node);
    return STATUS_OK;
}

const struct fault fault_network_partition = {
    .abi = FAULT_ABI,
    .name = "network.partition",
    .summary = "packets between a node and its peers are dropped or rejected",
    .executor = EXECUTE_NODE,
    .holds = true,
    .reversible = true,
    .loses = "nothing by itself; a primary that is cut off may go on acknowledging what its "
             "synchronous setting does not wait for",
    .excludes = "network",
    .params = params,
    .supported = supported,
    .prepare = prepare,
    .inject = inject,
    .observe = observe,
    .undo = undo,
    .witness = witness,
};
