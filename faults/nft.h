/* SPDX-License-Identifier: MIT */
/*
 * Tables of nftables that belong to one fault each.
 *
 * A fault of the network owns a table of the family inet, named after its uid, and touches nothing
 * else. Scripts are fed to `nft -f -`, which applies all of a script or nothing. Packets are
 * counted by named counters, so that they can be asked for by name.
 */
#ifndef ORDEAL_FAULTS_NFT_H
#define ORDEAL_FAULTS_NFT_H

#include <jansson.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/error.h"

enum { NFT_TABLE_SIZE = 64 };

/* "ordeal_" and the uid with "-" turned into "_". */
void nft_table_name(const char *uid, char table[NFT_TABLE_SIZE]);
/* Lines that remove the table whether it is there or not: how every script of a table begins. */
void nft_write_removal(const char *table, struct buffer *script);

MUST_CHECK enum status nft_apply(const char *script, int64_t deadline_ns, struct error *err);
/* Would this kernel take it? Changes nothing. */
MUST_CHECK enum status nft_check(const char *script, int64_t deadline_ns, struct error *err);
/*
 * The table as `nft -j list table` gives it: the array "nftables". STATUS_NOT_FOUND when there is
 * no such table.
 */
MUST_CHECK enum status nft_list(const char *table, int64_t deadline_ns, json_t **ret_objects,
                                struct error *err);
/* Packets of a named counter; -1 when the list has none of that name. */
int64_t nft_packets(const json_t *objects, const char *counter);
size_t nft_count(const json_t *objects, const char *kind); /* "rule", "chain" */

#endif
