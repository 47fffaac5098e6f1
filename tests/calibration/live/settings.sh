# SPDX-License-Identifier: MIT
# synchronous_commit weakened: seen before the run it is refused; planted behind the preflight, what it cost is
# named as its doing. The standbys' receivers are held, so that commits acknowledged by the primary alone are lost
# with it.

# Sets for the transaction that it is called in, and as late as at its commit.
meddle() { # SETTING VALUE: a statement; what it makes goes with the workload's schema
    echo "CREATE FUNCTION ordeal.meddle() RETURNS trigger LANGUAGE plpgsql
            AS \$\$ BEGIN PERFORM set_config('$1', '$2', true); RETURN NULL; END \$\$;
        CREATE CONSTRAINT TRIGGER meddle AFTER INSERT ON ordeal.journal DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION ordeal.meddle()"
}

declare -A weaken=(
    [role]="ALTER ROLE ordeal_load SET synchronous_commit = local"
    [database]="ALTER DATABASE ordeal SET synchronous_commit = local"
    [function]="CREATE FUNCTION public.hasty() RETURNS int LANGUAGE sql SET synchronous_commit = local AS 'SELECT 1'"
    [trigger]=$(meddle synchronous_commit local)
)
declare -A restore=(
    [role]="ALTER ROLE ordeal_load RESET synchronous_commit"
    [database]="ALTER DATABASE ordeal RESET synchronous_commit"
    [function]="DROP FUNCTION public.hasty()"
    [trigger]="SELECT 1"
)
declare -A named=([role]="role ordeal_load" [database]="database ordeal" [function]="function public.hasty()")

held_and_killed() { # NAME
    scenario "$1" <<'END_METHOD'
method:
  - { name: hold, fault: process.freeze, target: { role: standby, process: walreceiver, mode: all }, for: 5s }
  - { name: kill, fault: process.kill, target: { role: primary, process: everything }, at: hold + 1500ms, expect: { failover: yes } }
END_METHOD
}

# One refused run names all three.
refused_settings() {
    local node kind
    node=$(primary_now)
    held_and_killed refused
    for kind in role database function; do behind "$node" "${weaken[$kind]}"; done
    begin
    finish 4
    for kind in role database function; do
        behind "$node" "${restore[$kind]}"
        grep '"event":"preflight"' "$run/journal.ndjson" |
            grep -qF "${named[$kind]} sets synchronous_commit = local, weaker than the promise quorum" ||
            wrong "the preflight does not name the $kind"
        table "synchronous_commit = local in a $kind, before the run" \
            "the preflight names the ${named[$kind]}, refused, exit 4" "refused, exit 4"
    done
    if grep -q '"phase":"baseline"' "$run/journal.ndjson"; then wrong "it went on"; fi
}

# Behind the preflight; sessions come back with the new setting.
weak_run() { # KIND
    local node
    node=$(primary_now)
    held_and_killed "weak-$1"
    begin
    until_ok 40 journal_has '"phase":"baseline"'
    behind "$node" "${weaken[$1]}"
    sql "$node" "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ordeal_load'" >"$work/gone"
    # put back on the new primary before the audit: this is about what was acknowledged
    until_ok 40 journal_has '"event":"ha.route"'
    node=$(grep '"event":"ha.promote"' "$run/journal.ndjson" | tail -n 1 | sed 's/.*"node":"\([^"]*\)".*/\1/')
    behind "$node" "${restore[$1]}" >"$work/restored"
    ended
    count_again
}

weak_tail() { # KIND
    planted weak_run "$1"
    must_be_the_tail
    must_find below_promise_lost "$lost"
    must_say fail "lost $lost of $acked acknowledged \(all acknowledged below the promise \(synchronous_commit = local, promise quorum\)\)"
    nothing_but lost
    table "the same in a $1 after the preflight, receivers held" \
        "lost $lost of $acked, below the promise (local), fail, exit 1" \
        "lost $above above $fork + $between_lost across it, fail"
}

weak_role() { weak_tail role; }
weak_database() { weak_tail database; }
weak_trigger() { weak_tail trigger; }
