# SPDX-License-Identifier: MIT
# Commits that the primary alone has and that end in the wait for their standbys, or before it.

waiting="usename = 'ordeal_load' AND wait_event = 'SyncRep'"

cut_off() { # NAME: the runbook finds the primary without its quorum and replaces it
    another_topology -e 's/detect: 1s/detect: 2s/'
    scenario "$1" <<'END_METHOD'
method:
  - { name: cut, fault: network.partition, target: { role: primary }, with: { peers: [n1, n2, n3] }, for: 8s, expect: { failover: yes } }
END_METHOD
}

# The waiters of one moment, all of them at once: how many were told to end.
end_waits() { # NODE FUNCTION
    until_ok 10 at_least 4 "$1" "SELECT count(*) FROM pg_stat_activity WHERE $waiting"
    sql "$1" "SELECT count($2(pid)) FROM pg_stat_activity WHERE $waiting"
}

cut_and_ended() { # sets cancelled, terminated
    local node
    node=$(primary_now)
    begin
    until_ok 60 journal_has '"event":"fault.injected"'
    cancelled=$(end_waits "$node" pg_cancel_backend)
    terminated=$(end_waits "$node" pg_terminate_backend)
    ended
    the_topology
    [ "$code" -eq 0 ] || wrong "exit $code, expected 0"
    count_again
    classes_again
}

# Nobody else could end these waits: each cancelled one is weak, each terminated one in doubt and told why. What was
# on its way when the cut came may have reached a standby.
ends_are_right() { # WHERE
    local gone=$((weak - weak_held))
    must_find weak "$cancelled"
    [ "$gone" -gt 0 ] || wrong "no weak commit was lost: $numbers"
    [ "$told" -eq "$terminated" ] || wrong "$terminated terminated: $numbers"
    must_say pass "lost 0, .*weak $cancelled \($gone lost\)"
    nothing_but
    table "commits cancelled while they wait for standbys$1" \
        "weak $(found weak), $(found weak_lost) gone with the primary, lost 0, pass" \
        "$cancelled weak, $gone gone, no acked loss, pass"
    table "commits terminated while they wait for standbys$1" \
        "in doubt $(found in_doubt), $(found in_doubt_present) present, lost 0, pass" \
        "in doubt, $terminated told 57P01, pass"
}

cancelled_waits() {
    cut_off waits-ended
    cut_and_ended
    ends_are_right ""
}

hidden_warnings() {
    sql "$(primary_now)" "ALTER ROLE ordeal_load SET client_min_messages = error"
    cut_off warnings-hidden
    cut_and_ended
    sql "$(primary_now)" "ALTER ROLE ordeal_load RESET client_min_messages"
    ends_are_right ", role hides warnings"
}

# Nobody can tell what these acknowledgements are worth.
hidden_in_trigger() {
    local node
    node=$(primary_now)
    scenario hidden-in-trigger <<'END_METHOD'
method: [ { name: wait, pause: 2s } ]
END_METHOD
    begin
    until_ok 40 journal_has '"phase":"baseline"'
    behind "$node" "$(meddle client_min_messages error)"
    finish 2
    classes_again
    [ "$weak" -gt 100 ] || wrong "hardly anything was planted: $numbers"
    must_say inconclusive "durability in force is not known for $weak acknowledgements"
    nothing_but
    table "client_min_messages = error set by a trigger at each commit" \
        "weak $weak, worth of each unknown, inconclusive, exit 2" "not acknowledged, inconclusive"
}

# ---- PANIC at the flush of the WAL ----

# The primary's volume fails in the middle of commits. When another one leads, the node is switched off and on, as
# somebody would who got it a new cable.
wal_panic() {
    local node
    node=$(primary_now)
    scenario wal-panic <<'END_METHOD'
method: [ { name: wait, pause: 5s } ]
END_METHOD
    begin
    until_ok 60 journal_has '"phase":"method"'
    # who flushes first gets the PANIC: a client, and not the server's own writer
    on "$node" kill -STOP "$(sql "$node" "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")"
    on "$node" xfs_io -x -c shutdown /var/lib/postgresql
    until_ok 60 journal_has '"event":"ha.route"'
    expect 0 "$ordeal" lab power --name "$lab" cut "$node"
    expect 0 "$ordeal" lab power --name "$lab" on "$node"
    finish 1 # no fault of the run explains the failover; what was acknowledged is whole
    count_again
    classes_again
    [ "$panicked" -gt 0 ] || wrong "nobody was told of a PANIC at COMMIT: $numbers"
    must_say pass "lost 0, in doubt $(found in_doubt)"
    nothing_but
    table "the primary's volume fails: PANIC at the WAL flush" \
        "in doubt $(found in_doubt) ($panicked told of the PANIC), lost 0, its failover unexplained, exit 1" \
        "in doubt, never aborted, lost 0, pass"
}
