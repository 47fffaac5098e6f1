#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The proof that a fault bites, turned off on purpose: injections do nothing and report that all is well. Then every
# registered fault is inconclusive, and so is a run; with nothing turned off the same commands say that it bit.
. tests/support/lab.sh "$1/variants/kill" "t-noeffect-$$"

build=$1
arguments() { # FAULT: with which it can be injected in this lab
    case $1 in
    process.kill) echo --target node=n3,process=everything ;;
    process.freeze) echo --target node=n3,process=everything --for 1s ;;
    network.partition) echo --target node=n3 --with peers=n2 --for 1s ;;
    node.crash) echo --target node=n3 --for 1s ;;
    *) fail "$1 has no line here" ;;
    esac
}
skip_injections() {
    "$build/tests/kill/kill_table" "$(realpath "$build/variants/kill")" --skip n1 n2 n3 "$lab" >"$work/skip" &
    skipping=$!
    until_ok 5 grep -q ready "$work/skip"
}
end_skipping() {
    kill "$skipping"
    wait "$skipping" 2>/dev/null || true
}

lab_up -t topologies/lab-quorum.yaml
topology=$labs/$lab/topology.yaml
mapfile -t faults < <("$ordeal" faults --json | grep -oE '"name": ?"[a-z]+\.[a-z-]+"' | grep -oE '[a-z]+\.[a-z-]+')
[ "${#faults[@]}" -ge 4 ] || fail "the catalogue has only ${#faults[@]} faults"

skip_injections
for fault in "${faults[@]}"; do
    # shellcheck disable=SC2046
    expect 2 "$ordeal" inject "$fault" -t "$topology" $(arguments "$fault")
    says "n3: $fault: absent"
done
cat >"$work/scenario.yaml" <<END
schema: ordeal/scenario-1
title: A fault that does nothing
workload: { clients: 4, rate: 100/s }
baseline: { for: 1s }
method:
  - name: freeze
    fault: process.freeze
    target: { role: standby, process: everything }
    for: 1s
checks: { durability: {} }
END
expect 2 "$ordeal" run "$work/scenario.yaml" -t "$topology" -o "$work/run"
says 'INCONCLUSIVE'
grep -q '"event":"fault.injected".*"effect":{"state":"absent"' "$work/run/journal.ndjson" || fail "it was seen to bite"

end_skipping
expect 0 "$ordeal" inject process.freeze -t "$topology" $(arguments process.freeze)
says "n3: process.freeze: active"
