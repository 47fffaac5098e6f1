# SPDX-License-Identifier: MIT
# The client node cannot see: what was not looked at is never a pass.

killed_primary() { # NAME
    scenario "$1" 'durability: {}, failover-time: {}, single-writer: {}' <<'END_METHOD'
method:
  - { name: kill, fault: process.kill, target: { role: primary, process: everything }, expect: { failover: yes } }
END_METHOD
}

# ---- starved of CPU ----

client_cpu() { # QUOTA-US PERIOD-US, for everything on the client node
    local group=/sys/fs/cgroup/cpu/ordeal-$lab/c1
    [ -d "$group" ] || group=/sys/fs/cgroup/ordeal-$lab/c1
    if [ -e "$group/cpu.cfs_quota_us" ]; then
        echo "$2" >"$group/cpu.cfs_period_us"
        echo "$1" >"$group/cpu.cfs_quota_us"
    else
        echo "${1/#-1/max} $2" >"$group/cpu.max"
    fi
}

starved_client() {
    killed_primary starved-client
    begin
    until_ok 60 journal_has '"phase":"method"'
    client_cpu 10000 1000000
    until_ok 60 journal_has '"event":"ha.route"'
    client_cpu -1 100000
    finish 2
    check_says failover-time inconclusive 'stood still for [0-9]+ ms across the outage'
    check_says single-writer inconclusive 'direct probes stood still'
    nothing_but
    table "the client node has 1 % of a CPU during the outage" \
        "$(of_check failover-time text | grep -oE 'the load stood still for [0-9]+ ms'), inconclusive, exit 2" \
        "inconclusive, never pass"
}

# ---- a load worker is killed ----

first_worker() { # the worker's flusher has its ledger open, too: it is the younger one
    on c1 find /proc -maxdepth 2 -name maps -exec grep -l 'worker-1.ledger' {} + 2>/dev/null |
        grep -o '[0-9]*' | sort -n | head -n 1
}

killed_worker() {
    local worker
    killed_primary killed-worker
    begin
    until_ok 60 journal_has '"event":"fault.injected"'
    worker=$(first_worker)
    on c1 kill -KILL "$worker"
    finish 2
    classes_again
    [ "$gaps" -eq 0 ] || wrong "the ledger has a hole: $numbers"
    check_says failover-time inconclusive 'stood still for [0-9]+ ms across the outage'
    nothing_but
    table "a load worker killed by SIGKILL during the outage" \
        "no gap, lost $(found lost) of $acked, failover time inconclusive, exit 2" "no gap, inconclusive"
}
