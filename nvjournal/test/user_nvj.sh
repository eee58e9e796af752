#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The command nvj, on journals that the example kv has made and left by kill -9:
# exit codes, what is refused and why, that looking changes nothing, that damage
# is named with its place, and that recovery makes the disk what kv would see.
set -u
nvj=$NVJ_BUILD/nvj
kv=$NVJ_BUILD/kv
base=${TMPDIR:-/tmp}
[ -w /dev/shm ] && base=/dev/shm
work=$(mktemp -d "$base/nvj-test.XXXXXX")
loader=
cleanup() {
	[ -z "$loader" ] || kill -KILL "$loader" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
cd "$work" || exit 1

# must CODE TEXT COMMAND...: the exit code, and what stdout or stderr must say.
must() {
	local code=$1 text=$2 got
	shift 2
	"$@" > out 2>&1
	got=$?
	if [ $got != "$code" ] || ! grep -qF -- "$text" out; then
		echo "$*: exit code $got, wanted $code and \"$text\":"
		cat out
		exit 1
	fi
}

# flip FILE OFFSET: changes one bit.
flip() {
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# field NAME: of the JSON in out, the first one.
field() {
	sed -n "s/.*\"$1\": *\"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}.*/\\1/p" out | head -n 1
}

# --- The command line
must 2 'COMMAND' "$nvj"
must 0 'nvj recover journal.img' "$nvj" --help
must 0 'nvj ' "$nvj" --version
must 2 '"extra"' "$nvj" --version extra
must 2 'no command "fix"' "$nvj" fix
must 2 'no command "fix"' "$nvj" help fix
must 2 'no option "--sise"' "$nvj" format a --sise 1M
must 2 'is not a size' "$nvj" format --allow-volatile a --size 64Q
must 2 'is not a size' "$nvj" format --allow-volatile a --size 99999999999G
must 2 'is not a UUID' "$nvj" format --allow-volatile a --size 1M --disk-uuid 0123
must 2 'which FILE' "$nvj" check
must 2 'needs a value' "$nvj" format --allow-volatile a --size
must 2 'one FILE is enough' "$nvj" check a b
must 2 '--target DISK is required' "$nvj" recover --allow-volatile a
for command in format inspect check recover dump resize completion; do
	must 0 "nvj $command" "$nvj" $command --help
	must 0 "nvj $command" "$nvj" help $command
done
must 0 'complete -F' "$nvj" completion bash
cmp -s out "$NVJ_SOURCE/completion/nvj.bash" || { echo "completion differs"; exit 1; }
# complete WORD...: what the last word may become, in brackets.
complete_words() {
	(
		. "$NVJ_SOURCE/completion/nvj.bash"
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_nvj 2>/dev/null
		printf '[%s]' "${COMPREPLY[@]}"
	)
}
touch 'a b.img'
must 0 '[a b.img]' complete_words nvj check a
must 0 '[help][--help]' complete_words nvj ''
must 0 '[recover][resize]' complete_words nvj help re
rm 'a b.img'
must 2 'only bash' "$nvj" completion fish
must 2 'cannot open region' "$nvj" check absent
must 2 'which DIR' "$nvj" resize --size 1G
must 2 'one DIR is enough' "$nvj" resize a b
must 2 '--size 0 is invalid' "$nvj" resize a --size 0
must 2 'No such file' "$nvj" resize absent
# An open of a pipe would wait for a writer.
mkfifo pipe
must 2 'neither a file nor a device' timeout 60 "$nvj" check pipe
must 2 'Not a directory' "$nvj" resize "$nvj"
must 2 'not ext4nvj, nor ext4' "$nvj" resize /proc
[ ! -e a ] && [ ! -e absent ] || { echo "a wrong command line made a file"; exit 1; }

# --- Format
must 2 'give its size' "$nvj" format --allow-volatile j
must 2 'No such file' "$nvj" format --allow-volatile /dev/nvj-test-absent --size 1M
must 2 '--allow-volatile' "$nvj" format j --size 8M
[ ! -e j ] || { echo "a refused format made a file"; exit 1; }
must 0 '8 partitions' "$nvj" format --allow-volatile j --size 8M --partitions 8
[ "$(stat -c %s j)" = $((8 << 20)) ] || { echo "j has not 8 MiB"; exit 1; }
must 0 'partitions' "$nvj" format --allow-volatile j # it is clean

# By default: a ring for each processor, with 8 MiB of the journal each at least.
processors=$(awk -F, '{
	for (n = 1; n <= NF; n++) { split($n, of, "-"); count += (of[2] == "" ? of[1] : of[2]) - of[1] + 1 }
	print count
}' /sys/devices/system/cpu/present)
for size in 1 8 15 16 64; do
	most=$((size / 8))
	[ $most -ge 1 ] || most=1
	if [ "$processors" -le $most ]; then
		wanted=$processors why='one for each processor'
	else
		wanted=$most why="at most one for 8 MiB of the journal; the machine has $processors processors"
	fi
	must 0 ", $wanted partitions of" "$nvj" format --allow-volatile default --size ${size}M
	must 0 "$why" "$nvj" format --allow-volatile default --size ${size}M
	must 0 "\"partitions\": $wanted," "$nvj" inspect default --json
	must 0 clean "$nvj" check default
	rm default
done
must 0 ', 1 partitions of' "$nvj" format --allow-volatile default --size 64M --partitions 1
grep -q 'processor' out && { echo "it gives a reason for what the user chose"; exit 1; }
must 0 '"partitions": 1,' "$nvj" inspect default --json
rm default
must 2 'partitions must be 1 to 64' "$nvj" format --allow-volatile j --partitions 65
must 2 'partitions must be 1 to 64' "$nvj" format --allow-volatile j --partitions 0
must 2 'commits a power of two from 16' "$nvj" format --allow-volatile j --commits 0
: >empty
must 2 'no block of 4096 bytes at offset 0; give a size' "$nvj" format --allow-volatile empty
must 2 'no block of 4096 bytes at offset 0' "$nvj" inspect empty
! grep -q 'give a size' out || { echo "inspect cannot extend a file"; exit 1; }
# A name may have any bytes, JSON only UTF-8.
odd=$'"\\\n\xff\xc3\xa9\xc3\xed\xa0\x80\xf0\x9f\x98\x80\xe2\x82'
must 0 'partitions' "$nvj" format --allow-volatile "$odd" --size 1M
must 0 $'"file": "\\"\\\\\\u000a\\ufffd\xc3\xa9\\ufffd\\ufffd\\ufffd\\ufffd\xf0\x9f\x98\x80\\ufffd\\ufffd"' "$nvj" check "$odd" --json
rm "$odd"
must 1 'too few' "$nvj" format --allow-volatile j --partitions 64 --commits 65536
must 1 '65536 bytes are too few for the superblocks, the commit ring and 1 partition of at' "$nvj" format --allow-volatile k --size 64K
# What is refused is as it was: a file that is longer now would keep blocks of the disk.
echo precious >short
for options in '--size 8M' '--size 1M --offset 1M --partitions 64' '--size 1024T' '--size 8M --commits 17 --force'; do
	"$nvj" format --allow-volatile short $options 2>/dev/null && { echo "short was formatted: $options"; exit 1; }
	[ "$(cat short)" = precious ] || { echo "a refused format changed a file: $options"; exit 1; }
done
must 1 'too few' "$nvj" format --allow-volatile new --size 1M --partitions 64
must 2 'power of two' "$nvj" format --allow-volatile new --size 8M --commits 17
must 2 'cannot make region' "$nvj" format --allow-volatile new --size 1024T
[ ! -e new ] || { echo "a refused format made a file"; exit 1; }
must 2 'power of two' "$nvj" format --allow-volatile j --commits 17
must 2 'choose cpu or block' "$nvj" format --allow-volatile j --placement disk
must 0 'by block' "$nvj" format --allow-volatile j --placement block
must 0 '"placement": "block"' "$nvj" inspect j --json
must 0 'by cpu' "$nvj" format --allow-volatile j
must 0 'by cpu' "$nvj" inspect j
must 0 'file system         not known' "$nvj" inspect j
must 0 '"file_system": null' "$nvj" inspect j --json
truncate -s 32M disk.jfs disk.ext4 disk.none
if PATH=$PATH:/sbin:/usr/sbin mkfs.jfs -q disk.jfs > /dev/null 2>&1; then
	must 0 'file system         JFS on disk.jfs, not marked: it needs no journal' "$nvj" inspect j --target disk.jfs
	must 0 '"type": "jfs"' "$nvj" inspect j --target disk.jfs --json
fi
PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -t ext4 disk.ext4 16M > /dev/null
must 0 'file system         ext4 on disk.ext4, not marked' "$nvj" inspect j --target disk.ext4
must 2 'it has no ext4 and no JFS' "$nvj" inspect j --target disk.none
must 2 'cannot open disk missing' "$nvj" inspect j --target missing
rm disk.jfs disk.ext4 disk.none
head -c 1000000 /dev/urandom > foreign
sum=$(sha256sum < foreign)
must 1 'not a journal' "$nvj" format --allow-volatile foreign --size 4M
must 2 'has no journal' "$nvj" check foreign
must 2 'has no journal' "$nvj" inspect foreign
[ "$sum" = "$(head -c 1000000 foreign | sha256sum)" ] || { echo "foreign was changed"; exit 1; }
must 0 'partitions' "$nvj" format --allow-volatile foreign --size 4M --force
must 0 'partitions' "$nvj" format --allow-volatile slices --size 2M --offset 2M
must 2 'slices has no journal at byte 0; make one: nvj format slices ' "$nvj" check slices
must 2 'nvj format slices --offset 1048576 ' "$nvj" check slices --offset 1M
must 0 'clean' "$nvj" check slices --offset 2M
must 1 'another journal begins at byte 2097152' "$nvj" format --allow-volatile slices
must 2 'has no journal' "$nvj" check slices
must 0 'partitions' "$nvj" format --allow-volatile slices --size 2M
must 0 'clean' "$nvj" check slices
must 0 'clean' "$nvj" check slices --offset 2M
must 0 'partitions' "$nvj" format --allow-volatile slices --force
# In the middle of another, where its ring is still empty.
sum=$(sha256sum < slices)
must 1 'the journal that begins at byte 0 has' "$nvj" format --allow-volatile slices --offset 2M
[ "$sum" = "$(sha256sum < slices)" ] || { echo "a refused format wrote into another journal"; exit 1; }
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 4M --size 2M
must 1 'region_offset), or make it shorter: nvj format slices --offset 4194304 --size 1048576' "$nvj" format --allow-volatile slices --offset 5M
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 4194304 --size 1048576 # it is clean
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 5M
truncate -s 4M slices
must 0 'partitions' "$nvj" format --allow-volatile slices # it is all its own
# Of the other journal only the beginning is within the region, and its first superblock is
# lost, or not.
truncate -s 0 slices
for lost in 0 1; do
	must 0 'partitions' "$nvj" format --allow-volatile slices --offset 4M --size 4M --force
	dd if=/dev/zero of=slices bs=4K seek=1K count=$lost conv=notrunc status=none
	sum=$(sha256sum < slices)
	for size in 4100K 4104K 4108K 4112K 8M; do
		# Of 4 KiB that are empty now nothing says whose they are.
		[ $lost$size = 14100K ] && continue
		must 1 'another journal begins at byte 4194304' "$nvj" format --allow-volatile slices --size $size
	done
	must 1 'the journal that begins at byte 4194304 has' "$nvj" format --allow-volatile slices --offset 6M --size 2M
	[ "$sum" = "$(sha256sum < slices)" ] || { echo "a refused format wrote into another journal"; exit 1; }
done
must 0 'partitions' "$nvj" format --allow-volatile slices --size 4M
# Not at a multiple of 1M; where a later format would not find it, only with --force.
truncate -s 0 slices
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 192K --size 4M
sum=$(sha256sum < slices)
for offset in 256K 1M 4M; do
	must 1 'the journal that begins at byte 196608 has' "$nvj" format --allow-volatile slices --offset $offset --size 4M
done
must 1 'another journal begins at byte 196608' "$nvj" format --allow-volatile slices
must 1 'begin at a multiple of 64K' "$nvj" format --allow-volatile slices --offset 5220K --size 1M
[ "$sum" = "$(sha256sum < slices)" ] || { echo "a refused format changed the file"; exit 1; }
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 5220K --size 1M --force
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 5220K --size 1M # it is all its own
# Its first superblock is where the copy of one at a multiple of 64K would be.
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 5188K --size 1M --force
must 0 'partitions' "$nvj" format --allow-volatile slices --offset 5188K --size 1M

# --- A journal that was left by a crash
# By block, so that each ring has records, also if one processor writes all.
must 0 'by block' "$nvj" format --allow-volatile store.journal --size 4M --partitions 4 --placement block
# Puts without an end. What is killed is kv, the last of the two; that ends the other.
puts() { awk 'BEGIN { for (;; n++) print "put key" n % 5000, n + 0 }'; }
puts | "$kv" --allow-volatile store > printed &
loader=$!
for _ in $(seq 600); do
	[ "$(wc -l < printed)" -gt 2000 ] && break
	sleep 0.05
done
# In use: to look is allowed.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	must 0 'state               in use' "$nvj" inspect store.journal
	must 0 '"verdict": "in use"' "$nvj" inspect store.journal --json
done
must 2 'in use' "$nvj" check store.journal
must 2 'in use' "$nvj" format --allow-volatile store.journal --force
must 2 'in use' "$nvj" recover --allow-volatile store.journal --target store
{ kill -KILL $loader && wait $loader; } 2>/dev/null
loader=
# It was killed at any moment: when nearly all is at home by then, once more.
for _ in $(seq 100); do
	"$nvj" check store.journal --json > out
	[ "$(field records_to_replay)" -ge 100 ] && break
	puts | "$kv" --allow-volatile store > printed &
	loader=$!
	sleep 0.1
	{ kill -KILL $loader && wait $loader; } 2>/dev/null
	loader=
done

sum=$(sha256sum store.journal store)
must 0 'to be recovered' "$nvj" check store.journal
must 0 'to be recovered' "$nvj" inspect store.journal
must 0 '"verdict": "sound"' "$nvj" check store.journal --json
[ "$(field clean)" = false ] && [ "$(field exit_code)" = 0 ] || { cat out; exit 1; }
records=$(field records_to_replay)
transactions=$(field transactions_not_home)
last=$(field committed_transaction)
[ "$transactions" -gt 0 ] && [ "$records" -gt 0 ] || { cat out; exit 1; }
must 0 '"rings": [' "$nvj" inspect store.journal --json
must 0 '"committed":true' "$nvj" dump store.journal --json
[ "$(grep -c '"committed":true' out)" = "$records" ] || {
	echo "dump shows $(grep -c '"committed":true' out) records, check says $records"
	exit 1
}
must 0 '"partition":3,' "$nvj" dump store.journal --partition 3 --json
! grep -v '"partition":3,' out || exit 1
must 0 ' update ' "$nvj" dump store.journal --transaction "$last"
must 2 'partitions 0 to 3' "$nvj" dump store.journal --partition 4
for size in 1M 4M 8M; do # shorter than it, or longer
	must 1 'nvj recover store.journal --target DISK' "$nvj" format --allow-volatile store.journal --size $size
done
(head -c 1M /dev/zero && cat store.journal) > behind
must 1 'nvj recover behind --offset 1048576 --target DISK' "$nvj" format --allow-volatile behind --offset 1M --size 1M
flip behind 1048596
flip behind 1052692
must 1 'damaged (nvj check behind --offset 1048576)' "$nvj" format --allow-volatile behind --offset 1M
mv behind "it's behind"
must 1 "damaged (nvj check 'it'\\''s behind' --offset 1048576)" "$nvj" format --allow-volatile "it's behind" --offset 1M
rm "it's behind"
head -c 1M /dev/zero > 'no journal'
must 2 "nvj format 'no journal'" "$nvj" inspect 'no journal'
rm 'no journal'
[ "$sum" = "$(sha256sum store.journal store)" ] || { echo "to look changed something"; exit 1; }

# --- Damage
offset=$(("$("$nvj" dump store.journal --json | sed -n '2s/.*"offset_bytes":\([0-9]*\).*/\1/p')"))
cp store.journal d
flip d $((offset + 70))
must 1 "the record at byte $offset " "$nvj" check d
must 1 'nvj format d --force' "$nvj" check d
must 1 "\"offset_bytes\": $offset" "$nvj" check d --json
[ "$(field records_revoked)" = 0 ] || { echo "damage is taken for revokes"; cat out; exit 1; }
must 1 "the record at byte $offset " "$nvj" inspect d
must 1 "the record at byte $offset " "$nvj" dump d
must 1 '"partition":3,' "$nvj" dump d --json # the other rings are shown all the same
must 1 'damaged' "$nvj" format --allow-volatile d
cp store s
must 1 'nothing was written' "$nvj" recover --allow-volatile d --target s
cmp store s || exit 1

cp store.journal d
flip d 20
must 1 'superblock at byte 0 is damaged' "$nvj" check d
cp store s
must 0 'recovered' "$nvj" recover --allow-volatile d --target s
must 0 'clean' "$nvj" check d # recovery has repaired the copy
cp store.journal d
flip d 20
flip d 4100
must 2 'superblock is damaged' "$nvj" check d
must 2 'both copies of the superblock (byte 0) are damaged' "$nvj" check d --json
must 2 '"kind": "superblock",' "$nvj" check d --json
must 2 'superblock is damaged' "$nvj" inspect d
must 2 'superblock is damaged' "$nvj" recover --allow-volatile d --target s
must 2 'superblock is damaged' "$nvj" dump d

cp store.journal d
flip d 8192
must 1 'the copy of the tail at byte 8192' "$nvj" check d
cp d e
cp store s
must 0 'recovered' "$nvj" recover --allow-volatile e --target s
must 0 'clean' "$nvj" check e # recovery has repaired the copy
flip d 8256
must 2 'tail' "$nvj" check d
! grep -q 'up to transaction' out || { echo "check knows transactions without a tail"; cat out; exit 1; }
must 2 'tail' "$nvj" inspect d
! grep -q 'up to transaction' out || { echo "inspect knows transactions without a tail"; cat out; exit 1; }
must 2 'tail' "$nvj" recover --allow-volatile d --target s

head -c 1048576 store.journal > d
must 2 'cut short' "$nvj" check d

# Memory that cannot be read: a page of each mapping of 1 MiB or more. asan has to come first.
if [ "$NVJ_VARIANT" != asan ]; then
	gcc -shared -fPIC -x c - -o fail.so <<- 'END' || exit 1
		#define _GNU_SOURCE
		#include <stdlib.h>
		#include <sys/mman.h>
		#include <sys/syscall.h>
		#include <unistd.h>

		void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
		{
			char *base = (char *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);

			if (base != MAP_FAILED && fd >= 0 && bytes >= 1 << 20)
				syscall(SYS_mmap, base + atol(getenv("FAIL_AT")), 4096, protection,
					MAP_SHARED | MAP_FIXED, memfd_create("empty", 0), 0);
			return base;
		}
	END
	failing() { FAIL_AT=$1 LD_PRELOAD=$work/fail.so "${@:2}"; }
	rm d
	must 0 'partitions' "$nvj" format --allow-volatile d --size 1M
	for command in check inspect dump; do
		must 1 'transaction 0 at byte 12288 is in memory that cannot be read' failing 12288 "$nvj" $command d
		must 2 'tail (byte 8192) are in memory that cannot be read' failing 8192 "$nvj" $command d
	done
	must 1 'damaged (nvj check d)' failing 12288 "$nvj" format --allow-volatile d
fi

# --- Recovery
cp store s
cp store.journal d
must 2 '--allow-volatile' "$nvj" recover d --target s
must 2 'cannot open disk' "$nvj" recover --allow-volatile d --target absent
must 2 'neither a file nor a block device' timeout 60 "$nvj" recover --allow-volatile d --target pipe
# Blocks that are written over their journal would destroy it.
ln -s d link
must 2 'this is the journal itself' "$nvj" recover --allow-volatile d --target d
must 2 'this is the journal itself' "$nvj" recover --allow-volatile d --target link
cmp store.journal d || exit 1
# The disk cannot have all blocks: which one it was, and why.
limited() { (trap '' XFSZ; ulimit -f 8; exec "$@"); }
must 1 'cannot write block' limited "$nvj" recover --allow-volatile d --target s
grep -q 'of disk s: File too large; the journal keeps everything' out || { cat out; exit 1; }
must 0 "recovered $transactions transactions: $records records" "$nvj" recover --allow-volatile d --target s
must 0 'clean' "$nvj" recover --allow-volatile d --target s
must 0 'clean' "$nvj" check d
must 0 'all is at home' "$nvj" dump d
mv d s.journal
"$kv" --allow-volatile store list > by-kv && "$kv" --allow-volatile s list > by-nvj || exit 1
cmp by-kv by-nvj || { echo "nvj recovered something else than kv"; exit 1; }
[ -s by-kv ] || exit 1

# --- The right disk
uuid=01234567-89ab-cdef-0123-456789abcdef
must 0 'partitions' "$nvj" format --allow-volatile owned --size 4M --disk-uuid $uuid
must 0 "$uuid" "$nvj" inspect owned
truncate -s 1M disk
must 2 'has no readable UUID' "$nvj" recover --allow-volatile owned --target disk
must 2 "belongs to disk $uuid" "$nvj" recover --allow-volatile owned --target disk --disk-uuid ${uuid%f}0
must 0 'clean' "$nvj" recover --allow-volatile owned --target disk --disk-uuid=$uuid
must 0 'clean' "$nvj" recover --allow-volatile owned --target disk --any-disk
# An ext4 says it by itself.
printf '\123\357' | dd of=disk bs=1 seek=1080 conv=notrunc status=none
must 2 "this is 00000000" "$nvj" recover --allow-volatile owned --target disk
printf '\001\043\105\147\211\253\315\357\001\043\105\147\211\253\315\357' |
	dd of=disk bs=1 seek=1128 conv=notrunc status=none
must 0 'clean' "$nvj" recover --allow-volatile owned --target disk

# --- Output that cannot be written is no success
"$nvj" inspect owned > /dev/full 2> out && { echo "a full disk was not seen"; exit 1; }
grep -q 'cannot write' out || exit 1
echo "records replayed: $records of $transactions transactions"
