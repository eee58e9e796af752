#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The example kv is killed while it loads, 20 times at random moments in fast
# memory and 5 times on a disk. Each time its store must have every key that was
# acknowledged with that value or a later one, and the count of keys, which lies
# in another block of the same handles, must fit.
set -eu
kv=$NVJ_BUILD/kv
keys=5000 # put n goes to key n mod 5000

directories=()
trap 'rm -rf "${directories[@]}"' EXIT

# kill_rounds DIRECTORY ROUNDS
kill_rounds() {
	local store=$1/store first=0 round pid last puts=0 empty=0
	: > "$1/acknowledged"
	for ((round = 1; round <= $2; round++)); do
		# What is killed is kv, the last of the two; its own death ends the other.
		awk -v n="$first" -v keys=$keys 'BEGIN { for (;; n++) print "put key" n % keys, n }' |
			"$kv" --allow-volatile "$store" > "$1/printed" &
		pid=$!
		sleep "0.$(printf %03d $((RANDOM % 400)))"
		kill -KILL "$pid"
		wait "$pid" 2>/dev/null && { echo "kv ended by itself"; return 1; }
		# The last line may be a part of one: only whole lines are acknowledged.
		sed -n 's/^key\([0-9]*\) \([0-9]*\)$/\1 \2/p' "$1/printed" > "$1/whole"
		if [ -s "$1/printed" ] && [ "$(tail -c 1 "$1/printed" | od -An -c | tr -d ' ')" != '\n' ]; then
			sed -i '$d' "$1/whole"
		fi
		cat "$1/whole" >> "$1/acknowledged"
		[ -s "$1/whole" ] || empty=$((empty + 1))
		puts=$((puts + $(wc -l < "$1/whole")))
		"$kv" --allow-volatile "$store" list > "$1/list"
		# Each is printed before the next one begins.
		awk -v keys=$keys -v behind=1 -f "$NVJ_SOURCE/test/user_kv_check.awk" "$1/acknowledged" "$1/list" || {
			echo "after round $round ($puts puts)"
			return 1
		}
		last=$(awk 'END { print NR ? $2 : -1 }' "$1/acknowledged")
		# The next round begins behind what this one may have stored.
		first=$((last + 2))
	done
	echo "$1: $2 kills, $puts puts acknowledged, $empty rounds without any"
	[ "$puts" -gt 0 ]
}

fast=${TMPDIR:-/tmp}
[ -w /dev/shm ] && fast=/dev/shm
directories+=("$(mktemp -d "$fast/kv-kill.XXXXXX")")
kill_rounds "${directories[0]}" 20
directories+=("$(mktemp -d "${TMPDIR:-/tmp}/kv-kill.XXXXXX")")
kill_rounds "${directories[1]}" 5
