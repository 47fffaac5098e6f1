#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The main job end to end: the primary is killed, a standby is promoted, nothing acknowledged is lost, every
# node is clean, and the verdict comes from files that can be judged again.
. tests/support/lab.sh "$1" "t-run-$$"

has() { grep -q "$1" "$run/journal.ndjson" || fail "not in the journal: $1"; }
count() { grep -c "$1" "$run/journal.ndjson" || true; }

lab_up
run=$work/run

# a busy host may blind a probe (exit 2); what must hold in any case is asserted below
status=0
"$ordeal" run primary-kill -t "$labs/$lab/topology.yaml" -o "$run" --seed 7 >"$work/out" 2>"$work/err" || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 2 ] || { cat "$work/out" "$work/err"; fail "exit $status"; }

# the directory is named first and last
[ "$(head -n 1 "$work/err")" = "run directory $run" ] || fail "first line: $(head -n 1 "$work/err")"
[ "$(tail -n 1 "$work/err")" = "run directory $run" ] || fail "last line: $(tail -n 1 "$work/err")"
for file in journal.ndjson schedule.txt result.json summary.txt nodes/n1-before.json nodes/n1-after.json \
    ledger/present-n1.tokens ledger/present-n2.tokens ledger/c1-worker-1.ledger; do
    [ -s "$run/$file" ] || fail "no $file"
done

head -n 1 "$run/journal.ndjson" | grep -q '"event":"run.start".*"seed":7' || fail "the first event is not run.start"
tail -n 1 "$run/journal.ndjson" | grep -q '"event":"run.end","outcome":"completed","clean":true' ||
    fail "last: $(tail -n 1 "$run/journal.ndjson")"
for phase in preflight baseline method recovery checks; do has "\"phase\":\"$phase\""; done
has '"event":"exposure".*"acked_last_second":[1-9]'
has '"event":"fault.injected".*"fault":"process.kill","node":"n1".*"state":"active"'
for node in n2 c1; do has "\"event\":\"fault.injected\".*\"witness\":.*\"node\":\"$node\",\"state\":\"active\""; done
has '"event":"ha.promote"'
has '"event":"timeline","node":"n[23]","timeline":2'
has '"event":"recovered"'
has '"event":"load.end".*"ledgers":\[{"file":"c1-worker-1.ledger","complete":true.*"node":"c1"}'
[ "$(count '"event":"residue".*"clean":true')" -eq 5 ] || fail "not every node is clean"
[ "$(count '"event":"integrity".*"ok":true')" -eq 4 ] || fail "integrity: $(grep '"integrity"' "$run/journal.ndjson")"
[ "$(count '"event":"clock"')" -ge 5 ] || fail "clocks were not measured"
grep -q '"lost": 0' "$run/result.json" || fail "lost: $(grep '"lost"' "$run/result.json")"
grep -qE '^[0-9]+ kill inject process.kill n1 \{"process":"everything"' "$run/schedule.txt" ||
    fail "schedule: $(cat "$run/schedule.txt")"

# every node was sampled from beginning to end; the server that was killed could not be asked meanwhile
for stream in n1-kernel n2-kernel n3-kernel c1-kernel p1-kernel n1-postgres n2-postgres n3-postgres; do
    file=$run/samples/$stream.ndjson
    head -n 1 "$file" | grep -q '"samples":1' || fail "first line of $stream: $(head -n 1 "$file")"
    tail -n 1 "$file" | grep -q '"end":1}$' || fail "last line of $stream: $(tail -n 1 "$file")"
done
grep -q '"gap":{.*"why":"down"' "$run/samples/n1-postgres.ndjson" || fail "the killed server was sampled throughout"
grep -q '"p":\[\[' "$run/samples/n2-kernel.ndjson" || fail "no process of n2 was sampled"
grep -qE '^  samples   8 files, [0-9]+ gaps' "$run/summary.txt" || fail "samples: $(grep samples "$run/summary.txt")"

# judged again, the same verdict; and the cluster is as healthy as before, under its new primary
expect "$status" "$ordeal" report "$run"
expect 0 "$ordeal" status -t "$labs/$lab/topology.yaml"
says 'the cluster is healthy'
says '^n1 +sync standby +timeline 2'
says 'no fault is active'

# nothing of the workload stays
[ "$(sql "$(awk '/ primary /{print $1}' "$work/out")" "SELECT count(*) FROM pg_namespace WHERE nspname = 'ordeal'")" = 0 ] ||
    fail "the workload's schema is still there"
expect 4 "$ordeal" run primary-kill -t "$labs/$lab/topology.yaml" -o "$run"
says 'is not empty'
