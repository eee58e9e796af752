// Package kernels fetches the Debian kernels that guests boot: the image, and
// on request the headers and the source of exactly that kernel. kernels.yaml
// lists them; it pins each package to one version and one SHA-256. apt downloads
// packages from the configured sources of this host. dpkg-deb unpacks them into
// a cache; they are never installed.
//
//	kernels.yaml ─▶ apt-get download ─▶ SHA-256 ─▶ dpkg-deb -x ─▶ prepare ─▶ rename
//	(the pin)       (version pinned)    (or stop)  (CACHE/.new…)             (CACHE/NAME)
//
// A fetch that dies leaves no complete entry in the cache, and two concurrent
// fetches wait for each other. Kernels in the cache are ready to boot: the kernel
// and its modules are uncompressed, because an emulated processor takes seconds
// to uncompress a kernel at each boot.
//
// Fetching needs apt-get, dpkg-deb, depmod (kmod), xz, and zstd for kernels
// that are compressed with it. It needs no root.
package kernels
