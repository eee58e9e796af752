/* SPDX-License-Identifier: Apache-2.0 */
/* What a new journal in a region would destroy, for nvju_open and nvj format. */
#ifndef NVJU_OTHERS_H
#define NVJU_OTHERS_H

#include "nvjournal_user.h"

/*
 * A region without a journal is unused if its first 128 KiB are zeros, but for what a format
 * that was killed has written before its superblocks. 1: it is; 0: it is not; NVJ_EIO, for
 * nvju_error(): its memory cannot be read.
 */
int nvju_unused(const char *file, const struct nvj_region *region);

/*
 * Refuses a journal in the region, which begins at byte offset of the file, if it would
 * begin within another journal, if another one begins in it, or if its place is one where
 * this function would not find it later. journal_bytes: the length of the journal that is
 * there, or 0; what is in these bytes belongs to it. Returns 0, or an error for nvju_error():
 * NVJ_EINVAL for the place, -EEXIST for another journal, or that of a read of the file.
 */
int nvju_refuse_others(const char *file, uint64_t offset, const struct nvj_region *region,
		       uint64_t journal_bytes);

#endif
