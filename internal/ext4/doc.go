// Package ext4 makes, mounts and reads facts of ext4 file systems: mkfs with
// the choices that matter for journal measurements (no lazy initialisation,
// journal size, external journal), mount and a patient unmount, the superblock
// as far as the journal goes, and what the kernel tells of a running jbd2: its
// kernel thread and /proc/fs/jbd2/NAME/info.
//
// The work on disk is e2fsprogs' (mke2fs); this package only runs it and reads
// bytes. The parsers are pure functions of bytes. Nothing is unmounted lazily
// or by force here: who needs that says so himself.
package ext4
