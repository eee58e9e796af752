// Package ext4 makes and mounts ext4 file systems and reads their properties:
// mkfs with the options that matter for journal measurements (no lazy
// initialisation, journal size, external journal), mount and an unmount that
// waits, the journal's part of the superblock, and the kernel's information
// about a running jbd2: its kernel thread and /proc/fs/jbd2/NAME/info.
//
// e2fsprogs (mke2fs and others) does the work on disk; this package only runs
// it and reads bytes. The parsers are pure functions of bytes. Nothing is
// unmounted lazily or by force here.
package ext4
