# SPDX-License-Identifier: Apache-2.0
#
# Compares what kv acknowledged (lines "KEY-NUMBER PUT-NUMBER", in order)
# with what "kv list" shows: of each key the last acknowledged put, or one of those
# behind all of them, up to `behind`: whose acknowledgement was not seen any more.
# keys: put n goes to key n mod keys.
BEGIN {
	last = -1
}
FILENAME == ARGV[1] {
	want[$1] = last = $2
	next
}
{
	key = substr($1, 4)
	have[key] = $2
	if ($2 % keys != key || $2 > last + behind) {
		print "key" key " has " $2 ", which nobody put there"
		bad = 1
	}
}
END {
	for (key in want)
		if (!(key in have)) {
			print "key" key " = " want[key] " is lost"
			bad = 1
		} else if (have[key] < want[key]) {
			print "key" key " is " have[key] ", and " want[key] " was acknowledged"
			bad = 1
		}
	exit bad
}
