#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The disk under the run directory fills up: no fault is injected whose event cannot be made durable, what is open is undone,
# the exit code and the words say why, and the report works from what is there.
. tests/support/lab.sh "$1" "t-full-$$"
signal_at=$1/tests/support/tools/signal_at
trap 'status=$?; "$ordeal" lab down --name "$lab" >/dev/null 2>&1; umount "$work/small" 2>/dev/null; rm -rf "$work"; exit $status' EXIT

cat >"$work/s.yaml" <<END
schema: ordeal/scenario-1
title: A standby is frozen
workload: { clients: 4, rate: 100/s, drain: 1s }
baseline: { for: 1s }
method:
  - { name: freeze, fault: process.freeze, target: { role: standby, process: everything }, for: 120s }
recovery: { settle: 0s }
checks: { durability: {} }
END

mkdir "$work/small"
mount -t tmpfs -o size=96m none "$work/small" || skip "a small file system cannot be mounted"

fill() { head -c 200M /dev/zero >"$work/small/$1" 2>/dev/null && fail "the disk is not full"; return 0; }
stopped() { [ "$(ps -o state= -p "$1")" = T ]; }

filled_at() { # NAME EVENT: the disk is full when the orchestrator goes on after the event; $pid is the tracer
    run=$work/small/$1 status=0
    "$signal_at" "$2=STOP" -- "$ordeal" run "$work/s.yaml" -t "$topology" -o "$run" >"$work/$1.out" 2>"$work/$1.err" &
    pid=$!
    until_ok 30 grep -qsF "$2" "$run/journal.ndjson"
    orchestrator=$(ps -o pid= --ppid "$pid" | tr -d ' ')
    until_ok 10 stopped "$orchestrator"
    fill fill
    kill -CONT "$orchestrator"
}
ended() { # NAME CODE PATTERN: words on stderr or in the summary
    wait "$pid" || status=$?
    [ "$status" -eq "$2" ] || { cat "$work/$1.out" "$work/$1.err"; fail "$1: exit $status, not $2"; }
    grep -qE "$3" "$work/$1.out" "$work/$1.err" || { cat "$work/$1.out" "$work/$1.err"; fail "$1: not said: $3"; }
    grep -q 'PASS' "$work/$1.out" && fail "$1: a pass"
    expect 0 "$ordeal" status -t "$topology"
    says 'the cluster is healthy'
    says 'no fault is active'
    [ "$(sql n1 "SELECT count(*) FROM pg_namespace WHERE nspname = 'ordeal'")" = 0 ] || fail "$1: the schema is still there"
}
free() { rm -f "$work"/small/fill*; }

lab_up
topology=$labs/$lab/topology.yaml

# ---- before a fault: it is not injected ----
filled_at before '"event":"step.start"'
ended before 3 'writing (journal.ndjson|schedule.txt): No space left on device'
grep -q '"event":"fault.injected"' "$run/journal.ndjson" && fail "injected without a durable event"
if grep -q '"event":"fault.inject",' "$run/journal.ndjson"; then # or the run ended before it came to that
    grep -q '"event":"fault.failed".*No space left' "$run/journal.ndjson" || fail "the step does not say why"
fi
tail -n 1 "$run/journal.ndjson" | grep -q '"outcome":"aborted","clean":true' || fail "the reserve did not hold the end"
# nothing ever came to a node: no agent has a record of this run, as it has of the next one
records_of() { # RUN: nodes whose agent has a record of a fault of it
    local uid
    uid=$(sed -nE 's/.*"event":"run.start".*"run":"[^"]*-([0-9a-f]{6})".*/\1/p' "$1/journal.ndjson")
    [ -n "$uid" ] || fail "no run id in $1"
    for node in n2 n3; do on "$node" grep -rlsE "$uid[0-9a-f]{6}-s1-" /var/lib/ordeal/agent || true; done | wc -l
}
[ "$(records_of "$run")" -eq 0 ] || fail "a node has a record of a fault of $run"
free
expect 3 "$ordeal" report "$run"
says 'No space left on device'

# ---- while a fault holds: it is undone at once, two minutes early ----
filled_at during '"event":"fault.injected"'
ended during 3 'No space left on device'
grep -q '"event":"fault.undone".*"state":"absent"' "$run/journal.ndjson" || fail "not undone"
[ "$(records_of "$run")" -gt 0 ] || fail "records are looked for in the wrong place"
free
expect 3 "$ordeal" report "$run"

# ---- not even the reserve is left: the end is missing, not hidden, and can be made up for ----
filled_at nothing '"event":"fault.injected"'
(while [ -e "/proc/$pid" ]; do head -c 20M /dev/zero >>"$work/small/fill-$RANDOM" 2>/dev/null || true; done) &
filler=$!
ended nothing 3 'No space left on device'
wait "$filler" || true
free
if tail -n 1 "$run/journal.ndjson" | grep -q '"event":"run.end"'; then
    expect 3 "$ordeal" report "$run"
else
    expect 5 "$ordeal" report "$run"
    says 'the journal has no end'
    expect 3 "$ordeal" recover "$run"
    expect 3 "$ordeal" report "$run"
fi

# ---- full from the beginning: refused ----
fill fill
expect 4 "$ordeal" run "$work/s.yaml" -t "$topology" -o "$work/small/never"
says 'No space left on device|MiB free'
