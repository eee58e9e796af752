/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: options with two dashes, their value after a blank or "=", and one
 * FILE. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nvj.h"

void complain(const char *format, ...)
{
	va_list arguments;

	fputs("nvj: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

bool is_zero(const void *memory, size_t bytes)
{
	const uint8_t *at = memory;

	while (bytes--)
		if (*at++)
			return false;
	return true;
}

char *uuid_text(const uint8_t uuid[16], char text[37])
{
	unsigned n, at = 0;

	for (n = 0; n < 16; n++) {
		if (n == 4 || n == 6 || n == 8 || n == 10)
			text[at++] = '-';
		snprintf(text + at, 3, "%02x", uuid[n]);
		at += 2;
	}
	return text;
}

const char *placement_text(const struct nvj_disk_super *super)
{
	/* Format version 1 has only one placement. */
	return super->placement == NVJ_PLACE_CPU ? "cpu" : "block";
}

static bool read_uuid(const char *text, uint8_t uuid[16])
{
	char plain[37];
	unsigned n;

	if (strlen(text) != 36)
		return false;
	for (n = 0; n < 16; n++) {
		const char *at = text + 2 * n + (n > 3) + (n > 5) + (n > 7) + (n > 9);
		char pair[3] = {at[0], at[1], 0};
		char *end;

		uuid[n] = (uint8_t)strtoul(pair, &end, 16);
		if (end != pair + 2)
			return false;
	}
	/* This also checks that the dashes are in the correct places. */
	uuid_text(uuid, plain);
	return strcasecmp(plain, text) == 0;
}

static bool read_number(const char *text, bool size, uint64_t *value)
{
	unsigned shift = 0;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno)
		return false;
	if (size && *end) {
		static const char letters[] = "KMGT";
		const char *letter = strchr(letters, *end >= 'a' ? *end - 'a' + 'A' : *end);

		if (!letter)
			return false;
		shift = 10 * (unsigned)(letter - letters + 1);
		end++;
		if (end[0] == 'i' && end[1] == 'B')
			end += 2;
	}
	if (*end || *value > UINT64_MAX >> shift)
		return false;
	*value <<= shift;
	return true;
}

static int read_value(const char *command, const struct argument *argument, const char *text)
{
	switch (argument->kind) {
	case ARGUMENT_TEXT:
		*(const char **)argument->value = text;
		return 0;
	case ARGUMENT_SIZE:
		if (read_number(text, true, argument->value))
			return 0;
		complain("%s: %s \"%s\" is not a size: give bytes, or 64M (K, M, G, T are of 1024)",
			 command, argument->name, text);
		return -1;
	case ARGUMENT_COUNT:
		if (read_number(text, false, argument->value))
			return 0;
		complain("%s: %s \"%s\" is not a number: give 0 or more", command, argument->name,
			 text);
		return -1;
	case ARGUMENT_UUID:
		if (read_uuid(text, argument->value))
			return 0;
		complain("%s: %s \"%s\" is not a UUID: give it as "
			 "01234567-89ab-cdef-0123-456789abcdef",
			 command, argument->name, text);
		return -1;
	case ARGUMENT_PLACEMENT:
		if (!strcmp(text, "block"))
			*(enum nvj_placement *)argument->value = NVJ_PLACE_BLOCK;
		else if (!strcmp(text, "cpu"))
			*(enum nvj_placement *)argument->value = NVJ_PLACE_CPU;
		else
			break;
		return 0;
	default:
		return -1;
	}
	complain("%s: %s \"%s\" is not known: choose cpu or block", command, argument->name, text);
	return -1;
}

/* The name of the argument that is not an option. */
static const char *file_name(const struct argument *arguments)
{
	while (arguments->name)
		arguments++;
	return arguments->value ? arguments->value : "FILE";
}

static const struct argument *find(const struct argument *arguments, const char *word,
				   const char **value)
{
	for (; arguments->name; arguments++) {
		size_t length = strlen(arguments->name);

		if (strncmp(word, arguments->name, length))
			continue;
		*value = word[length] == '=' ? word + length + 1 : NULL;
		if (!word[length] || *value)
			return arguments;
	}
	return NULL;
}

int read_arguments(const char *command, int count, char **words, const struct argument *arguments,
		   const char **file)
{
	bool options = true;
	int n;

	*file = NULL;
	for (n = 0; n < count; n++) {
		const struct argument *argument;
		const char *value;

		if (options && !strcmp(words[n], "--")) {
			options = false;
			continue;
		}
		if (!options || words[n][0] != '-' || !words[n][1]) {
			if (*file) {
				complain("%s: one %s is enough: \"%s\" and \"%s\"", command,
					 file_name(arguments), *file, words[n]);
				return -1;
			}
			*file = words[n];
			continue;
		}
		if (!strcmp(words[n], "--help") || !strcmp(words[n], "-h")) {
			print_help(command, stdout);
			return 1;
		}
		argument = find(arguments, words[n], &value);
		if (!argument) {
			complain("%s: there is no option \"%s\"; see nvj %s --help", command,
				 words[n], command);
			return -1;
		}
		if (argument->given)
			*argument->given = true;
		if (argument->kind == ARGUMENT_FLAG) {
			if (value) {
				complain("%s: %s accepts no value", command, argument->name);
				return -1;
			}
			*(bool *)argument->value = true;
			continue;
		}
		if (!value && ++n < count)
			value = words[n];
		if (!value) {
			complain("%s: %s needs a value; see nvj %s --help", command, argument->name,
				 command);
			return -1;
		}
		if (read_value(command, argument, value))
			return -1;
	}
	if (*file)
		return 0;
	complain("%s: which %s? see nvj %s --help", command, file_name(arguments), command);
	return -1;
}
