#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every registered fault, held at every moment of its life, and somebody dies there: agent, guardian, both, the
# orchestrator, the network to the agent, the node by a power cut. Each time the node looks as before within the lease
# and a second, seen from outside and by the agent. What is not synced when the power goes is really gone.
. tests/support/lab.sh "$1/variants/kill" "t-kill-$$"

lab_up -t tests/kill/lab.yaml
"$1/tests/kill/kill_table" "$(realpath "$1/variants/kill")" "$lab"
