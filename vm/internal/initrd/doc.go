// Package initrd makes the guest's root file system: a cpio archive in the
// kernel's "newc" format, not compressed, because an emulated processor copies
// far faster than it unpacks. It holds the agent, busybox, modules with their
// dependencies, and the host's given files. Programs are copied with their
// shared libraries.
//
// It only reads files of the host, and changes none.
package initrd
