#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A fault never outlives its lease: the orchestrator killed, the agent killed, the guardian killed, and the power cut
# while a fault holds. Each time the node comes back clean by itself.
. tests/support/lab.sh "$1" "t-lease-$$"

topology=$labs/$lab/topology.yaml
inject() { # NODE FAULT [OPTION...]: in the background, until it is active; its pid in $orchestrator
    local node=$1 fault=$2
    shift 2
    : >"$work/inject"
    "$ordeal" inject "$fault" -t "$topology" "$@" --for 10m >"$work/inject" 2>&1 &
    orchestrator=$!
    until_ok 20 grep -q "$node: $fault: active" "$work/inject"
}
freeze() { inject n1 process.freeze --target node=n1,process=everything; }
stopped() { on n1 sh -c 'cat /proc/[0-9]*/status 2>/dev/null | grep -c "^State:.*(stopped)"' || true; }
thawed() { [ "$(stopped)" = 0 ]; }
process_of() { # PATTERN: its pid on n1, seen from n1
    on n1 sh -c "for p in /proc/[0-9]*; do
        tr '\\0' ' ' <\$p/cmdline | grep -qE '$1' && basename \$p; done 2>/dev/null | head -n 1"
}
end_orchestrator() {
    kill -9 "$orchestrator" 2>/dev/null || true
    wait "$orchestrator" 2>/dev/null || true
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

lab_up
state=$(on n1 sh -c 'for p in /proc/[0-9]*; do tr "\0" "\n" <$p/cmdline; done 2>/dev/null | grep -A1 -x -- --state | sed -n 2p')
closed_by() { on n1 grep -qE "closed .* $1 absent\$" "$state/journal"; }

# ---- the orchestrator dies: nothing changes until the lease lapses ----
freeze
[ "$(stopped)" -gt 3 ] || fail "only $(stopped) processes are stopped"
end_orchestrator
start=$(milliseconds)
[ "$(stopped)" -gt 3 ] || fail "thawed before the lease lapsed"
until_ok 10 thawed
took=$(($(milliseconds) - start))
[ "$took" -lt 6500 ] || fail "the lease of 5 s lapsed, and the node was thawed after $took ms"
until_ok 5 closed_by lease
echo "table: orchestrator killed: thawed after $took ms (lease 5000 ms)"

# ---- the agent dies: undone at once, and it is back ----
freeze
agent=$(process_of 'ordeald --agent .*--node n1')
on n1 kill -9 "$agent"
start=$(milliseconds)
until_ok 5 thawed
took=$(($(milliseconds) - start))
until_ok 5 closed_by death
end_orchestrator
echo "table: agent killed: thawed after $took ms"

# ---- the guardian dies: the node's init starts it again, and it undoes before the agent listens ----
freeze
guardian=$(process_of 'ordeal-guardian .*--node n1')
on n1 kill -9 "$guardian"
start=$(milliseconds)
until_ok 10 thawed
took=$(($(milliseconds) - start))
until_ok 5 closed_by restart
end_orchestrator
echo "table: guardian killed: thawed after $took ms"

# ---- the power is cut: the record on disk is undone at the boot ----
inject n1 network.partition --target node=n1 --with peers=n2 --with direction=both
expect 0 "$ordeal" lab power cut n1 --name "$lab"
end_orchestrator
expect 0 "$ordeal" lab power on n1 --name "$lab"
until_ok 10 closed_by boot
[ -z "$(on n1 nft list tables | grep ordeal || true)" ] || fail "tables after a boot: $(on n1 nft list tables)"

# ---- recover from beside: no session, no wait for the lease ----
expect 0 "$ordeal" recover -t "$topology"
