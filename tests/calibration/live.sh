#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Calibration on a living cluster: a known defect is planted into a real run, and the verdict must find exactly
# it, or say that it cannot tell. The neighbour without a defect must pass. Ends with the table
# "planted | found as | expected".
#
# usage: tests/calibration/live.sh BUILD [CASE...]   CASE: a function of tests/calibration/live/*.sh
. tests/support/lab.sh "$1" "calib-$$"
. tests/support/calibration.sh
for file in tests/calibration/live/*.sh; do
    . "$file"
done

cases=("${@:2}")
[ "${#cases[@]}" -gt 0 ] ||
    cases=(control clocks_apart dead_rule aborted_row deleted_row refused_settings weak_role weak_database weak_trigger
        cancelled_waits hidden_warnings hidden_in_trigger wal_panic two_writers
        starved_client killed_worker no_failover wrong_promotion)

clocks_apart_up
for case in "${cases[@]}"; do
    "$case"
done
