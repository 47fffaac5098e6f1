#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Bad input and bad clusters: refused before anything is changed, with the thing that is wrong in the message.
. tests/support/lab.sh "$1" "t-refuse-$$"

refused() { # CODE PATTERN ARGUMENTS of run
    local code=$1 pattern=$2
    shift 2
    rm -rf "$work/run"
    expect "$code" "$ordeal" run -o "$work/run" "$@"
    says "$pattern"
}
with() { sed "$1" "$topology" >"$work/topology.yaml"; } # a copy of the topology, changed

lab_up
topology=$labs/$lab/topology.yaml
ordinary=(-t "$topology" baseline)

# ---- files ----
printf 'schema: ordeal/scenario-1\ntitle: [x\n' >"$work/s.yaml"
refused 4 's.yaml:3:1: did not find expected' -t "$topology" "$work/s.yaml"
printf 'schema: ordeal/scenario-1\ntitle: x\nmethd: []\n' >"$work/s.yaml"
refused 4 's.yaml:3:1: unknown key methd, did you mean method' -t "$topology" "$work/s.yaml"
printf 'schema: ordeal/scenario-1\ntitle: x\nmethod: [{ fault: process.kill, target: n9, with: { process: backend } }]\n' \
    >"$work/s.yaml"
refused 4 'unknown node or role n9, did you mean n1' -t "$topology" "$work/s.yaml"
printf 'schema: ordeal/scenario-1\ntitle: x\nmethod: [{ fault: process.kill, target: archive, with: { process: backend } }]\n' \
    >"$work/s.yaml"
refused 4 'empty target: no node fits role archive' -t "$topology" "$work/s.yaml"
refused 4 'no-such-scenario' -t "$topology" no-such-scenario
expect 4 "$ordeal" validate "$work/s.yaml" "$work/none.yaml"

# ---- connections ----
"$ordeal" pki init "$work/pki" >/dev/null && "$ordeal" pki issue "$work/pki" orchestrator --role orchestrator >/dev/null ||
    fail "no second CA"
with "s#pki/orchestrator#../../../../..$work/pki/orchestrator#; s#$labs/$lab/\.\./\.\./\.\./\.\./\.\.#/#"
sed -i "s#certificate: .*#certificate: $work/pki/orchestrator.crt#; s#key: .*/.*orchestrator.key#key: $work/pki/orchestrator.key#" \
    "$work/topology.yaml"
refused 4 'foreign CA' -t "$work/topology.yaml" baseline
with 's/10.77.0.2,/10.77.0.99,/'
refused 4 'no session with n2 at 10.77.0.99' -t "$work/topology.yaml" baseline

# ---- the cluster ----
with 's#secrets/load.pass#secrets/admin.pass#'
refused 4 'user ordeal_load does not get in' -t "$work/topology.yaml" baseline
sql n1 "ALTER ROLE ordeal_load SET synchronous_commit = local"
refused 4 'role ordeal_load sets synchronous_commit = local, weaker than the promise quorum' "${ordinary[@]}"
sql n1 "ALTER ROLE ordeal_load RESET synchronous_commit"
sql n3 "ALTER SYSTEM SET recovery_min_apply_delay = '250ms'"
sql n3 "SELECT pg_reload_conf()" >/dev/null
sql n1 "ALTER SYSTEM SET synchronous_standby_names = '*'"
sql n1 "SELECT pg_reload_conf()" >/dev/null
until_ok 5 sh -c "'$ordeal' lab exec --name $lab n1 -- psql -XAtq -U ordeal_admin -d postgres -c 'SHOW synchronous_standby_names' | grep -qF '*'"
refused 4 'has a wildcard' "${ordinary[@]}"
says 'n3: recovery_min_apply_delay = 250 ms'
sql n3 "ALTER SYSTEM RESET recovery_min_apply_delay"
sql n3 "SELECT pg_reload_conf()" >/dev/null
sql n1 "ALTER SYSTEM RESET synchronous_standby_names"
sql n1 "SELECT pg_reload_conf()" >/dev/null
sql n2 "SELECT pg_wal_replay_pause()"
refused 4 'n2: its replay is paused' "${ordinary[@]}"
sql n2 "SELECT pg_wal_replay_resume()"
on n3 sh -c 'kill -INT "$(head -n 1 /var/lib/postgresql/15/main/postmaster.pid)"'
until_ok 10 sh -c "! '$ordeal' lab exec --name $lab n3 -- test -e /var/lib/postgresql/15/main/postmaster.pid"
refused 4 'n3: PostgreSQL is down' "${ordinary[@]}"
start_postgres n3

# ---- a disk that is full ----
mkdir "$work/small"
mount -t tmpfs -o size=100k none "$work/small"
status=0
"$ordeal" run "${ordinary[@]}" -o "$work/small/run" >"$work/out" 2>"$work/err" || status=$?
umount "$work/small"
[ "$status" -eq 4 ] || fail "exit $status with a full disk"
says "run directory's file system has 0 MiB free"

# ---- and nothing of it stayed ----
expect 0 "$ordeal" status -t "$topology"
says 'no fault is active'
