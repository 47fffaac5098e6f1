#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The product has no kill point: neither the symbol nor a text of it. The same question finds both in the test
# variant, so that it can fail.
set -euo pipefail
build=$1

points() { # PROGRAM: what of lib/kill_point.c is in it
    { nm "$1" | grep -w kill_point || true; grep -aoE 'kill-points|before-inject|journal-durable' "$1" || true; } | sort -u
}
for program in ordeal ordeald ordeal-guardian; do
    found=$(points "$build/$program")
    [ -z "$found" ] || { echo "$program has kill points: $found"; exit 1; }
done
for program in ordeald ordeal-guardian; do
    [ "$(points "$build/variants/kill/$program" | wc -l)" -ge 3 ] ||
        { echo "the variant of $program has no kill points: $(points "$build/variants/kill/$program")"; exit 1; }
done
