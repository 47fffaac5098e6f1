#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# An HA manager, outside of Ordeal and as small as can be. It asks the primary every 100 ms, and when it has
# not answered five times, promotes the standby that is ahead, points the other one to it and, unless
# told to promote only, brings the old primary back by pg_rewind. It does that once.
#
# usage: failover.sh ROOT PRIMARY [promote-only]
#        failover.sh ROOT PRIMARY rejoin CHOSEN      only the last part
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$1 primary=$2 mode=${3-}
data=/var/lib/postgresql/15/main
bin=/usr/lib/postgresql/15/bin

cluster() { "$here/cluster.sh" "$root" "$@"; }
sql() { cluster sql "$@"; }
say() { echo "$(date +%T.%3N) $*"; }

standbys=()
for node in n1 n2 n3; do [ "$node" = "$primary" ] || standbys+=("$node"); done

until_true() { # STATEMENT that gives t, on NODE
    until [ "$(sql "$1" "$2")" = t ]; do sleep 0.02; done
}

wait_for_death() {
    local misses=0
    say "watching $primary"
    touch "$root/failover-watches"
    while [ "$misses" -lt 5 ]; do
        if timeout 1 "$here/cluster.sh" "$root" sql "$primary" "SELECT 1" >/dev/null 2>&1; then misses=0; else misses=$((misses + 1)); fi
        sleep 0.1
    done
    say "$primary does not answer"
}

# Positions that still move cannot be compared: the receivers end first.
elect() {
    local best= best_lsn=0
    for node in "${standbys[@]}"; do
        sql "$node" "ALTER SYSTEM SET primary_conninfo = ''" "SELECT pg_reload_conf()" >/dev/null
    done
    for node in "${standbys[@]}"; do
        until_true "$node" "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)"
        local lsn
        lsn=$(sql "$node" "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint")
        [ "$lsn" -le "$best_lsn" ] || { best=$node best_lsn=$lsn; }
    done
    chosen=$best
    for node in "${standbys[@]}"; do [ "$node" = "$chosen" ] || other=$node; done
}

follow() { # NODE of the chosen one, while it runs
    cluster follow "$1" "$chosen" | while read -r setting _ value; do
        sql "$1" "ALTER SYSTEM SET $setting = $value"
    done
    sql "$1" "SELECT pg_reload_conf()" >/dev/null
}

promote() {
    sql "$chosen" "SELECT pg_promote()" "SELECT pg_create_physical_replication_slot('$other')" \
        "SELECT pg_create_physical_replication_slot('$primary')" "CHECKPOINT" >/dev/null
    follow "$other"
    say "promoted $chosen"
}

rejoin() {
    local folder=$root/$primary/data/15/main
    cluster on_node "$primary" "$here/service" stop 2>/dev/null || true # it is dead: nothing to stop
    cluster as_postgres "$primary" env PGPASSFILE=/var/lib/postgresql/pgpass "$bin/pg_rewind" -D "$data" \
        --source-server="host=$(cluster address_of "$chosen") user=admin dbname=postgres"
    cluster follow "$primary" "$chosen" >"$folder/postgresql.auto.conf"
    touch "$folder/standby.signal"
    chown postgres:postgres "$folder/standby.signal" "$folder/postgresql.auto.conf"
    cluster start "$primary"
    sql "$primary" "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots" >/dev/null
    say "$primary follows $chosen"
}

if [ "$mode" = rejoin ]; then
    chosen=$4
else
    wait_for_death
    elect
    promote
fi
[ "$mode" = promote-only ] || rejoin
