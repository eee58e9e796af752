/* SPDX-License-Identifier: Apache-2.0 */
/* A small writer of JSON: objects, arrays, numbers, texts; indented, or in one line. */
#include <inttypes.h>

#include "nvj.h"

static void quoted(struct json *json, const char *text)
{
	fputc('"', json->to);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(json->to, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(json->to, "\\u%04x", c);
		else
			fputc(c, json->to);
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
