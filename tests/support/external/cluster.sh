#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The hosts and the operator of a cluster that Ordeal did not make; see README.md.
#
# usage: cluster.sh ROOT up                          switch, nodes, PostgreSQL, agents
#        cluster.sh ROOT down                        whatever is left of them is gone
#        cluster.sh ROOT boot NODE | off NODE | on NODE
#        cluster.sh ROOT start NODE                  its PostgreSQL, by its service manager
#        cluster.sh ROOT on_node NODE COMMAND...     as root there
#
# ROOT/pki holds the certificates and ROOT/programs the folder of ordeald; both are made by the caller.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$1" && pwd)
bin=/usr/lib/postgresql/15/bin
data=/var/lib/postgresql/15/main
databases=(n1 n2 n3)
clients=(c1 c2)
gateway=10.91.0.254 # the switch's own address: who runs `ordeal` is there, and the power agent

address_of() {
    case $1 in
    n*) echo "10.91.0.${1#n}" ;;
    c*) echo "10.91.0.1${1#c}" ;;
    esac
}

pid_of() { cat "$root/$1/pid" 2>/dev/null; } # its init, as this host knows it
alive() { local pid; pid=$(pid_of "$1") && [ -d "/proc/$pid" ]; }
in_switch() { nsenter -t "$(pid_of switch)" -n "$@"; }

wait_for() { # WHAT COMMAND...
    local what=$1 end=$((SECONDS + 20))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "$what: still not after 20 s" >&2; return 1; }
        sleep 0.02
    done
}

on_node() {
    local node=$1
    shift
    nsenter -t "$(pid_of "$node")" -m -u -i -n -p -- "$@"
}

as_postgres() {
    local node=$1
    shift
    on_node "$node" setpriv --reuid postgres --regid postgres --init-groups --reset-env "$@"
}

# ---- hosts ----

has_own_network() { [ "$(readlink /proc/self/ns/net)" != "$(readlink "/proc/$1/ns/net")" ]; }

switch_up() {
    mkdir -p "$root/switch"
    setsid unshare --net sleep infinity </dev/null >/dev/null 2>&1 &
    echo $! >"$root/switch/pid"
    wait_for "the switch's namespace" has_own_network "$!"
    in_switch ip link set lo up
    in_switch ip link add br0 type bridge
    in_switch ip addr add "$gateway/24" dev br0
    in_switch ip link set br0 up
}

# What runs as init of a node: it waits for its cable, and bash reaps what loses its parent.
node_init='
mount --bind "$1/data" /var/lib/postgresql
mount -t tmpfs none /sys/fs/cgroup # what others of this host make there
mount -t tmpfs none /tmp
mount --bind "$1/boot-id" /proc/sys/kernel/random/boot_id
hostname "$2"
echo "$4" >/proc/sys/kernel/ns_last_pid # a process id of the boot before must not name another process now
until ip link set eth0 name eth0 2>/dev/null; do sleep 0.02; done
ip link set lo up
ip addr add "$3/24" dev eth0
ip link set eth0 up
touch "$1/up"
while :; do sleep 3600 & wait $!; done
'

# The child of unshare that has become bash and is the first in its namespace; there are helpers, too.
init_of() {
    local pid
    for pid in $(cat "/proc/$1/task/$1/children"); do
        [[ $(readlink "/proc/$pid/exe") != */bash ]] || awk '/^NSpid:/ && $NF == 1 { print $2 }' "/proc/$pid/status"
    done
}
has_init() { [ -n "$(init_of "$1")" ]; }

boot() {
    local node=$1 folder=$root/$1 launcher pid
    mkdir -p "$folder/data" "$folder/state"
    rm -f "$folder/up"
    cat /proc/sys/kernel/random/uuid >"$folder/boot-id"
    setsid unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc \
        bash -c "$node_init" node-init "$folder" "$node" "$(address_of "$node")" $((RANDOM % 20 * 1000 + 1000)) \
        </dev/null >"$folder/log" 2>&1 &
    launcher=$!
    echo "$launcher" >"$folder/launcher"
    wait_for "the init of $node" has_init "$launcher"
    pid=$(init_of "$launcher")
    echo "$pid" >"$folder/pid"
    in_switch ip link add "v-$node" type veth peer name eth0 netns "$pid"
    in_switch ip link set "v-$node" master br0 up
    wait_for "$node" test -e "$folder/up"
    start_agent "$node"
}

# As its unit would at boot.
start_agent() {
    local node=$1
    setsid nsenter -t "$(pid_of "$node")" -m -u -i -n -p -- "$(cat "$root/programs")/ordeald" --node "$node" \
        --listen "$(address_of "$node"):7432" --ca "$root/pki/ca.crt" --certificate "$root/pki/$node.crt" \
        --key "$root/pki/$node.key" --state "$root/$node/state" </dev/null >>"$root/$node/agent.log" 2>&1 &
}

# The agent of the management host, which takes nodes away and brings them back.
start_power_agent() {
    mkdir -p "$root/p1/state"
    setsid nsenter -t "$(pid_of switch)" -n -- "$(cat "$root/programs")/ordeald" --node p1 --listen "$gateway:7432" \
        --ca "$root/pki/ca.crt" --certificate "$root/pki/p1.crt" --key "$root/pki/p1.key" \
        --state "$root/p1/state" </dev/null >>"$root/p1/agent.log" 2>&1 &
    echo $! >"$root/p1/pid"
}

off() { # the cable first: a host without power says goodbye to nobody
    local node=$1
    alive "$node" || return 0
    in_switch ip link del "v-$node" 2>/dev/null || true
    kill -KILL "$(pid_of "$node")"
    wait_for "the end of $node" test ! -d "/proc/$(pid_of "$node")"
}

on() {
    alive "$1" || boot "$1"
}

# ---- PostgreSQL ----

others() { # of a node, as a list of names
    local list=()
    for node in "${databases[@]}"; do [ "$node" = "$1" ] || list+=("$node"); done
    (IFS=,; echo "${list[*]}")
}

follow() { # NODE SOURCE: as a standby of it
    cat <<CONF
primary_conninfo = 'host=$(address_of "$2") user=replicator passfile=/var/lib/postgresql/pgpass application_name=$1'
primary_slot_name = '$1'
CONF
}

own_settings() {
    cat <<CONF
listen_addresses = '*'
wal_level = replica
wal_log_hints = on
wal_keep_size = 64MB
synchronous_standby_names = 'ANY 1 ($(others "$1"))'
wal_sender_timeout = 5s
wal_receiver_timeout = 5s
wal_retrieve_retry_interval = 200ms
shared_buffers = 32MB
max_wal_size = 256MB
unix_socket_directories = '/var/lib/postgresql'
CONF
}

init_primary() {
    local node=$1
    as_postgres "$node" "$bin/initdb" -D "$data" -A scram-sha-256 --pwfile=/var/lib/postgresql/admin.pass -U admin -k -N >/dev/null
    printf '%s\n' 'local all all scram-sha-256' 'host all all 10.91.0.0/24 scram-sha-256' \
        'host replication all 10.91.0.0/24 scram-sha-256' >"$root/$node/data/15/main/pg_hba.conf"
    echo "include_if_exists = '../node.conf'" >>"$root/$node/data/15/main/postgresql.conf"
    start "$node"
    # there is no standby yet that a commit could wait for
    sql "$node" "SET synchronous_commit = local" "CREATE ROLE load LOGIN PASSWORD 'load'" "CREATE ROLE replicator LOGIN REPLICATION PASSWORD 'replicator'" \
        "CREATE DATABASE app OWNER load" \
        "SELECT pg_create_physical_replication_slot(name) FROM unnest(ARRAY['n2', 'n3']) name" >/dev/null
}

init_standby() { # NODE PRIMARY
    as_postgres "$1" env PGPASSFILE=/var/lib/postgresql/pgpass "$bin/pg_basebackup" -D "$data" -h "$(address_of "$2")" \
        -U replicator -S "$1" -X stream -c fast -N
    follow "$1" "$2" >"$root/$1/data/15/main/postgresql.auto.conf"
    touch "$root/$1/data/15/main/standby.signal"
    chown -R postgres:postgres "$root/$1/data"
    start "$1"
}

prepare_folder() {
    local folder=$root/$1/data
    mkdir -p "$folder/15"
    for user in admin load replicator; do
        echo "$user" >"$folder/$user.pass"
        echo "*:*:*:$user:$user"
    done >"$folder/pgpass"
    own_settings "$1" >"$folder/15/node.conf"
    chmod 600 "$folder"/*pass
    chown -R postgres:postgres "$folder"
}

sql() { # NODE STATEMENT...: on that node, as the superuser
    local node=$1 statements=()
    shift
    for statement in "$@"; do statements+=(-c "$statement"); done
    in_switch env PGPASSFILE="$root/pgpass" PGCONNECT_TIMEOUT=2 psql -XAtq -v ON_ERROR_STOP=1 -h "$(address_of "$node")" \
        -U admin -d "${database:-postgres}" "${statements[@]}"
}

start() {
    on_node "$1" "$here/service" start
}

is_primary() { [ "$(sql "$1" "SELECT pg_is_in_recovery()" 2>/dev/null)" = f ]; }

primary() {
    for node in "${databases[@]}"; do ! is_primary "$node" || echo "$node"; done
}

streams() {
    [ "$(sql "$1" "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")" = 2 ]
}

# ---- all of it ----

up() {
    echo "*:*:*:admin:admin" >"$root/pgpass"
    chmod 600 "$root/pgpass"
    switch_up
    for node in "${databases[@]}" "${clients[@]}"; do boot "$node"; done
    start_power_agent
    for node in "${databases[@]}"; do prepare_folder "$node"; done
    init_primary n1
    init_standby n2 n1 &
    local first=$!
    init_standby n3 n1
    wait "$first"
    wait_for "replication" streams n1
}

down() {
    for node in p1 "${databases[@]}" "${clients[@]}" switch; do
        for file in pid launcher; do
            [ -s "$root/$node/$file" ] && kill -KILL "$(cat "$root/$node/$file")" 2>/dev/null || true
        done
    done
}

word=$2
shift 2
"$word" "$@"
