// Package initrd makes the guest's root file system: a cpio archive in the
// kernel's "newc" format, not compressed, because an emulated processor copies
// far faster than it unpacks. It holds the agent, busybox, modules with what
// they need, and the files that the host gives, programs with their shared
// libraries.
//
// It reads the host, and changes nothing of it.
package initrd
