// Package vm boots real Debian kernels under QEMU and runs commands in them:
// for tests of what only another kernel, another machine or a crash can show.
//
//	host process                                guest
//	┌──────────────────────┐  initrd (cpio)     ┌──────────────────────────┐
//	│ Boot: kernel, disks, │ ─────────────────▶ │ agent = this program     │
//	│ pmem, modules, files │  virtio-serial     │ as init: mounts, modules │
//	│ Run, Start, Fetch    │ ◀────────────────▶ │ commands                 │
//	│ Console              │ ◀───────────────── │ kernel (serial line)     │
//	│ Kill, Reboot         │ ──── SIGKILL ────▶ │ disks and pmem: files    │
//	└──────────────────────┘                    └──────────────────────────┘
//
// The guest's init is the program itself that calls Boot: its main (or a test
// package, by importing vmtest) calls [InitIfAsked] first. So nothing is built
// or embedded for the guest.
//
// Nothing outlives the process, not even SIGKILL: the kernel kills QEMU with
// it, and all files that were not given a path have no name. Nothing is mounted
// on the host, and no root is needed.
//
// For tests, see package vmtest. For kernels, see package kernels.
package vm
