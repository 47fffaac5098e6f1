#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What is left on a node is named at the end of a run, with the command that removes it; those commands, run as they
# are printed, make the nodes clean. After a run to its end, after an interrupted one, and after the orchestrator's death.
. tests/support/lab.sh "$1" "t-residue-$$"

cat >"$work/s.yaml" <<'END'
schema: ordeal/scenario-1
title: Nothing but what is planted
workload: { clients: 2, rate: 50/s }
baseline: { for: 1s }
method:
  - { name: wait, pause: 3s }
recovery: { timeout: 30s, settle: 0s }
checks: { durability: {} }
END

begin() { # NAME: in the background, until the method has begun; $pid is the orchestrator
    "$ordeal" run "$work/s.yaml" -t "$topology" -o "$work/$1" >"$work/$1.out" 2>"$work/$1.err" &
    pid=$!
    until_ok 40 grep -qs '"phase":"method"' "$work/$1/journal.ndjson"
}
ended() { # CODE NAME
    local status=0
    wait "$pid" || status=$?
    [ "$status" -eq "$1" ] || { cat "$work/$2.out" "$work/$2.err"; fail "exit $status, not $1"; }
}
told() { # NODE WHAT COMMAND: in the summary, one below the other
    grep -F -A 1 -- "$1 " "$work/out" | grep -A 1 -E "^ *$1 +.*$2" | grep -qE "on $1: $3" && return
    cat "$work/out"
    fail "not told: $1, $2, $3"
}
remedies() { # runs what was printed, as it was printed; the orchestrator's own command on this host
    grep -E '^ +on (n[123]|c1|p1): ' "$work/out" >"$work/remedies" || fail "no remedy was printed"
    while read -r _ node command; do
        "$ordeal" lab exec --name "$lab" "${node%:}" -- sh -c "$command" >"$work/did" 2>&1 </dev/null || {
            cat "$work/did"
            fail "on $node $command"
        }
    done <"$work/remedies"
}
quiet() { # NODE: a process in its background, prints its pid
    on "$1" sh -c 'sleep 300 >/dev/null 2>&1 & echo $!'
}

lab_up
topology=$labs/$lab/topology.yaml

# ---- a run that goes to its end ----
begin whole
stopped=$(quiet n2)
on n2 kill -STOP "$stopped"
on n1 nft add table inet ordeal_left
on n1 nft add chain inet ordeal_left c '{ type filter hook input priority 0; }'
on n3 iptables-nft -A INPUT -s 192.0.2.1 -m comment --comment 'two words' -j DROP
on n3 tc qdisc add dev lo root pfifo limit 7
on c1 mount -t tmpfs none /mnt
on n2 sysctl -qw net.ipv4.tcp_retries2=3
on n1 touch /var/lib/postgresql/15/ordeal-left.fill
sql n1 "SELECT pg_create_physical_replication_slot('ordeal_left', true)" >/dev/null
sql n1 "ALTER ROLE ordeal_load SET lock_timeout = '1h'"
sql n3 "ALTER SYSTEM SET work_mem = '5MB'"
sql n3 "SELECT pg_reload_conf()" >/dev/null
ended 5 whole
expect 5 "$ordeal" report "$work/whole"
says 'NOT RECOVERED'
told n2 "stopped process sleep, pid $stopped" "kill -CONT $stopped"
told n1 'nft table inet ordeal_left: left by Ordeal' 'nft delete table inet ordeal_left'
told n3 'iptables-nft filter rule INPUT .*by whom is not known' 'iptables-nft -t filter -D INPUT -s 192.0.2.1/32 '
told n3 'queueing discipline pfifo at root of lo' 'tc qdisc del dev lo root'
told c1 'mount /mnt .*by whom is not known' 'umount /mnt'
told n2 'sysctl net/ipv4/tcp_retries2: was 15, is 3' 'sysctl -w net/ipv4/tcp_retries2=15'
told n1 'file .*ordeal-left.fill: left by Ordeal' 'rm -r -- /var/lib/postgresql/15/ordeal-left.fill'
told n1 'replication slot ordeal_left \(physical, inactive, keeps WAL from ' 'psql .*pg_drop_replication_slot'
told n1 'lock_timeout of ROLE ordeal_load' 'psql .*ALTER ROLE ordeal_load RESET lock_timeout'
told n3 'setting work_mem in .*postgresql.auto.conf' 'psql .*ALTER SYSTEM RESET work_mem'
[ "$(grep -cE '^ +on ' "$work/out")" -eq 10 ] || { cat "$work/out"; fail "something else is told, or not everything"; }
cp "$work/out" "$work/summary"

# nobody has removed it: recover says so, too, and compares with what was before the run
expect 5 "$ordeal" recover -t "$topology"
says 'n1 +compared with what it was before run'
says 'on n1: nft delete table inet ordeal_left'
says 'p1 +not compared: no state from before'
says '1 of 5 nodes not compared: no state from before'

# ---- the commands, as they were printed ----
cp "$work/summary" "$work/out"
remedies
expect 0 "$ordeal" recover -t "$topology"
says 'n1 +clean'
[ -z "$(on n1 nft list ruleset)" ] || fail "the table is still there"
expect 0 "$ordeal" recover -t "$topology"
! grep -q 'compared with' "$work/out" || fail "what was before a run that is clean was kept"

# ---- an interrupted run is audited, too ----
begin short
on n1 nft add table inet ordeal_left
kill -INT "$pid"
ended 5 short
expect 5 "$ordeal" report "$work/short"
told n1 'nft table inet ordeal_left' 'nft delete table'
remedies

# ---- the orchestrator dies: recover audits in its place, and takes what is accepted ----
expect 0 "$ordeal" recover -t "$topology"
begin death
on n2 nft add table inet ordeal_left
on c1 mount -t tmpfs none /mnt
kill -9 "$pid"
ended 137 death
expect 5 "$ordeal" recover -t "$topology"
says 'n2 +nft table inet ordeal_left: left by Ordeal'
says 'c1 +mount /mnt'
says 'schema ordeal in database ordeal \(ordeal run .*\): left by Ordeal'
sed -i /umount/d "$work/out"
remedies
expect 0 "$ordeal" recover --accept -t "$topology"
says 'n2 +clean'
says 'c1 +accepted as it is'
expect 0 "$ordeal" recover -t "$topology"
says 'c1 +not compared: no state from before'
says '5 of 5 nodes not compared: no state from before'
