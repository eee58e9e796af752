/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts: what failed, for which file, why, and what to do. There is one
 * text for each thread, so that failing threads do not mix their texts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "error.h"
#include "nvjournal_user.h"

static _Thread_local char sentence[1024];

const char *nvju_error(void)
{
	return sentence;
}

int nvju_fail(int error, const char *format, ...)
{
	int saved = errno;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sentence, sizeof(sentence), format, arguments);
	va_end(arguments);
	errno = saved;
	return error;
}

const char *nvju_offset_option(uint64_t offset, char text[NVJU_OFFSET_OPTION_BYTES])
{
	text[0] = '\0';
	if (offset)
		snprintf(text, NVJU_OFFSET_OPTION_BYTES, " --offset %" PRIu64, offset);
	return text;
}
