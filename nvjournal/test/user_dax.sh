#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Real DAX, in a guest with an NVDIMM (docs/vm.md): kv's journal in a file on ext4
# that is mounted with dax, and so mapped with MAP_SYNC; its blocks on a disk. The
# guest is cut off while it loads, and booted again: every key that it had
# acknowledged must be there. Then a journal on device DAX.
set -u
vm=$NVJ_SOURCE/../bin/daybook-vm
if [ ! -x "$vm" ] || ! command -v qemu-system-x86_64 > /dev/null || ! command -v mke2fs > /dev/null; then
	echo "needs bin/daybook-vm (make build-vm vm-fetch), QEMU and mke2fs"
	exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/nvj-dax.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# /pm: ext4 on the NVDIMM. A namespace must be made one of kind fsdax first, once.
cat > fsdax.sh <<'GUEST'
set -e
nd=/sys/bus/nd
if [ "$1" = new ]; then
	echo namespace0.0 > $nd/drivers/nd_pmem/unbind
	cd $nd/devices/pfn0.0
	echo ram > mode
	echo 2097152 > align
	echo 01234567-89ab-cdef-0123-456789abcdef > uuid
	echo namespace0.0 > namespace
	echo pfn0.0 > $nd/drivers/nd_pmem/bind
	cd /
	mke2fs -q -t ext4 -b 4096 -F /dev/pmem0
fi
mkdir -p /pm /w
mount -t ext4 -o dax /dev/pmem0 /pm
ln -s /dev/daybook/disk0 /w/store
ln -s /pm/journal /w/store.journal
if [ "$1" = new ]; then
	/nvj format /pm/journal --size 4M --partitions 4 >&2
	/nvj inspect /pm/journal | grep -q 'DAX (MAP_SYNC)' || { echo 'not mapped with MAP_SYNC' >&2; exit 1; }
	i=0
	while :; do echo put key$((i % 5000)) $i; i=$((i + 1)); done | exec /kv /w/store
fi
/nvj check /pm/journal >&2
/kv /w/store list
GUEST
cat > devdax.sh <<'GUEST'
set -e
nd=/sys/bus/nd
# devdax N UUID: makes namespaceN.0 device DAX.
devdax() {
	echo namespace$1.0 > $nd/drivers/nd_pmem/unbind
	cd $nd/devices/dax$1.0
	echo ram > mode
	echo 2097152 > align
	echo $2 > uuid
	echo namespace$1.0 > namespace
	echo dax$1.0 > $nd/drivers/dax_pmem/bind
	cd /
}
# The NVDIMM, and memory that only its host can flush.
for bus in $nd/devices/ndbus*; do
	region=$(basename $bus/region*)
	case $(cat $bus/provider) in
	virtio-pmem) volatile=${region#region} ;;
	*) sound=${region#region} ;;
	esac
done
devdax $sound 01234567-89ab-cdef-0123-456789abcde0
devdax $volatile 01234567-89ab-cdef-0123-456789abcde1
[ $sound = 0 ] || ln -s dax$sound.0 /dev/dax0.0
! /nvj format /dev/dax$volatile.0 --size 4M 2> /volatile || exit 1
cat /volatile
grep -q 'virtio-pmem.*--allow-volatile' /volatile
/nvj format /dev/dax$volatile.0 --size 4M --allow-volatile
/nvj check /dev/dax$volatile.0
mkdir /w
ln -s /dev/dax0.0 /w/store.journal
cd /w
/nvj format /dev/dax0.0 --size 4M --partitions 2
/nvj inspect /dev/dax0.0
/nvj inspect /dev/dax0.0 | grep -q 'DAX (MAP_SYNC)'
/kv store put key0 0
i=0
while [ $i -lt 2000 ]; do echo put key$i $i; i=$((i + 1)); done | /kv store > /dev/null
/nvj check /dev/dax0.0
[ "$(/kv store list | wc -l)" = 2000 ]
[ "$(/kv store get key7)" = 7 ]
! /nvj format /dev/dax0.0 --size 1M --offset 2M
/nvj format /dev/dax0.0 --size 2M --offset 4M
GUEST

guest() {
	timeout 400 "$vm" run --kernel 6.1 --modules ext4,nd_pmem,dax_pmem,device_dax \
		--give mke2fs --give "$NVJ_BUILD/nvj:/nvj" --give "$NVJ_BUILD/kv:/kv" "$@"
}
# On a busy host the guest has acknowledged nothing after 4 s: the time is longer then.
for seconds in 4 8 16 32; do
	rm -f pm.img disk.img
	guest --pmem pm.img:64M --disk disk.img:16M --kill-after ${seconds}s --give fsdax.sh:/fsdax.sh -- \
		sh /fsdax.sh new > printed 2> new.log
	[ $? = 122 ] || { echo "the guest was not cut off"; cat new.log; exit 1; }
	sed -n 's/^key\([0-9]*\) \([0-9]*\)\r\{0,1\}$/\1 \2/p' printed > acknowledged
	[ -n "$(tail -c 1 printed | tr -d '\n')" ] && sed -i '$d' acknowledged
	[ -s acknowledged ] && break
done
[ -s acknowledged ] || { echo "nothing was acknowledged"; cat new.log; exit 1; }
guest --pmem pm.img:64M --disk disk.img:16M --give fsdax.sh:/fsdax.sh -- sh /fsdax.sh again > list 2> again.log || {
	echo "not recovered"
	cat again.log list
	exit 1
}
# What the guest printed last was still on its way here: no upper bound.
awk -v keys=5000 -v behind=100000000 -f "$NVJ_SOURCE/test/user_kv_check.awk" acknowledged list || { cat again.log; exit 1; }
echo "fsdax: $(wc -l < acknowledged) puts acknowledged, all there"
guest --pmem 64M --pmem 64M,virtio --give devdax.sh:/devdax.sh -- sh /devdax.sh > devdax.log 2>&1 || {
	echo "device DAX:"
	cat devdax.log
	exit 1
}
