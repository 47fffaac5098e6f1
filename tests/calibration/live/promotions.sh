# SPDX-License-Identifier: MIT
# Promotions by somebody who does not know better, one beside a primary that lives, and one that never comes.

# ---- the lagging standby promoted, by somebody who does not know better ----

follow() { # NODE ADDRESS: a new copy of the primary there
    as_postgres "$1" find "$data" -mindepth 1 -delete
    as_postgres "$1" "$bin/pg_basebackup" -D "$data" --checkpoint=fast -X stream -R -C -S "$1" \
        -d "host=$2 user=ordeal_replication passfile=/var/lib/ordeal/postgresql/replication.pgpass \
sslmode=verify-ca sslrootcert=/var/lib/ordeal/pki/ca.crt application_name=$1"
    start_postgres "$1"
}

wrong_promotion_run() { # in a lab of its own, left without a manager
    expect 0 "$ordeal" lab down --name "$lab"
    clocks_apart_up
    another_topology -e 's/manager: manual/manager: observe/' -e 's/routing: manager/routing: hosts/'
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

wrong_promotion() {
    planted wrong_promotion_run
    must_be_the_tail
    must_find below_promise 0
    must_say fail "lost $lost of $acked acknowledged \(exactly the tail after the fork of timeline 2\)"
    nothing_but lost
    table "the lagging standby promoted on purpose" "lost $lost of $acked, exactly the tail, fail, exit 1" \
        "lost $above above $fork + $between_lost across it, fail"
}

# ---- two writers ----

# The frozen primary wakes up without its quorum rule (somebody took it away while it slept), and nobody fenced it.
two_writers() {
    local node postmaster
    node=$(primary_now)
    another_topology -e 's/fence: control/fence: none/'
    scenario two-writers 'durability: {}, single-writer: {}' <<END_METHOD
method:
  - { name: freeze, fault: process.freeze, target: { node: $node, process: everything }, for: 4s, expect: { failover: yes } }
END_METHOD
    before=$(sql "$node" "SELECT timeline_id FROM pg_control_checkpoint()")
    begin
    until_ok 60 journal_has '"event":"fault.injected"'
    echo "synchronous_standby_names = ''" | on "$node" tee -a "$data/postgresql.auto.conf" >/dev/null
    postmaster=$(on "$node" head -n 1 "$data/postmaster.pid")
    on "$node" kill -HUP "$postmaster"
    finish 5 # what was planted is there still, and the audit says so
    the_topology
    grep -q "setting synchronous_standby_names in $data/postgresql.auto.conf" "$run/summary.txt" ||
        wrong "the audit does not name what was planted"
    sql "$node" "ALTER SYSTEM RESET synchronous_standby_names" # as it says
    sql "$node" "SELECT pg_reload_conf()" >"$work/reloaded"
    expect 0 "$ordeal" recover -t "$topology"
    count_again
    numbers=$("$count" writers "$run" "$before" "$((before + 1))")
    eval "$numbers"
    [ "$old_rows" -gt 10 ] || wrong "hardly anything was planted: $numbers"
    check_says single-writer fail "$node \(timeline $before\) accepted $old_rows writes until .*accepted $new_rows: overlap $overlap_ms ms"
    must_say fail "lost $lost of $acked"
    nothing_but lost
    table "primary frozen, not fenced, thawed without its quorum" \
        "two writers for $overlap_ms ms, $old_rows and $new_rows rows; lost $lost, fail" \
        "$old_rows rows beside $new_rows for $overlap_ms ms, fail"
}

# ---- a failover that never comes ----

no_failover() {
    local node
    node=$(primary_now)
    another_topology -e 's/manager: manual/manager: observe/' -e 's/routing: manager/routing: hosts/' \
        -e 's/failover: 30s/failover: 5s/'
    scenario no-failover 'failover-time: {}, durability: {}' <<END_METHOD
method:
  - { name: kill, fault: process.kill, target: { node: $node, process: everything }, expect: { failover: yes } }
END_METHOD
    begin
    until_ok 90 journal_has '"phase":"recovery"'
    start_postgres "$node"
    finish 1
    the_topology
    check_says failover-time fail 'the expected failover did not happen after kill \(timeline still [0-9]+\)'
    must_say pass 'lost 0'
    nothing_but
    table "the primary is killed, and nobody promotes" \
        "$(of_check failover-time text | grep -o 'the expected failover did not happen after kill'), fail, exit 1" "no failover, fail"
}
