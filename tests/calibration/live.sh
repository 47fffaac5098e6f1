#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Calibration on a living cluster: a known defect is planted into a real run, and the verdict must find exactly
# it. Losses are counted a second time by a tool that knows the ledger and nothing of the checks. Prints the
# table "planted | found as | expected"; the neighbour without a defect must pass.
. tests/support/lab.sh "$1" "calib-$$"
count=$1/tests/support/tools/ledger_count
topology=$labs/$lab/topology.yaml
bin=/usr/lib/postgresql/15/bin
data=/var/lib/postgresql/15/main
pid=

# a run that was given up ends before its lab does
trap 'status=$?; [ -z "$pid" ] || kill -9 "$pid"; "$ordeal" lab down --name "$lab" >/dev/null 2>&1
    rm -rf "$work"; exit $status' EXIT

wrong() { # MESSAGE: with what the run said of itself
    cat "$run/summary.txt" "$run.err" 2>/dev/null || true
    fail "$name: $*"
}

table() { printf 'table: %-50s | %-60s | %s\n' "$@"; }

# ---- a run ----

scenario() { # NAME, the method on stdin
    name=$1
    run=$work/$name
    rm -rf "$run"
    {
        cat <<HEAD
schema: ordeal/scenario-1
title: Calibration, $name
workload: { clients: 4, rate: 200/s, rows: 2 }
probes: { interval: 20ms, direct-interval: 50ms }
baseline: { for: 3s }
recovery: { timeout: 60s, settle: 1s }
checks: { durability: {} }
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

durability() { # MEMBER (verdict, text) of the check
    awk -v member="\"$1\":" '$1 == "\"name\":" { here = ($2 == "\"durability\",") }
        here && $1 == member { print }' "$run/result.json"
}

must_find() { # COLUMN NUMBER
    [ "$(found "$1")" = "$2" ] || wrong "$1 is $(found "$1"), expected $2"
}

must_say() { # VERDICT PATTERN
    durability verdict | grep -q "\"$1\"" || wrong "durability: $(durability verdict), expected $1"
    durability text | grep -qE "$2" || wrong "durability does not say: $2"
}

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

# ---- one defect each ----

control() {
    scenario primary-kill <<'END_METHOD'
method:
  - { name: kill, fault: process.kill, target: { role: primary, process: everything }, expect: { failover: yes } }
END_METHOD
    begin
    finish 0
    count_again
    must_say pass 'lost 0'
    nothing_but
    table "nothing (the primary is killed)" "lost 0 of $(found acked), pass, exit 0" "lost 0, pass"
}

dead_rule() {
    scenario partition-of-nothing <<'END_METHOD'
method:
  - { name: cut, fault: network.partition, target: { role: primary }, with: { peers: others, port: 9 }, for: 2s }
END_METHOD
    begin
    finish 2
    grep -q '"verdict": "inconclusive"' "$run/result.json" || wrong "not inconclusive"
    grep -q 'because: fault network.partition on n[1-3] did not bite.*the rule matches nothing: port 9' \
        "$run/summary.txt" || wrong "the fault is not named"
    nothing_but
    table "a partition rule that matches nothing" "the fault did not bite, named, inconclusive, exit 2" \
        "inconclusive, exit 2"
}

# The token of a direct probe that a standby refused, as the ledger on the client node has it by now.
aborted_token() {
    local id file
    id=$(sed -n '1s/.*"run":"\([^"]*\)".*/\1/p' "$run/journal.ndjson")
    for file in $(on c1 find "/var/lib/ordeal/agent/runs/$id" -name '*.ledger'); do
        on c1 cat "$file" >"$work/snapshot"
        "$count" aborted "$work/snapshot" >"$work/token" && return
    done
    return 1
}

aborted_row() {
    local node client seq
    node=$(primary_now)
    scenario aborted-row <<'END_METHOD'
method: [ { name: wait, pause: 3s } ]
END_METHOD
    begin
    until_ok 40 journal_has '"phase":"baseline"'
    until_ok 10 aborted_token
    read -r client seq <"$work/token"
    behind "$node" "INSERT INTO ordeal.journal(client, seq, row, rows, digest, payload)
        VALUES $("$count" row "$client" "$seq")"
    finish 1
    must_find resurrected 1
    must_say fail '1 aborted or unsent are present'
    nothing_but resurrected
    table "one aborted row inserted" "resurrected $(found resurrected), fail, exit 1" "resurrected 1, fail"
}

# The first token of the workload after which its client committed another one, so that it was acknowledged.
delete_one() { # NODE
    behind "$1" "DELETE FROM ordeal.journal WHERE (client, seq) = (SELECT j.client, j.seq FROM ordeal.journal j
        WHERE j.client <= 4 AND EXISTS (SELECT FROM ordeal.journal k WHERE k.client = j.client AND k.seq > j.seq)
        ORDER BY j.client, j.seq LIMIT 1) RETURNING client, seq" >"$work/rows"
    [ -s "$work/rows" ]
}

deleted_row() {
    local node
    node=$(primary_now)
    scenario deleted-row <<'END_METHOD'
method:
  - { name: kill, fault: process.kill, target: { role: primary, process: everything }, expect: { failover: yes } }
END_METHOD
    begin
    until_ok 40 journal_has '"phase":"baseline"'
    until_ok 10 delete_one "$node"
    [ "$(wc -l <"$work/rows")" -eq 2 ] || wrong "not the two rows of one token: $(cat "$work/rows")"
    finish 1
    count_again
    must_find lost 1
    [ "$below_lost" -eq 1 ] || wrong "not one from below the fork: $numbers"
    must_say fail 'CORRUPTION: 1 of them lie before the fork.*no failover explains them'
    nothing_but lost
    table "one acknowledged row deleted, then a failover" \
        "lost $(found lost) of $acked, CORRUPTION, before the fork, fail, exit 1" "lost 1, no tail of a failover, fail"
}

# ---- acknowledged by the primary alone, and the standbys held back ----

held_and_killed() {
    scenario local-commits <<'END_METHOD'
method:
  - { name: hold, fault: process.freeze, target: { role: standby, process: walreceiver, mode: all }, for: 8s }
  - { name: kill, fault: process.kill, target: { role: primary, process: everything }, at: hold + 2s, expect: { failover: yes } }
END_METHOD
}

refused_role() {
    local node
    node=$(primary_now)
    held_and_killed
    sql "$node" "ALTER ROLE ordeal_load SET synchronous_commit = local"
    begin
    finish 4
    grep -q 'ordeal_load sets synchronous_commit = local, weaker than the promise quorum' "$run.err" ||
        wrong "the preflight does not name the role"
    if grep -q '"phase":"baseline"' "$run/journal.ndjson"; then wrong "it went on"; fi
    sql "$node" "ALTER ROLE ordeal_load RESET synchronous_commit"
    table "synchronous_commit = local in the workload's role" "the preflight names the role, refused, exit 4" \
        "refused, exit 4"
}

# The role is changed behind the preflight; its sessions come back with the new setting.
weak_role() {
    local node
    node=$(primary_now)
    held_and_killed
    begin
    until_ok 40 journal_has '"phase":"baseline"'
    sql "$node" "ALTER ROLE ordeal_load SET synchronous_commit = local"
    sql "$node" "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ordeal_load'" >"$work/gone"
    ended
    sql "$(primary_now)" "ALTER ROLE ordeal_load RESET synchronous_commit"
    count_again
}

weak_tail() {
    must_be_the_tail
    must_find below_promise_lost "$lost"
    must_say fail "lost $lost of $acked acknowledged \(all acknowledged below the promise \(synchronous_commit = local, promise quorum\)\)"
    nothing_but lost
    table "the same after the preflight, receivers held 2 s" \
        "lost $lost of $acked, below the promise (local), fail, exit 1" \
        "lost $above above $fork + $between_lost across it, fail"
}

# ---- the lagging standby promoted, by somebody who does not know better ----

as_postgres() { # NODE COMMAND...
    local node=$1
    shift
    on "$node" setpriv --reuid postgres --regid postgres --init-groups --reset-env "$@"
}

follow() { # NODE ADDRESS: a new copy of the primary there
    as_postgres "$1" find "$data" -mindepth 1 -delete
    as_postgres "$1" "$bin/pg_basebackup" -D "$data" --checkpoint=fast -X stream -R -C -S "$1" \
        -d "host=$2 user=ordeal_replication passfile=/var/lib/ordeal/postgresql/replication.pgpass \
sslmode=verify-ca sslrootcert=/var/lib/ordeal/pki/ca.crt application_name=$1"
    start_postgres "$1"
}

leads() { [ "$(sql "$1" 'SELECT pg_is_in_recovery()')" = f ]; }

wrong_promotion() { # in a lab of its own, left without a manager
    expect 0 "$ordeal" lab down --name "$lab"
    lab_up
    topology=$work/observe.yaml
    sed -e 's/manager: manual/manager: observe/' -e 's/routing: manager/routing: hosts/' \
        "$labs/$lab/topology.yaml" >"$topology"
    scenario lagging-promoted <<'END_METHOD'
method:
  - { name: hold, fault: process.freeze, target: { node: n2, process: walreceiver }, for: 6s }
  - { name: kill, fault: process.kill, target: { node: n1, process: everything }, at: hold + 2s, expect: { failover: yes } }
END_METHOD
    begin
    until_ok 60 journal_has '"event":"fault.injected".*"fault":"process.kill"'
    as_postgres n2 "$bin/pg_ctl" -D "$data" -s -W promote
    until_ok 30 leads n2
    as_postgres n3 "$bin/pg_ctl" -D "$data" -s -m immediate stop
    follow n3 10.77.0.2
    follow n1 10.77.0.2
    ended
    count_again
}

wrong_tail() {
    must_be_the_tail
    must_find below_promise 0
    must_say fail "lost $lost of $acked acknowledged \(exactly the tail after the fork of timeline 2\)"
    nothing_but lost
    table "the lagging standby promoted on purpose" "lost $lost of $acked, exactly the tail, fail, exit 1" \
        "lost $above above $fork + $between_lost across it, fail"
}

# A walreceiver that was stopped in the middle of reading reads on when it is thawed, whatever it was told
# meanwhile; then nothing was planted. That is rare: once more.
planted() { # COMMAND
    "$1"
    [ "$above" -gt 0 ] || "$1"
}

lab_up
table planted "found as" expected
control
dead_rule
aborted_row
deleted_row
refused_role
planted weak_role
weak_tail
planted wrong_promotion
wrong_tail
