#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs of strict compilers may include the public headers: each of them, alone, has
# no warning in C and C++, with gcc and clang, of the oldest and the newest standard
# that both have. (Functions with the name of a structure, as stat, are what g++ -Wshadow
# warns of.)
set -u
clang=${CLANG:-clang-14}
failed=0

# try COMPILER LANGUAGE STANDARD...
try() {
	local compiler=$1 language=$2 standard header
	shift 2
	command -v "$compiler" > /dev/null || { echo "there is no $compiler"; return; }
	for standard; do
		for header in nvjournal.h nvjournal_user.h; do
			echo "#include <$header>" | "$compiler" -x "$language" -std="$standard" -fsyntax-only \
				-Wall -Wextra -Wpedantic -Wconversion -Wundef -Werror \
				-I"$NVJ_SOURCE/include" - && continue
			echo "$header has warnings: $compiler -std=$standard"
			failed=1
		done
	done
}

try gcc c c99 c11 c17
try "$clang" c c99 c11 c17
try g++ c++ c++11 c++17
try "${clang/clang/clang++}" c++ c++11 c++17
exit $failed
