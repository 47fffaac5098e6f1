#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# off, cut and on: a dead host sends nothing, what was committed survives, what nobody synced survives an `off`
# but not a `cut`, and a boot is a boot.
. tests/support/lab.sh "$1" "t-power-$$"

power() { expect 0 "$ordeal" lab power "$1" "$2" --name "$lab"; }
boot_id() { on "$1" cat /proc/sys/kernel/random/boot_id; }
answers() { "$ordeal" lab status --name "$lab" | grep -qE "^$1 .*$2"; }
loops() { cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -F "/$lab/$1/" || true; }
streaming() { [ "$(sql n1 "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")" = "$1" ]; }

lab_up
sql n1 "CREATE TABLE kept (word text)"
before=$(boot_id n1)

# ---- off: a silent end ----
on c1 sh -c 'PGPASSWORD=$(cat /var/lib/ordeal/secrets/load.pass) exec psql -XAtq -h 10.77.0.2 -U ordeal_load \
    -d ordeal -c "SELECT pg_sleep(120)"' >/dev/null 2>&1 &
until_ok 10 sh -c "$ordeal lab exec --name $lab c1 -- ss -tnH state established dst 10.77.0.2 | grep -q 5432"
on n2 sh -c 'echo unsynced >/var/lib/postgresql/off-test'
power off n2
[ -z "$(loops n2)" ] || fail "loop devices after off: $(loops n2)"
expect 1 on p1 ip link show n2
on c1 ss -tnH state established dst 10.77.0.2 | grep -q 5432 || fail "the client was told that n2 died"
expect 4 on n2 true
says 'n2 is off'
answers n2 'off .* down$' || fail "status of a node that is off"
power off n2 # again: fine
sql n1 "INSERT INTO kept VALUES ('with n2 off')"
power on n2
boot=$(boot_id n2)
power on n2 # again: fine, and no second boot
[ "$(boot_id n2)" = "$boot" ] || fail "a second 'on' booted n2 again"
until_ok 10 answers n2 'answers +down$' # the agent is back, PostgreSQL is left to the HA manager
[ "$(on n2 cat /var/lib/postgresql/off-test)" = unsynced ] || fail "off lost a file: it is not cut"
start_postgres n2
until_ok 10 streaming 2

# ---- cut: what nobody synced is gone ----
for volume in /var/lib/ordeal /var/lib/postgresql; do
    on n1 sh -c "echo durable >$volume/synced && sync $volume/synced"
done
sql n1 "INSERT INTO kept VALUES ('before the cut')"
on n1 sh -c 'echo volatile | tee /var/lib/ordeal/unsynced /var/lib/postgresql/unsynced >/dev/null'
power cut n1
[ -z "$(loops n1)" ] || fail "loop devices after cut: $(loops n1)"
power on n1
for volume in /var/lib/ordeal /var/lib/postgresql; do
    [ "$(on n1 cat $volume/synced)" = durable ] || fail "$volume lost a synced file"
    ! on n1 grep -qs volatile $volume/unsynced || fail "$volume kept what nobody synced: the power was not cut"
done
after=$(boot_id n1)
[ "$before" != "$after" ] || fail "the boot id is the same after a boot"
[ "$(on n1 sh -c 'echo $$')" -gt 2000 ] || fail "pids begin where they began before"
until_ok 10 answers n1 'answers +down$'
start_postgres n1
on n1 grep -q 'database system was not properly shut down' /var/lib/postgresql/15/log/postgresql.log ||
    fail "no crash recovery after a cut"
[ "$(sql n1 "SELECT string_agg(word, ',' ORDER BY word) FROM kept")" = "before the cut,with n2 off" ] ||
    fail "rows: $(sql n1 'SELECT * FROM kept')"
until_ok 10 streaming 2
sql n1 "INSERT INTO kept VALUES ('after the cut')"

# ---- off while PostgreSQL is frozen: frozen processes die only when thawed ----
freezer=/sys/fs/cgroup/freezer/ordeal-$lab/n3/postgres/freezer.state
if [ -e "$freezer" ]; then
    echo FROZEN >"$freezer"
else
    echo 1 >"/sys/fs/cgroup/ordeal-$lab/n3/postgres/cgroup.freeze"
fi
power off n3
power on n3
until_ok 10 answers n3 'answers +down$'

# ---- the agent comes back when it is killed; the power node has no switch ----
agent_of='for p in /proc/[0-9]*; do
    tr "\0" " " <$p/cmdline | grep -q -- "--node n2" && grep -q ") . 1 " $p/stat && basename $p; done 2>/dev/null | head -n 1'
pid=$(on n2 sh -c "$agent_of")
on n2 kill -9 "$pid"
until_ok 10 sh -c "test -n \"\$($ordeal lab exec --name $lab n2 -- sh -c '$agent_of')\""
until_ok 10 answers n2 'answers'
expect 4 "$ordeal" lab power off p1 --name "$lab"
says 'no node "p1" with power of its own'
expect 64 "$ordeal" lab power maybe n1 --name "$lab"
says 'off, cut and on'
