# SPDX-License-Identifier: MIT
# Rows that are there and should not be, or the other way round, and a fault that is none.

control() {
    scenario primary-kill 'durability: {}, failover-time: {}, single-writer: {}' <<'END_METHOD'
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

# The run of control again, whose nodes and client have boot clocks of their own: by the orchestrator's clock alone
# the first write on the new timeline lies between the promotion and the begin of the recovery.
clocks_apart() {
    local node here there least most
    for node in "${!apart_s[@]}"; do
        read -r here _ </proc/uptime
        read -r there _ < <(on "$node" cat /proc/uptime)
        [ "$((${there%.*} - ${here%.*} - apart_s[$node]))" -lt 10 ] && [ "${there%.*}" -ge "$((${here%.*} + apart_s[$node]))" ] ||
            wrong "the clock of $node is not ${apart_s[$node]} s before the host's: $there and $here"
    done
    least=$((($(event_ns ha.promote) - $(event_ns fault.injected)) / 1000000))
    most=$((($(event_ns phase '"phase":"recovery"') - $(event_ns step.start)) / 1000000))
    time_ms=$(awk '$1 == "\"time_ms\":" { printf "%d", $2; exit }' "$run/result.json")
    [ "$time_ms" -ge "$least" ] && [ "$time_ms" -le "$most" ] ||
        wrong "the failover took $time_ms ms, by one clock $least to $most ms"
    check_says failover-time pass 'timeline [0-9]+ to [0-9]+'
    check_says single-writer pass 'on timeline'
    table "boot clocks of nodes and client 5 s to 11 min apart" "failover $time_ms ms, pass, exit 0" \
        "$least to $most ms by one clock"
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
