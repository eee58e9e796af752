#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What "make install" puts below DESTDIR is enough for a user: the README's
# example compiles with pkg-config alone, against the shared and the static
# library, and counts its runs; the manual pages are well formed.
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/nvj-install.XXXXXX")
trap 'rm -rf "$work"' EXIT

env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$NVJ_SOURCE" install DESTDIR="$work/root" PREFIX=/opt/nvj > "$work/log" 2>&1 || {
	cat "$work/log"
	exit 1
}
root=$work/root/opt/nvj
for file in bin/nvj include/nvjournal.h include/nvjournal_user.h lib/libnvjournal.a \
	lib/libnvjournal.so lib/libnvjournal.so.0 lib/pkgconfig/nvjournal.pc share/man/man1/nvj.1 \
	share/man/man3/nvjournal.3 share/bash-completion/completions/nvj; do
	[ -f "$root/$file" ] || { echo "not installed: $file"; exit 1; }
done
[ "$(find "$work/root" -type f -o -type l | wc -l)" = 10 ] || { find "$work/root"; exit 1; }
readelf -d "$root/lib/libnvjournal.so.0" | grep -q 'SONAME.*libnvjournal.so.0' || { echo "no soname"; exit 1; }
"$root/bin/nvj" --version | grep -q "^nvj $(sed -n 's/^Version: //p' "$root/lib/pkgconfig/nvjournal.pc")," || {
	echo "nvj and nvjournal.pc are not of one version"
	exit 1
}

export PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
sed -n '/^```c$/,/^```$/p' "$NVJ_SOURCE/README.md" | sed '/^```/d' > "$work/count.c"
cd "$work"
cc -std=c11 -Wall -Wextra -Werror count.c $(pkg-config --cflags --libs nvjournal) -o count-shared
cc -std=c11 -Wall -Wextra -Werror count.c $(pkg-config --cflags nvjournal) "$root/lib/libnvjournal.a" \
	-luring -pthread -o count-static
readelf -d count-shared | grep -q 'NEEDED.*libnvjournal.so.0' || { echo "not linked with the shared library"; exit 1; }
export LD_LIBRARY_PATH=$root/lib
[ "$(./count-shared)" = 'run 1' ] && [ "$(./count-static)" = 'run 2' ] && [ "$(./count-shared)" = 'run 3' ] || {
	echo "the example does not count"
	exit 1
}
# C++ programs may include the headers.
if command -v c++ > /dev/null; then
	printf '#include <nvjournal_user.h>\nint main() { return nvj_strerror(-5) == nullptr; }\n' > plus.cc
	c++ -std=c++17 -Wall $(pkg-config --cflags --libs nvjournal) plus.cc -o plus -L"$root/lib" -lnvjournal
	./plus
fi
if command -v man > /dev/null; then
	for page in man1/nvj.1 man3/nvjournal.3; do
		MANWIDTH=80 man --warnings -E UTF-8 -l "$root/share/man/$page" > page 2> warnings
		[ -s page ] && [ ! -s warnings ] || { cat warnings; exit 1; }
	done
fi

env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$NVJ_SOURCE" uninstall DESTDIR="$work/root" PREFIX=/opt/nvj
[ -z "$(find "$work/root" -type f -o -type l)" ] || { find "$work/root" -type f; exit 1; }
