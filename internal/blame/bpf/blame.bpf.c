// SPDX-License-Identifier: GPL-2.0
/*
 * This object measures how long calls wait for the journal of ext4, in which
 * phase, and for whom.
 *
 * The work of each event is O(1), and nothing is a stream, but for the calls:
 *   ended_calls  calls that have ended, with the nanoseconds of each phase; if full:
 *   buckets  (cgroup, device, operation, bucket) -> calls, added when one ends
 *   waits    (cgroup, device, transaction, operation) -> nanoseconds of each phase
 *   held     (device, transaction, cgroup) -> nanoseconds of open handles
 *   ordered  (device, transaction, inode) -> bytes of data
 * User space divides the time of each phase among those who caused it.
 *
 * The programs attach to tracepoints only, because fentry and kprobes are not
 * available on every host.
 */
#include "commits.h"
#include "culprits.h"
#include "memory.h"
#include "starts.h"
#include "syncs.h"

char LICENSE[] SEC("license") = "GPL";
