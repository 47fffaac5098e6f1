#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A run that is ended in any of its phases leaves nothing behind and never passes: SIGINT, SIGTERM, two of them, SIGKILL.
#
# The signal is sent at the very event that begins the phase (tests/support/tools/signal_at), not at a time. After a
# SIGKILL the report must judge what there is, the nodes must be clean by themselves, and `ordeal recover RUN` must end the run.
#
# One signal a phase and SIGKILL in all of them; PHASES=full tests/lab/run_phases.sh BUILD: every signal in every phase.
. tests/support/lab.sh "$1" "t-phases-$$"
signal_at=$1/tests/support/tools/signal_at
export ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 # it cannot look while it is traced

cat >"$work/short.yaml" <<END
schema: ordeal/scenario-1
title: A standby is frozen for a second
seed: 7
workload: { clients: 4, rate: 100/s, drain: 1s }
baseline: { for: 1s }
method:
  - name: freeze
    fault: process.freeze
    target: { role: standby, process: everything }
    for: 1s
recovery: { settle: 0s }
checks: { durability: {}, recovery: {}, integrity: { verify: no, checksums: no } }
END

# phase, and the event that begins it
declare -A begins=(
    [preflight]='"phase":"preflight"'
    [prepare]='"phase":"prepare"'
    [baseline]='"phase":"baseline"'
    [inject]='"event":"fault.inject",'
    [hold]='"event":"fault.injected"'
    [undo]='"event":"fault.undo",'
    [recovery]='"phase":"recovery"'
    [collect]='"phase":"checks"'
    [checks]='"event":"integrity"'
    [audit]='"event":"residue"'
    [report]='"event":"run.end"'
)
phases=(preflight prepare baseline inject hold undo recovery collect checks audit report)
table=()

no_fault() { "$ordeal" status -t "$topology" | grep -q 'no fault is active'; }
healthy() { "$ordeal" status -t "$topology" | grep -q 'the cluster is healthy'; }
nothing_left() { # in the database: n1 is the primary all the time
    [ "$(sql n1 "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = 'ordeal')
                      + (SELECT count(*) FROM pg_stat_activity WHERE usename = 'ordeal_load')")" = 0 ]
}
seconds_since() { echo "$(((${EPOCHREALTIME/./} - ${1/./}) / 100000))" | sed -E 's/^(.)$/0\1/; s/(.)$/.\1/'; }

end_run() { # PHASE SIGNAL...: run the scenario, end it so; $run, $code, $ended
    local phase=$1 pairs=()
    shift
    for signal; do pairs+=("${begins[$phase]}=$signal"); done
    run=$work/$phase-$(tr ' ' - <<<"$*") code=0
    "$signal_at" "${pairs[@]}" -- "$ordeal" run "$work/short.yaml" -t "$topology" -o "$run" \
        >"$run.out" 2>"$run.err" || code=$?
    ended=$EPOCHREALTIME
    [ "$code" -ne 99 ] || { cat "$run.err"; fail "phase $phase never began"; }
}

report_says() { # CODE PATTERN: and never a pass
    expect "$1" "$ordeal" report "$run"
    says "$2"
    verdict=$(head -n 1 "$work/out" | sed 's/  .*//')
    [ "$1" -eq 0 ] || [ "$verdict" != PASS ] || fail "$run: a pass with exit code $1"
}

add_row() { # PHASE SIGNAL EXIT CLEAN
    table+=("$(printf '%-10s %-9s %4s   %5s s   %s' "$1" "$2" "$3" "$4" "$verdict")")
}

asked() { # PHASE SIGNAL...: it ends itself
    local wanted=3 clean
    end_run "$@"
    [ "$1" != report ] || wanted=0 # all is undone, and what was judged stands
    if [ $# -eq 3 ] && grep -q '"event":"recovery.timeout"' "$run/journal.ndjson"; then
        wanted=5 # who leaves at once may leave before a standby streams again: then it says so
        grep -q 'the cluster is not back' "$run.out" || fail "$run: 5 without its reason"
    fi
    [ "$code" -eq "$wanted" ] || { cat "$run.out" "$run.err"; fail "$1 $2: exit $code, not $wanted"; }
    tail -n 1 "$run/journal.ndjson" | grep -q '"event":"run.end"' || fail "$run: no end in the journal"
    until_ok 20 no_fault
    until_ok 20 healthy
    until_ok 20 nothing_left
    clean=$(seconds_since "$ended")
    report_says "$code" .
    add_row "$1" "${*:2}" "$code" "$clean"
}

killed() { # PHASE: others end it
    local clean
    end_run "$1" KILL
    [ "$code" -eq 137 ] || { cat "$run.out" "$run.err"; fail "$1 KILL: exit $code"; }
    if [ "$1" = report ]; then
        report_says 0 PASS
        expect 4 "$ordeal" recover "$run"
        says 'has its end already'
        until_ok 20 nothing_left
        add_row "$1" KILL 137 "$(seconds_since "$ended")"
        return
    fi
    report_says 5 'the journal has no end'
    until_ok 20 no_fault # by its lease: nobody has asked for anything yet
    clean=$(seconds_since "$ended")
    expect 3 "$ordeal" recover "$run"
    says 'the orchestrator died'
    until_ok 20 healthy
    until_ok 20 nothing_left
    report_says 3 'the orchestrator died'
    add_row "$1" KILL 137 "$clean"
}

lab_up
topology=$labs/$lab/topology.yaml

if [ "${PHASES-}" = full ]; then
    for phase in "${phases[@]}"; do
        for signals in INT TERM "INT TERM" "TERM TERM"; do
            # shellcheck disable=SC2086
            asked "$phase" $signals
        done
    done
else
    asked preflight INT
    asked prepare INT TERM
    asked baseline TERM
    asked inject INT
    asked hold INT TERM
    asked undo TERM
    asked recovery INT
    asked collect INT TERM
    asked checks TERM
    asked audit INT
    asked report TERM
fi
for phase in "${phases[@]}"; do
    killed "$phase"
done

# the cluster is as good as before: the scenario runs through
expect 0 "$ordeal" run "$work/short.yaml" -t "$topology" -o "$work/after"

echo "table: phase      signal    exit     clean   report"
for row in "${table[@]}"; do echo "table: $row"; done
