/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts: what failed, for which file, why, and what to do. There is one
 * text for each thread, so that failing threads do not mix their texts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

const char *nvju_word(const char *word, char text[NVJU_WORD_BYTES])
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789_./:@%+,=-";
	size_t at = 0;

	if (*word && !word[strspn(word, plain)]) {
		snprintf(text, NVJU_WORD_BYTES, "%s", word);
		return text;
	}
	text[at++] = '\'';
	/* Room for one more in quotes, the last quotation mark and the end. */
	for (; *word && at + 4 + 2 <= NVJU_WORD_BYTES; word++) {
		if (*word == '\'') {
			memcpy(text + at, "'\\''", 4);
			at += 4;
		} else {
			text[at++] = *word;
		}
	}
	text[at++] = '\'';
	text[at] = '\0';
	return text;
}

const char *nvju_journal(const char *file, uint64_t offset, char text[NVJU_JOURNAL_BYTES])
{
	size_t at = strlen(nvju_word(file, text));

	if (offset)
		snprintf(text + at, NVJU_JOURNAL_BYTES - at, " --offset %" PRIu64, offset);
	return text;
}
