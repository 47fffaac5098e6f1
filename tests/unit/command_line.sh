#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The command line as a user meets it: help, slips, exit codes, manual page, completion.
set -uo pipefail
ordeal=$1/ordeal
failed=0

expect() { # CODE TEXT ARGUMENT...: exit code and a text in the output
    local code=$1 text=$2 output status
    shift 2
    output=$("$ordeal" "$@" 2>&1)
    status=$?
    if [ "$status" -ne "$code" ] || [[ $output != *"$text"* ]]; then
        echo "ordeal $*: exit $status (expected $code), output lacks \"$text\":"
        echo "$output"
        failed=1
    fi
}

expect 64 'usage: ordeal COMMAND'
expect 0 'not recovered' --help
expect 0 'ordeal 0' --version
expect 64 'Did you mean "ordeal run"' rnu
expect 64 'lists the commands' qqqqqqqq
expect 64 'Did you mean --name' lab up --nmae x
expect 64 'needs a value' lab up --name
expect 64 'an argument is missing' run
expect 64 'too many arguments' lab down x y
expect 0 'usage: ordeal lab power' lab power --help
expect 0 '.TH ORDEAL 1' --manual
expect 0 'complete -F _ordeal ordeal' --completion
bash -n <("$ordeal" --completion) || failed=1
"$ordeal" --help >/dev/full 2>/dev/null && { echo 'a full stdout goes unnoticed'; failed=1; }
manual=$("$ordeal" --manual | tr -d '\\')
# every command of the table answers --help and stands in the manual page
while read -r name; do
    read -ra words <<<"$name"
    expect 0 "usage: ordeal $name" "${words[@]}" --help
    grep -q "^.SS ordeal $name" <<<"$manual" || { echo "$name is not in the manual page"; failed=1; }
done < <("$ordeal" --help | sed -n 's/^  \([a-z]\+\( [a-z]\+\)\?\)  .*/\1/p' | grep -v '^COMMAND')
exit $failed
