#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A recorded run is done again exactly: the standby that the seed drew, the step that followed another, the nodes that
# "others" meant. What cannot be repeated is said and refused; with --follow-roles the roles are followed, and that is said.
. tests/support/lab.sh "$1" "t-replay-$$"

cat >"$work/drawn.yaml" <<END
schema: ordeal/scenario-1
title: A standby by lot, then another one in turn
workload: { clients: 4, rate: 100/s, drain: 1s, payload: 100B }
baseline: { for: 1s }
method:
  - { name: lot, fault: process.freeze, target: { role: standby, process: walreceiver }, for: 700ms }
  - { name: rest, pause: 300ms }
  - { name: cut, fault: network.partition, target: { role: standby }, with: { peers: others }, for: 1500ms, at: lot + 1200ms }
recovery: { settle: 0s }
checks: { durability: {}, recovery: { max: 30s } }
END
cat >"$work/kill.yaml" <<END
schema: ordeal/scenario-1
title: The primary is killed
workload: { clients: 4, rate: 100/s, drain: 1s }
baseline: { for: 1s }
method:
  - { name: kill, fault: process.kill, target: { role: primary, process: everything }, expect: { failover: yes } }
recovery: { settle: 0s }
checks: { durability: {}, failover-time: { max: 30s } }
END

same_schedule() { # RUN RUN
    cmp "$work/$1/schedule.txt" "$work/$2/schedule.txt" || fail "$(diff "$work/$1/schedule.txt" "$work/$2/schedule.txt")"
    [ -s "$work/$1/schedule.txt" ] || fail "an empty schedule"
}

lab_up
topology=$labs/$lab/topology.yaml

# ---- the same once more, and the replay of a replay ----
expect 0 "$ordeal" run "$work/drawn.yaml" -t "$topology" -o "$work/first"
expect 0 "$ordeal" replay "$work/first" -o "$work/second"
says 'schedule: the same as in the run'
says 'replays .*-drawn-'
same_schedule first second
grep -q '"replays":{"run":"[^"]*-drawn-' "$work/second/journal.ndjson" || fail "the manifest does not name the run"
[ "$(sed -nE 's/.*"seed":([0-9]+),"wall".*/\1/p' "$work/first/journal.ndjson" | head -n 1)" = \
    "$(sed -nE 's/.*"seed":([0-9]+),"wall".*/\1/p' "$work/second/journal.ndjson" | head -n 1)" ] || fail "another seed"
expect 0 "$ordeal" validate "$work/second/replay.yaml"
expect 0 "$ordeal" replay "$work/second" -t "$topology" -o "$work/third"
same_schedule first third

# ---- a node that is not there any more ----
victim=$(awk '$2 == "lot" && $3 == "inject" { print $5 }' "$work/first/schedule.txt")
sed "s/\b$victim\b/gone/g" "$topology" >"$work/other.yaml"
expect 4 "$ordeal" replay "$work/first" -t "$work/other.yaml" -o "$work/never"
says "step lot acted on $victim, which topology .* does not have"
[ ! -e "$work/never" ] || fail "a run directory of a replay that was refused"

# ---- roles that moved ----
expect 0 "$ordeal" run "$work/kill.yaml" -t "$topology" -o "$work/kill"
expect 4 "$ordeal" replay "$work/kill" -o "$work/never"
says 'roles moved: n1 was primary in run .*, n1 is standby'
expect 0 "$ordeal" replay "$work/kill" -o "$work/kill-again" --follow-roles
says 'not the same: n[23] stands for n1, which was the primary'
says 'schedule: the same as in the run'
awk '$3 == "inject" && $5 != "n1"' "$work/kill-again/schedule.txt" | grep -q 'kill inject process.kill' ||
    fail "the wrong one was killed: $(cat "$work/kill-again/schedule.txt")"

# ---- what never happened cannot be repeated ----
sed '/"event":"step.start"/,$d' "$work/first/journal.ndjson" >"$work/cut"
mkdir "$work/short" && mv "$work/cut" "$work/short/journal.ndjson"
expect 4 "$ordeal" replay "$work/short" -o "$work/never"
says 'step lot did not begin'
