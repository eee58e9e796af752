/* SPDX-License-Identifier: Apache-2.0 */
/* A small writer of JSON: objects, arrays, numbers, texts; indented, or in one line. */
#include <inttypes.h>

#include "nvj.h"

/*
 * The bytes of the UTF-8 character that begins there, 1 to 4; 0: it is none. A name of a
 * file may have any bytes.
 */
static unsigned character(const unsigned char *text)
{
	unsigned bytes = text[0] < 0x80   ? 1
			 : text[0] < 0xc2 ? 0
			 : text[0] < 0xe0 ? 2
			 : text[0] < 0xf0 ? 3
			 : text[0] < 0xf5 ? 4
					  : 0;

	for (unsigned n = 1; n < bytes; n++)
		if ((text[n] & 0xc0) != 0x80)
			return 0;
	/* Too long for what it is, half of a pair of UTF-16, or above the last character. */
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return bytes;
}

static void quoted(struct json *json, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	fputc('"', json->to);
	while (*at) {
		unsigned bytes = character(at);

		if (!bytes)
			fputs("\\ufffd", json->to);
		else if (*at == '"' || *at == '\\')
			fprintf(json->to, "\\%c", *at);
		else if (*at < 0x20 || *at == 0x7f)
			fprintf(json->to, "\\u%04x", *at);
		else
			fwrite(at, 1, bytes, json->to);
		at += bytes ? bytes : 1;
	}
	fputc('"', json->to);
}

static void new_line(struct json *json)
{
	unsigned n;

	if (json->one_line)
		return;
	fputc('\n', json->to);
	for (n = 0; n < json->depth; n++)
		fputs("  ", json->to);
}

static void member(struct json *json, const char *name)
{
	if (json->has_member)
		fputc(',', json->to);
	if (json->depth)
		new_line(json);
	json->has_member = true;
	if (!name)
		return;
	quoted(json, name);
	fputs(json->one_line ? ":" : ": ", json->to);
}

void json_begin(struct json *json, const char *name, char bracket)
{
	member(json, name);
	fputc(bracket, json->to);
	json->depth++;
	json->has_member = false;
}

void json_end(struct json *json, char bracket)
{
	json->depth--;
	if (json->has_member)
		new_line(json);
	fputc(bracket, json->to);
	json->has_member = true;
	if (json->depth)
		return;
	fputc('\n', json->to);
	json->has_member = false;
}

void json_number(struct json *json, const char *name, uint64_t value)
{
	member(json, name);
	fprintf(json->to, "%" PRIu64, value);
}

/* Numbers are written as text, because most readers limit a JSON number to 53
 * bits. */
void json_hex(struct json *json, const char *name, uint64_t value)
{
	member(json, name);
	fprintf(json->to, "\"0x%016" PRIx64 "\"", value);
}

void json_bool(struct json *json, const char *name, bool value)
{
	member(json, name);
	fputs(value ? "true" : "false", json->to);
}

void json_text(struct json *json, const char *name, const char *value)
{
	member(json, name);
	quoted(json, value);
}

void json_null(struct json *json, const char *name)
{
	member(json, name);
	fputs("null", json->to);
}
