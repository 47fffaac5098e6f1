#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A lab comes up, is seen, goes down and leaves nothing; also when `up` was killed at any moment; a second
# `up` changes nothing; labs live side by side; what a host lacks is refused before anything is changed.
. tests/support/lab.sh "$1" "t-updown-$$"

host_view() { # what a lab must never change
    ip -o link | sed -E 's/^[0-9]+: //; s/ (qlen|state) .*//' | sort
    ip netns list
    sort /proc/self/mounts
    sysctl -n net.ipv4.ip_forward
}

groups() { find /sys/fs/cgroup -type d -path "*/ordeal-$1*"; }
processes() { groups "$1" | while read -r group; do cat "$group/cgroup.procs" 2>/dev/null; done | sort -nu; }
namespaces() { for pid in $(processes "$1"); do readlink /proc/"$pid"/ns/* 2>/dev/null; done | sort -u; }
loops() { cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -F "$labs/$1/" || true; }

nothing_left() { # NAME
    [ -z "$(processes "$1")" ] || fail "processes: $(processes "$1")"
    [ -z "$(groups "$1")" ] || fail "control groups: $(groups "$1")"
    [ -z "$(loops "$1")" ] || fail "loop devices: $(loops "$1")"
    [ ! -e "$labs/$1" ] || fail "state folder: $(find "$labs/$1")"
    diff <(host_view) "$work/before" || fail "the host's network or mounts differ"
}

host_view >"$work/before"

# ---- up, and what it promises ----
lab_up
says '^lab .* is up after [0-9.]+ s, topology .*/topology.yaml$'
took=$(sed -nE 's/^lab .* is up after ([0-9.]+) s.*/\1/p' "$work/out")
diff <(host_view) "$work/before" || fail "a lab shows in the host's network or mounts"
[ "$(loops "$lab" | wc -l)" -eq 7 ] || fail "7 volumes expected: $(loops "$lab")"
[ "$(sql n1 "SELECT string_agg(application_name || ' ' || sync_state, ',' ORDER BY 1) FROM pg_stat_replication
    WHERE state = 'streaming'" | tr ',' '\n' | sort | xargs)" = "n2 quorum n3 quorum" ] || fail "standbys"
for setting in "data_checksums on" "wal_log_hints on" "ssl on" "synchronous_commit on" "fsync on" \
    "password_encryption scram-sha-256"; do
    [ "$(sql n1 "SHOW ${setting% *}")" = "${setting#* }" ] || fail "$setting"
done
for node in n1 n2 n3; do
    others=$(printf '%s\n' n1 n2 n3 | grep -v $node | sed 's/.*/"&"/' | paste -sd, | sed 's/,/, /')
    [ "$(sql $node 'SHOW synchronous_standby_names')" = "ANY 1 ($others)" ] || fail "sync set of $node"
done
[ "$(sql n1 "SELECT bool_and(active) FROM pg_replication_slots")" = t ] || fail "slots"

# ---- a node is a host of its own ----
[ "$(on n2 hostname)" = n2 ] || fail hostname
[ "$(on n1 cat /proc/sys/kernel/random/boot_id)" != "$(on n2 cat /proc/sys/kernel/random/boot_id)" ] || fail "boot ids"
[ "$(on n2 sh -c 'for i in /proc/[0-9]*; do cat $i/comm; done 2>/dev/null | grep -c ordeal-node')" = 1 ] || fail "pids"
[ "$(on n1 ls /sys/class/net | xargs)" = "eth0 lo" ] || fail "the host's links in /sys: $(on n1 ls /sys/class/net)"
expect 1 on n1 touch /etc/ordeal-test
says 'Read-only file system'
expect 1 on n1 touch /usr/ordeal-test
on n1 touch /tmp/ordeal-test /run/ordeal-test /dev/shm/ordeal-test /var/lib/ordeal/ordeal-test
expect 2 on n2 ls /tmp/ordeal-test /dev/shm/ordeal-test
[ "$(on n1 stat -f -c %T /var/lib/ordeal /var/lib/postgresql | sort -u)" = xfs ] || fail "volumes"
expect 0 "$ordeal" lab exec --name "$lab" n1 -- stat -c %a /var/lib/ordeal/secrets/admin.pass
says '^600$'
expect 1 on n1 setpriv --reuid postgres --regid postgres --init-groups cat /var/lib/ordeal/secrets/admin.pass
limit=$(cat "/sys/fs/cgroup/memory/ordeal-$lab/n1/postgres/memory.limit_in_bytes" \
    "/sys/fs/cgroup/ordeal-$lab/n1/postgres/memory.max" 2>/dev/null) || true
[ "$limit" = $((768 * 1024 * 1024)) ] || fail "memory limit $limit"
postmaster=$(on n1 head -n 1 /var/lib/postgresql/15/main/postmaster.pid)
on n1 grep -q "ordeal-$lab/n1/postgres" "/proc/$postmaster/cgroup" || fail "PostgreSQL is not in its group"

# no password, no TLS: no way in
expect 2 on n2 env PGSSLMODE=disable psql -XAtqw -h 10.77.0.1 -U ordeal_load -d ordeal -c 'SELECT 1'
says 'no encryption|pg_hba.conf'
expect 2 on n2 psql -XAtqw -h 10.77.0.1 -U ordeal_load -d ordeal -c 'SELECT 1'
says 'no password supplied'
on c1 sh -c 'PGPASSWORD=$(cat /var/lib/ordeal/secrets/load.pass) PGSSLMODE=verify-full \
    PGSSLROOTCERT=/var/lib/ordeal/pki/ca.crt psql -XAtq -h 10.77.0.1 -U ordeal_load -d ordeal \
    -c "CREATE TABLE t (i int)" -c "DROP TABLE t"' || fail "the workload's user cannot work"

# ---- exec, status, a second up ----
expect 7 on n3 sh -c 'exit 7'
expect 143 on n3 sh -c 'kill -TERM $$'
expect 4 on n9 true
says 'no node "n9"'
expect 0 "$ordeal" lab status --name "$lab"
says '^n1 +a +10.77.0.1 +on .* answers +primary, timeline 1$'
says '^n2 +b .* standby, timeline 1$'
status=$("$ordeal" lab status --name "$lab" --json | tr -d ' \n')
for text in '"up":true' '"name":"n1"' '"name":"p1"' '"role":"primary"' '"role":"standby"'; do
    [[ $status == *"$text"* ]] || fail "status --json lacks $text: $status"
done
[ "$(grep -o '"agent":true' <<<"$status" | wc -l)" -eq 5 ] || fail "status --json: $status"
boot=$(on n1 cat /proc/sys/kernel/random/boot_id)
expect 4 "$ordeal" lab up --name "$lab"
says 'is up already, nothing was changed'
[ "$(on n1 cat /proc/sys/kernel/random/boot_id)" = "$boot" ] || fail "a second up changed something"

# ---- another lab beside it ----
other=$lab-b
"$ordeal" lab up --name "$other" 2>/dev/null | cat >"$work/piped" || fail "a second lab"
grep -q "lab $other is up" "$work/piped" || fail "up in a pipe"
expect 0 "$ordeal" lab status --name "$other"
expect 0 "$ordeal" lab exec --name "$other" n1 -- psql -XAtq -U ordeal_admin -d postgres -c 'CREATE TABLE only_here ()'
[ -z "$(sql n1 "SELECT to_regclass('only_here')")" ] || fail "the labs share a server"
"$ordeal" lab down --name "$other" >/dev/null
nothing_left_of=$(processes "$other")$(groups "$other")$(loops "$other")
[ -z "$nothing_left_of" ] || fail "$nothing_left_of"
expect 0 "$ordeal" lab status --name "$lab"
says 'primary, timeline 1'

# ---- down ----
namespaces "$lab" >"$work/namespaces"
processes "$lab" >"$work/processes"
[ "$(wc -l <"$work/processes")" -gt 20 ] || fail "few processes: $(cat "$work/processes")"
expect 0 "$ordeal" lab down --name "$lab"
says 'is down, nothing is left of it'
nothing_left "$lab"
while read -r pid; do
    state=$(sed -E 's/.*\) (.).*/\1/' "/proc/$pid/stat" 2>/dev/null || echo gone)
    [ "$state" = gone ] || [ "$state" = Z ] || fail "process $pid is left in state $state"
done <"$work/processes"
host=$(readlink /proc/self/ns/*)
grep -vxF "$host" "$work/namespaces" >"$work/own" || fail "the lab had no namespaces of its own"
for stat in /proc/[0-9]*/stat; do # a zombie still shows the namespaces that it had
    grep -qE '\) Z ' "$stat" 2>/dev/null || readlink "${stat%stat}"ns/* 2>/dev/null || true
done >"$work/now"
grep -xFf "$work/own" "$work/now" >"$work/left" && fail "namespaces are left: $(cat "$work/left")"
expect 0 "$ordeal" lab down --name "$lab"
says 'is not up'

# ---- killed at any moment ----
# right after each step that it tells of, and before the first; it may be through by then: then it is up
for step in '' 'certificates issued' 'volumes made' 'switch up' 'nodes booted' 'agents started' \
    'PostgreSQL initialised' 'servers started'; do
    : >"$work/steps"
    "$ordeal" lab up --name "$lab" >/dev/null 2>"$work/steps" &
    up=$!
    [ -z "$step" ] || until_ok 20 grep -q "$step" "$work/steps"
    kill -9 $up 2>/dev/null || true
    wait $up 2>/dev/null || true
    if [ -e "$labs/$lab" ]; then
        expect 4 "$ordeal" lab up --name "$lab"
        says 'half up|is up already'
    fi
    expect 0 "$ordeal" lab down --name "$lab"
    nothing_left "$lab"
done
"$ordeal" lab up --name "$lab" >/dev/null 2>"$work/err" &
up=$!
until_ok 10 test -e "$labs/$lab/lab.json"
kill -INT $up
status=0
wait $up || status=$?
[ "$status" -eq 3 ] || fail "interrupted: exit $status: $(cat "$work/err")"
nothing_left "$lab"

# ---- refused before anything is changed ----
sed 's/data: 2GiB/data: 900000GiB/' topologies/lab-quorum.yaml >"$work/huge.yaml"
expect 4 "$ordeal" lab up -t "$work/huge.yaml" --name "$lab"
says 'too little disk'
says 'hint: .*smaller volumes'
sed 's/memory: 768MiB/memory: 90000GiB/' topologies/lab-quorum.yaml >"$work/fat.yaml"
expect 4 "$ordeal" lab up -t "$work/fat.yaml" --name "$lab"
says 'too little memory'
sed 's/version: 15/version: 13/' topologies/lab-quorum.yaml >"$work/old.yaml"
if [ ! -e /usr/lib/postgresql/13/bin ]; then
    expect 4 "$ordeal" lab up -t "$work/old.yaml" --name "$lab"
    says 'package postgresql-13'
fi
sed 's/zone: b/zoen: b/' topologies/lab-quorum.yaml >"$work/typo.yaml"
"$ordeal" lab up -t "$work/typo.yaml" --name "$lab" 2>"$work/err" && fail "a typo was accepted"
grep -qE 'typo.yaml:[0-9]+:[0-9]+: .*zoen' "$work/err" || fail "$(cat "$work/err")"
nothing_left "$lab"

echo "table: lab up took $took s"
