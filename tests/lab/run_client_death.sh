#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The agent of the client node is killed, and its load workers with it: what was acknowledged before is in the ledgers, the
# run goes on to its end and cleans up, and what it did not see is never a pass.
. tests/support/lab.sh "$1" "t-client-$$"
signal_at=$1/tests/support/tools/signal_at

cat >"$work/s.yaml" <<END
schema: ordeal/scenario-1
title: A standby is frozen
workload: { clients: 4, rate: 200/s, drain: 1s }
baseline: { for: 1s }
method:
  - { name: freeze, fault: process.freeze, target: { role: standby, process: everything }, for: 1s }
recovery: { settle: 0s }
checks: { durability: {}, recovery: {} }
END

agent_of() { on "$1" ps -eo pid,args | awk '$2 ~ /ordeald$/ && $3 == "--agent" { print $1; exit }'; }
number() { sed -nE "s/^ *\"$1\": ([0-9]+),?$/\1/p" "$run/result.json" | head -n 1; }
stopped() { [ "$(ps -o state= -p "$1")" = T ]; }

killed_at() { # NAME EVENT: the orchestrator stands still at the event while the agent is killed
    run=$work/$1
    "$signal_at" "$2=STOP" -- "$ordeal" run "$work/s.yaml" -t "$topology" -o "$run" >"$run.out" 2>"$run.err" &
    local tracer=$! orchestrator agent status=0
    until_ok 30 grep -qsF "$2" "$run/journal.ndjson"
    orchestrator=$(ps -o pid= --ppid "$tracer" | tr -d ' ')
    until_ok 10 stopped "$orchestrator"
    agent=$(agent_of c1)
    [ -n "$agent" ] || fail "no agent on c1"
    on c1 kill -9 "$agent"
    kill -CONT "$orchestrator"
    wait "$tracer" || status=$?
    [ "$status" -eq 2 ] || { cat "$run.out" "$run.err"; fail "$1: exit $status, not 2"; }
    grep -q 'the load worker of c1-worker-1.ledger did not end in order' "$run.out" || { cat "$run.out"; fail "no reason"; }
    grep -q 'lost 0' "$run.out" || { cat "$run.out"; fail "something is lost"; }
    # no hole: whatever the primary holds was announced, and is known as acknowledged or in doubt
    local tokens acked present
    tokens=$(sed -nE 's/.*"event":"present","node":"n1".*"tokens":([0-9]+).*/\1/p' "$run/journal.ndjson")
    acked=$(number acked)
    present=$(number in_doubt_present)
    [ "$acked" -gt 100 ] || fail "$1: only $acked acknowledgements are in the ledgers"
    [ "$tokens" -eq $((acked + present)) ] || fail "$1: $tokens rows, but $acked acknowledged and $present in doubt are known"
    expect 0 "$ordeal" status -t "$topology"
    says 'the cluster is healthy'
    says 'no fault is active'
    [ "$(sql n1 "SELECT count(*) FROM pg_namespace WHERE nspname = 'ordeal'")" = 0 ] || fail "the schema is still there"
    [ "$(agent_of c1)" != "$agent" ] || fail "the agent was not killed"
}

lab_up
topology=$labs/$lab/topology.yaml
killed_at before '"event":"step.start"'
killed_at during '"event":"fault.injected"'
