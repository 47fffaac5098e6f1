# SPDX-License-Identifier: MIT
# For lab tests, sourced:  . tests/support/lab.sh "$1" NAME
#
# Skips (77) when this host cannot hold a lab, takes the lab NAME down at the end whatever happens, and
# keeps the output of commands in $work.
set -euo pipefail
ordeal=$1/ordeal
lab=$2
labs=/var/lib/ordeal/labs
work=$(mktemp -d)
trap 'status=$?; "$ordeal" lab down --name "$lab" >/dev/null 2>&1; rm -rf "$work"; exit $status' EXIT
trap 'exit 1' INT TERM

skip() {
    echo "$*"
    exit 77
}

fail() {
    echo "FAIL: $*"
    exit 1
}

# expect CODE COMMAND...: output goes to $work/out and $work/err
expect() {
    local wanted=$1 got=0
    shift
    "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" -eq "$wanted" ] && return
    cat "$work/out" "$work/err"
    fail "exit $got, not $wanted: $*"
}

says() { # PATTERN: in what the last command of expect printed
    grep -qE "$1" "$work/out" "$work/err" && return
    cat "$work/out" "$work/err"
    fail "not said: $1"
}

lab_up() {
    expect 0 "$ordeal" lab up --name "$lab" "$@"
}

on() { # NODE COMMAND...
    local node=$1
    shift
    "$ordeal" lab exec --name "$lab" "$node" -- "$@"
}

sql() { # NODE STATEMENT
    on "$1" psql -XAtq -v ON_ERROR_STOP=1 -U ordeal_admin -d postgres -c "$2"
}

# until SECONDS COMMAND...: wait until it succeeds
until_ok() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >"$work/until" 2>&1; do
        [ "$SECONDS" -lt "$end" ] || {
            cat "$work/until"
            fail "still not after $SECONDS s: $*"
        }
        sleep 0.05
    done
}

start_postgres() { # NODE: as the HA manager would
    on "$1" setpriv --reuid postgres --regid postgres --init-groups --reset-env \
        /usr/lib/postgresql/15/bin/pg_ctl -D /var/lib/postgresql/15/main -s -w -l /dev/null start >/dev/null
}

[ "$(id -u)" -eq 0 ] || skip "a lab needs root"
