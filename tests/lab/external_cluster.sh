#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A cluster that Ordeal did not make: built by plain scripts (tests/support/external), described by a topology file
# of kind external, with two client nodes, agents that somebody else started and the service's own commands.
#
# Shows: under `observe` an HA manager outside promotes and rejoins, and is named when it does not; under
# `manual` Ordeal does it by the service commands; what needs a power driver is skipped with the reason and never
# passed, until there is one; and nothing is left behind on the nodes.
#
# EXTERNAL_PROFILE=smoke runs the whole shipped profile with `manual` instead of the short one.
. tests/support/lab.sh "$1" unused
root=$(mktemp -d -p /var/tmp)
cluster=$PWD/tests/support/external/cluster.sh
failover=$PWD/tests/support/external/failover.sh
outside=
trap 'status=$?; [ -z "$outside" ] || kill "$outside" 2>/dev/null; "$cluster" "$root" down; rm -rf "$work" "$root"; exit $status' EXIT

on_cluster() { "$cluster" "$root" "$@"; }
here() { nsenter -t "$(cat "$root/switch/pid")" -n -- "$ordeal" "$@"; } # where the nodes can be reached

# ---- the cluster and its files ----

make_cluster() {
    realpath "$(dirname "$ordeal")" >"$root/programs"
    "$ordeal" pki init "$root/pki" >/dev/null
    for node in n1 n2 n3 c1 c2 p1; do "$ordeal" pki issue "$root/pki" "$node" --role agent >/dev/null; done
    "$ordeal" pki issue "$root/pki" control --role orchestrator >/dev/null
    echo load >"$root/load.pass"
    chmod 600 "$root/load.pass"
    timeout 120 "$cluster" "$root" up >"$work/out" 2>&1 || { cat "$work/out" "$root"/*/agent.log; fail "no cluster"; }
}

topology() { # HA SECTION, ENDPOINT, MORE KEYS, MORE NODES
    cat <<YAML
schema: ordeal/topology-1
name: plain
kind: external
promise: { durability: quorum, failover: 30s }
ha: { $1 }
control: { ca: pki/ca.crt, certificate: pki/control.crt, key: pki/control.key }
database:
  version: 15
  data: /var/lib/postgresql/15/main
  service: { start: [$PWD/tests/support/external/service, start], stop: [$PWD/tests/support/external/service, stop] }
  superuser: { user: admin, password-file: /var/lib/postgresql/admin.pass }
  workload: { user: load, password-file: $root/load.pass, database: app }
  replication: { user: replicator, password-file: /var/lib/postgresql/replicator.pass }
endpoint: { hosts: [n1, n2, n3]$2 }
$3
nodes:
  - { name: n1, address: 10.91.0.1, zone: a, roles: [database] }
  - { name: n2, address: 10.91.0.2, zone: b, roles: [database] }
  - { name: n3, address: 10.91.0.3, zone: c, roles: [database] }
  - { name: c1, address: 10.91.0.11, zone: a, roles: [client] }
  - { name: c2, address: 10.91.0.12, zone: b, roles: [client] }
$4
YAML
}

write_topologies() {
    local manual='manager: manual, fence: control, management-network: yes'
    topology 'manager: observe' '' '' '' >"$root/observe.yaml"
    topology "$manual" ', routing: manager' '' '' >"$root/manual.yaml"
    topology "$manual" ', routing: manager' \
        "power: { \"off\": [$cluster, $root, \"off\", \"{node}\"], \"on\": [$cluster, $root, \"on\", \"{node}\"] }" \
        '  - { name: p1, address: 10.91.0.254, zone: a, roles: [power] }' >"$root/power.yaml"
}

# scenario NAME TITLE CHECKS: the method comes from stdin
scenario() {
    cat >"$root/$1.yaml" <<YAML
schema: ordeal/scenario-1
title: $2
workload: { kind: ledger, clients: 8, rate: 200/s, rows: 2 }
baseline: { for: 1s }
steady-state:
  - { probe: replication.sync-copies, at-least: 1 }
recovery: { timeout: ${recovery:-60s}, settle: 1s }
stop-conditions:
  - { probe: writes.available, false-for: 60s }
checks: { durability: {}, single-writer: {}, recovery: { max: 60s }, replication: {}, $3 }
method:
$(cat)
YAML
}

write_scenarios() {
    local kill='  - { name: kill, fault: process.kill, target: { role: primary, process: everything }, expect: { failover: yes } }'
    scenario kill 'The primary is killed' 'failover-time: { max: 50s }, integrity: {}' <<<"$kill"
    scenario kill-and-crash 'Killed; and crashed, where that is possible' 'failover-time: {}' <<<"$kill
  - { name: crash, fault: node.crash, target: { role: standby }, for: 3s, optional: yes }"
    recovery=8s scenario kill-alone 'Nobody acts' '' <<<"${kill/failover: yes/failover: any}"
    recovery=8s scenario kill-half 'Nobody rejoins' '' <<<"$kill"
    scenario freeze 'Frozen, and thawed after the failover' '' <<<\
        '  - { name: freeze, fault: process.freeze, target: { role: primary, process: everything }, for: 6s, expect: { failover: yes } }'
    scenario crash 'The machine goes away, and is switched on' '' <<<\
        "  - { name: crash, fault: node.crash, target: { role: primary }, for: 5s, expect: { failover: yes } }
  - { name: switch, power: on, target: { role: any, mode: all } }"
    scenario optional 'A standby dies; its machine, where that is possible' '' <<<"  - { name: kill, fault: process.kill, target: { role: standby, process: everything }, expect: { failover: no } }
  - { name: crash, fault: node.crash, target: { role: standby }, for: 3s, optional: yes }"
    printf 'schema: ordeal/profile-1\ntitle: Short\nscenarios: [kill-and-crash, freeze, crash]\noptional: [crash]\n' \
        >"$root/short.yaml"
}

# ---- looking at what happened ----

# A busy host may blind a probe (exit 2); what must hold in any case is asserted by the callers.
run_it() { # NAME TOPOLOGY SCENARIO OPTIONS...: sets status and run
    local name=$1 topology=$2 scenario=$3
    shift 3
    run=$root/runs/$name
    status=0
    here run "$scenario" -t "$root/$topology.yaml" -o "$run" "$@" >"$work/out" 2>"$work/err" || status=$?
}

failed() {
    cat "$work/out" "$work/err" "$root/outside.log" 2>/dev/null
    fail "$*"
}

has() { grep -qE "$1" "$run/journal.ndjson" || failed "not in the journal of $run: $1"; }
lacks() { ! grep -qE "$1" "$run/journal.ndjson" || failed "in the journal of $run: $(grep -E "$1" "$run/journal.ndjson")"; }
summary() { grep -qE "$1" "$run/summary.txt" || failed "not in the summary of $run: $1"; }

whole() { # a run that did its work: nothing lost, nothing left, two ledgers' worth of clients, verdict pass
    [ "$status" -eq 0 ] || [ "$status" -eq 2 ] || failed "exit $status"
    has '"event":"run.end","outcome":"completed","clean":true'
    [ "$(grep -cE '"event":"residue".*"clean":true' "$run/journal.ndjson")" -ge 5 ] || failed "not every node is clean"
    grep -q '"lost": 0' "$run/result.json" || failed "lost: $(grep '"lost"' "$run/result.json")"
    for check in durability recovery replication; do summary "^  $check +pass"; done
    [ -s "$run/ledger/c1-worker-1.ledger" ] && [ -s "$run/ledger/c2-worker-1.ledger" ] || failed "not both clients wrote"
}

outside_acts() { # PRIMARY WORDS...
    rm -f "$root/failover-watches"
    "$failover" "$root" "$@" >"$root/outside.log" 2>&1 &
    outside=$!
    until_ok 20 test -e "$root/failover-watches"
}

outside_ends() {
    wait "$outside" || failed "the HA manager of this test failed"
    outside=
}

left_behind() { # FILES that Ordeal may leave beside the data
    for node in n1 n2 n3 c1 c2; do
        [ -z "$(ls "$root/$node/state/runs" 2>/dev/null)" ] || failed "spool of $node: $(ls "$root/$node/state/runs")"
        [ -z "$(on_cluster on_node "$node" nft list tables)" ] || failed "nft tables on $node"
        ! on_cluster on_node "$node" ps -eo stat=,args= | grep -E '^T|ordeal-undo' || failed "processes on $node"
    done
    for node in n1 n2 n3; do
        local found
        found=$(cd "$root/$node/data/15" && echo *)
        [[ $found =~ ^main\ node.conf$1$ ]] || failed "beside the data of $node: $found"
        [ "$(on_cluster sql "$node" "SELECT (SELECT count(*) FROM pg_db_role_setting), (SELECT count(*) FROM pg_prepared_xacts),
            (SELECT string_agg(slot_name, ',' ORDER BY slot_name) FROM pg_replication_slots WHERE pg_is_in_recovery())")" = "0|0|" ] ||
            failed "in PostgreSQL of $node"
        [ "$(database=app on_cluster sql "$node" "SELECT count(*) FROM pg_namespace WHERE nspname = 'ordeal'")" = 0 ] ||
            failed "the workload's schema is still on $node"
    done
}

make_cluster
write_topologies
write_scenarios
expect 0 "$ordeal" validate "$root/observe.yaml" "$root/manual.yaml" "$root/power.yaml" "$root/short.yaml"
expect 0 here plan "$root/kill.yaml" -t "$root/observe.yaml"
says 'cluster plain \(external\): n1 10.91.0.1 .*primary'
says 'HA manager observe: .*work of what manages this cluster'

# ---- observe: somebody else promotes and rejoins; Ordeal starts, stops and promotes nothing ----
first=$(on_cluster primary)
outside_acts "$first"
run_it observe observe "$root/kill.yaml"
outside_ends
whole
second=$(on_cluster primary)
has "\"event\":\"ha.promote\".*\"node\":\"$second\".*\"timeline\":2"
has '"event":"ha.route"'
has "\"event\":\"ha.rejoin\".*\"node\":\"$first\""
lacks '"event":"ha.(fence|elect|refuse)"'
summary 'checksums on n[123]: the server would have to be stopped'
left_behind ''

# ---- observe: promoted, but the old primary never comes back ----
outside_acts "$second" promote-only
run_it half observe "$root/kill-half.yaml"
outside_ends
[ "$status" -eq 5 ] || failed "exit $status of a cluster that is not whole"
summary '^NOT RECOVERED'
summary "because: .*$second: PostgreSQL is down; to repair that was the work of what manages this cluster"
summary "recovery +fail"
summary "$second \(PostgreSQL is down.*work of what manages this cluster, or its operator"
third=$(on_cluster primary)
"$failover" "$root" "$second" rejoin "$third" >"$root/outside.log" 2>&1 || failed "no rejoin"
until_ok 20 on_cluster streams "$third"
expect 0 here recover -t "$root/observe.yaml" # as it was before, says the audit

# ---- observe: nobody does anything ----
run_it nobody observe "$root/kill-alone.yaml"
[ "$status" -eq 5 ] || failed "exit $status of a cluster without a primary"
summary '^NOT RECOVERED'
summary 'no node is primary.*work of what manages this cluster, or its operator'
lacks '"event":"ha.promote"'
on_cluster start "$third"
until_ok 20 on_cluster streams "$third"
expect 5 here recover -t "$root/observe.yaml"
says 'DROP SCHEMA .*ordeal'
database=app on_cluster sql "$third" "DROP SCHEMA ordeal CASCADE"
expect 0 here recover -t "$root/observe.yaml"

# ---- manual: Ordeal acts, by the service's commands ----
run_it profile manual "${EXTERNAL_PROFILE:-$root/short.yaml}"
[ "$status" -eq 0 ] || [ "$status" -eq 2 ] || failed "exit $status"
says '(primary-)?crash +skipped'
says '(primary-)?crash: skipped, step crash needs a power driver \(node.crash\)'
for run in "$root"/runs/profile/*; do
    case $run in
    *crash) [[ $run == *kill-and-crash ]] || { grep -q '"verdict": "refused"' "$run/result.json" || failed "$run"; continue; } ;;
    esac
    whole
done
if [ -z "${EXTERNAL_PROFILE-}" ]; then
    run=$root/runs/profile/01-kill-and-crash
    summary 'skipped +step crash on n[123]: the topology has no power driver \(optional\)'
fi
left_behind '( ordeal-n[123].pgpass)?( ordeal-n[123]-postgres.log)?'

# ---- strict: an optional step that was skipped counts ----
run_it strict manual "$root/optional.yaml" --strict
[ "$status" -eq 2 ] || failed "exit $status with --strict"
whole
summary 'because: step crash was skipped: the topology has no power driver'

# ---- with a power driver it can be done ----
run_it power power "$root/crash.yaml"
whole
has '"event":"fault.injected".*"fault":"node.crash".*"state":"active"'
has '"event":"step.start","step":"switch","fault":"power"'
lacks '"event":"step.skipped"'
left_behind '( ordeal-n[123].pgpass)?( ordeal-n[123]-postgres.log)?'
expect 0 here status -t "$root/power.yaml"
says 'no fault is active'
echo "all of it holds, $SECONDS s"
