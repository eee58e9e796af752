/* SPDX-License-Identifier: Apache-2.0 */
/* The few kinds of JSON that the benchmark prints. */
#include "bench.h"

#include <math.h>

static void key_of(struct bench *b, const char *key)
{
	fprintf(b->out, b->comma ? ",\n" : "\n");
	if (key)
		fprintf(b->out, "\"%s\": ", key);
	b->comma = true;
}

void json_open(struct bench *b, const char *key, char bracket)
{
	if (key || b->comma)
		key_of(b, key);
	fputc(bracket, b->out);
	b->comma = false;
}

void json_close(struct bench *b, char bracket)
{
	fputc(bracket, b->out);
	b->comma = true;
}

void json_number(struct bench *b, const char *key, double value)
{
	key_of(b, key);
	if (isfinite(value))
		fprintf(b->out, "%.12g", value);
	else
		fprintf(b->out, "null");
}

/* All texts are the program's own: nothing in them needs to be escaped. */
void json_text(struct bench *b, const char *key, const char *value)
{
	key_of(b, key);
	fprintf(b->out, "\"%s\"", value);
}

void json_spread(struct bench *b, const char *key, struct spread value)
{
	key_of(b, key);
	fprintf(b->out, "{\"median\": %.12g, \"low\": %.12g, \"high\": %.12g}", value.median,
		value.low, value.high);
}
