# SPDX-License-Identifier: MIT
# For calibrations on a living cluster, sourced behind tests/support/lab.sh: how a run is described, begun, watched
# from outside and judged. Losses are counted a second time by a tool that knows the ledger and nothing of the checks.
count=$1/tests/support/tools/ledger_count
topology=$labs/$lab/topology.yaml
bin=/usr/lib/postgresql/15/bin
data=/var/lib/postgresql/15/main
pid=

# A run that was given up ends before its lab does. The table comes last, as far as it got.
trap 'status=$?; [ -z "$pid" ] || kill -9 "$pid"; "$ordeal" lab down --name "$lab" >/dev/null 2>&1
    cat "$work/table"; rm -rf "$work"; exit $status' EXIT

wrong() { # MESSAGE: with what the run said of itself
    cat "$run/summary.txt" "$run.err" 2>/dev/null || true
    fail "$name: $*"
}

table() { # PLANTED FOUND EXPECTED
    printf 'table: %-76s | %-66s | %s\n' "$@" >>"$work/table"
}
table planted "found as" expected

# ---- the lab: hosts that booted at different times ----

declare -A apart_s=([n1]=37 [n2]=5 [n3]=660 [c1]=90)

clocks_apart_up() {
    local node edits=()
    for node in "${!apart_s[@]}"; do
        edits+=(-e "s/name: $node,/&boot-clock-offset: ${apart_s[$node]}s,/")
    done
    sed "${edits[@]}" topologies/lab-quorum.yaml >"$work/lab.yaml"
    lab_up -t "$work/lab.yaml"
}

# ---- a run ----

scenario() { # NAME [CHECKS], the method on stdin
    local checks=${2:-durability: {\}}
    name=$1
    run=$work/$name
    rm -rf "$run"
    {
        cat <<HEAD
schema: ordeal/scenario-1
title: Calibration, $name
workload: { clients: 4, rate: 200/s, rows: 2 }
probes: { interval: 20ms, direct-interval: 50ms }
baseline: { for: 2s }
recovery: { timeout: 60s, settle: 1s }
checks: { $checks }
HEAD
        cat
    } >"$run.yaml"
}

begin() { # in the background
    "$ordeal" run "$run.yaml" -t "$topology" -o "$run" >"$run.out" 2>"$run.err" &
    pid=$!
}

journal_has() { # PATTERN, while the run goes on
    grep -qs "$1" "$run/journal.ndjson" && return
    kill -0 "$pid" || wrong "it ended before its journal said: $1"
    return 1
}

event_ns() { # EVENT [PATTERN]: when the orchestrator noted the first one
    grep "\"event\":\"$1\"" "$run/journal.ndjson" | grep -m 1 "${2:-.}" | sed 's/.*"t":\([0-9]*\).*/\1/'
}

ended() { # sets code
    code=0
    wait "$pid" || code=$?
    pid=
}

finish() { # CODE
    ended
    [ "$code" -eq "$1" ] || wrong "exit $code, expected $1"
}

primary_now() { # between runs: a run has the agents to itself
    "$ordeal" status -t "$topology" >"$work/status"
    awk '$2 == "primary" { print $1 }' "$work/status"
}

behind() { # NODE STATEMENT: behind the checker's back, in the workload's database
    on "$1" psql -XAtq -v ON_ERROR_STOP=1 -U ordeal_admin -d ordeal -c "$2"
}

# ---- what it found: result.json is indented and sorted ----

found() { # COLUMN of the ledger
    sed -n "s/^    \"$1\": \([0-9]*\),\{0,1\}\$/\1/p" "$run/result.json"
}

of_check() { # CHECK MEMBER (verdict, text)
    awk -v check="\"$1\"," -v member="\"$2\":" '$1 == "\"name\":" { here = ($2 == check) }
        here && $1 == member { print }' "$run/result.json"
}

must_find() { # COLUMN NUMBER
    [ "$(found "$1")" = "$2" ] || wrong "$1 is $(found "$1"), expected $2"
}

check_says() { # CHECK VERDICT PATTERN
    of_check "$1" verdict | grep -q "\"$2\"" || wrong "$1: $(of_check "$1" verdict), expected $2"
    of_check "$1" text | grep -qE "$3" || wrong "$1 does not say: $3, but $(of_check "$1" text)"
}

must_say() { check_says durability "$@"; } # VERDICT PATTERN

nothing_but() { # COLUMN...: every other kind of defect is absent
    local column
    for column in lost vanished resurrected duplicate torn garbage standby_differences; do
        [[ " $* " == *" $column "* ]] || must_find "$column" 0
    done
}

# The other count. Sets above, between, below, later, unplaced, each with _lost, and acked, lost, weaker.
count_again() {
    local event node old
    event=$(grep '"event":"timeline"' "$run/journal.ndjson" | tail -n 1)
    node=$(sed 's/.*"node":"\([^"]*\)".*/\1/' <<<"$event")
    old=$(grep -o '{"timeline":[0-9]*,"lsn":"[^"]*"}' <<<"$event" | tail -n 1) || wrong "no timeline ended"
    fork=$(sed 's/.*"lsn":"\(.*\)"}/\1/' <<<"$old")
    numbers=$("$count" losses "$run" "$node" "$(sed 's/[^0-9]*\([0-9]*\).*/\1/' <<<"$old")" "$fork")
    eval "$numbers"
    must_find acked "$acked"
    must_find lost "$lost"
    must_find below_promise "$weaker"
}

# Everything acknowledged above the fork is gone, and nothing below it. Where a commit may lie across it, its
# own absence decides.
must_be_the_tail() {
    [ "$code" -eq 1 ] || wrong "exit $code, expected 1"
    [ "$above" -gt 0 ] && [ "$above_lost" -eq "$above" ] && [ "$lost" -eq $((above + between_lost)) ] ||
        wrong "not the tail behind $fork: $numbers"
}

# The other count of all classes: acked, weak, in_doubt, aborted, unsent, unanswered, each with _held (the final
# primary has it); told and panicked (of in_doubt), gaps, twice.
classes_again() {
    local node
    node=$(grep '"event":"timeline"' "$run/journal.ndjson" | tail -n 1 | sed 's/.*"node":"\([^"]*\)".*/\1/')
    numbers=$("$count" classes "$run" "$node")
    eval "$numbers"
    must_find acked "$acked"
    must_find weak "$weak"
    must_find in_doubt "$((in_doubt + unanswered))"
    must_find in_doubt_present "$((in_doubt_held + unanswered_held))"
    must_find weak_lost "$((weak - weak_held))"
    must_find lost "$((acked - acked_held))"
    must_find aborted "$aborted"
    [ "$twice" -eq 0 ] || wrong "tokens with two outcomes: $numbers"
}

# ---- acts from outside ----

as_postgres() { # NODE COMMAND...
    local node=$1
    shift
    on "$node" setpriv --reuid postgres --regid postgres --init-groups --reset-env "$@"
}

leads() { [ "$(sql "$1" 'SELECT pg_is_in_recovery()')" = f ]; }

at_least() { # NUMBER NODE STATEMENT
    [ "$(sql "$2" "$3")" -ge "$1" ]
}

another_topology() { # SED-EXPRESSION...: sets topology
    topology=$work/topology.yaml
    sed "$@" "$labs/$lab/topology.yaml" >"$topology"
}

the_topology() { topology=$labs/$lab/topology.yaml; }

# A walreceiver that was stopped in the middle of reading reads on when it is thawed, whatever it was told
# meanwhile; then nothing was planted. That is rare: once more.
planted() { # COMMAND...
    "$@"
    [ "$above" -gt 0 ] || "$@"
}
