// SPDX-License-Identifier: GPL-2.0
/*
 * This object counts which cgroup dirtied the blocks of the journal, and to
 * which cgroup the kernel charged the disk's I/O.
 *
 * The work of each event is O(1). Only one record per commit goes to user space
 * as a stream; everything else is a sum in a map:
 *   dirtied  (file system, transaction, cgroup) -> blocks, added by handles
 *   written  (disk, kind, charged cgroup, owner) -> bytes, added by bios
 *   logged   (file system, cgroup) -> lines, added by handles of ext4nvj and jfsnvj
 *   waiting  (file system, block) -> cgroup, to which its lines will be added
 *   commits  one record per jbd2 commit
 * User space divides the bytes of each commit in proportion to the dirtied
 * blocks.
 *
 * The programs attach to tracepoints only, because fentry and kprobes are not
 * available on every host.
 */
#include "commits.h"
#include "completions.h"
#include "handles.h"
#include "held.h"
#include "nvjournal.h"
#include "owners.h"
#include "submissions.h"

char LICENSE[] SEC("license") = "GPL";
