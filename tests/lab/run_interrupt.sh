#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# However a run ends early, nothing of it stays: a signal, several signals, a stop condition, the death of the
# orchestrator.
. tests/support/lab.sh "$1" "t-early-$$"

scenario() { # NAME TARGET EXTRA
    cat >"$work/$1.yaml" <<END
schema: ordeal/scenario-1
title: Ends early
workload: { clients: 4, rate: 100/s }
baseline: { for: 1s }
method:
  - name: freeze
    fault: process.freeze
    target: { $2, process: everything }
    for: 120s
$3
checks: { durability: {} }
END
}

injected() { grep -qs '"event":"fault.injected"' "$work/$1/journal.ndjson"; }
begin() { # NAME: in the background, until the fault is active; $pid is the orchestrator
    "$ordeal" run "$work/$1.yaml" -t "$topology" -o "$work/$1" >"$work/$1.out" 2>"$work/$1.err" &
    pid=$!
    until_ok 40 injected "$1"
}
ended() { # CODE: how the run in the background ended
    local status=0
    wait "$pid" || status=$?
    [ "$status" -eq "$1" ] || { cat "$work"/*.err; fail "exit $status, not $1"; }
}
clean() {
    expect 0 "$ordeal" status -t "$topology"
    says 'the cluster is healthy'
    says 'no fault is active'
}

lab_up
topology=$labs/$lab/topology.yaml

# ---- signals: undone first, and a second one changes nothing ----
scenario signal "role: standby" ""
begin signal
kill -INT "$pid"
until_ok 10 grep -q 'undoing what is active' "$work/signal.err"
kill -INT "$pid"
kill -TERM "$pid"
ended 3
grep -q '"event":"fault.undone".*"state":"absent"' "$work/signal/journal.ndjson" || fail "not undone"
tail -n 1 "$work/signal/journal.ndjson" | grep -q '"outcome":"aborted","clean":true.*SIGINT' || fail "its end"
[ -s "$work/signal/result.json" ] || fail "what had run has no result"
clean

# ---- a stop condition ----
scenario stop "role: standby, mode: all" "stop-conditions: [{ probe: writes.available, false-for: 2s }]"
status=0
"$ordeal" run "$work/stop.yaml" -t "$topology" -o "$work/stop" >"$work/stop.out" 2>"$work/stop.err" || status=$?
[ "$status" -eq 3 ] || { cat "$work/stop.err"; fail "exit $status after a stop condition"; }
grep -q '"event":"stop-condition","probe":"writes.available"' "$work/stop/journal.ndjson" ||
    fail "no stop condition"
clean

# ---- beside a run that goes on: status tells of it, recover undoes at once ----
scenario beside "role: standby" ""
begin beside
expect 0 "$ordeal" status -t "$topology"
says 'active: process.freeze'
says 'is under way'
expect 0 "$ordeal" recover -t "$topology"
says '1 undone, 0 failed'
expect 0 "$ordeal" status -t "$topology"
says 'no fault is active'
kill -INT "$pid"
ended 3
clean

# ---- the orchestrator dies: the node undoes it when the lease is over ----
scenario death "role: standby" ""
begin death
kill -9 "$pid"
ended 137
until_ok 20 sh -c "'$ordeal' status -t '$topology' | grep -q 'the cluster is healthy'"
clean
expect 5 "$ordeal" recover -t "$topology" # its tables are evidence, and are named
says 'schema ordeal in database ordeal .*: left by Ordeal'
expect 5 "$ordeal" report "$work/death"
says 'the journal has no end'
