/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Descriptions of the errors. */
#include "../include/nvjournal.h"

const char *nvj_strerror(int error)
{
	switch (error) {
	case NVJ_EIO:
		return "the disk failed, or the journal was aborted by such a failure";
	case NVJ_EAGAIN:
		return "the journal cannot do that without waiting";
	case NVJ_ENOMEM:
		return "no memory";
	case NVJ_EBUSY:
		return "operations are still open";
	case NVJ_EINVAL:
		return "a parameter is out of its range";
	case NVJ_ENOSPC:
		return "too large for the journal, or for what was set aside for the operation";
	case NVJ_EROFS:
		return "the journal was aborted and takes no more changes";
	case NVJ_ENODATA:
		return "there is no journal here; format it first";
	case NVJ_EUCLEAN:
		return "the journal is damaged; a check says where";
	case NVJ_EMEDIUM:
		return "the journal belongs to another disk";
	case NVJ_EFORMAT:
		return "the journal was made by a later version of this software";
	}
	return error < 0 ? "an error that is not known" : "no error";
}
