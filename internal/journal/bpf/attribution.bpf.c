// SPDX-License-Identifier: GPL-2.0
/*
 * Who dirtied the journal's blocks, and in whose name the disk was written.
 *
 * Work per event is O(1) and nothing is streamed but one record per commit:
 *   dirtied  (file system, transaction, cgroup) -> blocks, added up by handles
 *   written  (disk, kind, charged cgroup, owner) -> bytes, added up by bios
 *   logged   (file system, cgroup) -> lines, added up by handles of ext4nvj
 *   commits  one record per jbd2 commit
 * User space splits the bytes of each commit by its transaction's blocks.
 *
 * Only tracepoints: fentry and kprobes are not to be had everywhere.
 */
#include "blocks.h"
#include "commits.h"
#include "handles.h"
#include "nvjournal.h"
#include "owners.h"

char LICENSE[] SEC("license") = "GPL";
