// Package kernels fetches the Debian kernels that guests boot: the image, and
// when asked for, the headers and the source of exactly that kernel. Which
// ones is in kernels.yaml, each package pinned to one version and checked
// by its SHA-256. Packages come by apt from the sources that this host has
// configured, are unpacked with dpkg-deb into a cache, and never installed.
//
//	kernels.yaml ─▶ apt-get download ─▶ SHA-256 ─▶ dpkg-deb -x ─▶ prepare ─▶ rename
//	(the pin)       (version pinned)    (or stop)  (CACHE/.new…)             (CACHE/NAME)
//
// A fetch that dies leaves nothing that looks done, and two fetches at once
// wait for each other. What is in the cache is ready to boot: the kernel is
// unpacked from its compressed image, because an emulated processor takes
// seconds to do that at each boot, and so are the modules.
//
// Fetching needs apt-get, dpkg-deb, depmod (kmod), xz, and zstd for kernels
// that are packed with it. No root.
package kernels
