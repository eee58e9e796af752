/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a mutant into a copy of core/. A mutant's file:
 *
 *	What it breaks, one line.
 *	@ file.c
 *	- a line as it is there (after "- ", or "-" alone for an empty one)
 *	+ a line as it shall be
 *
 * Lines of "-" and "+" that follow each other are one replacement; another "@"
 * begins another. The old lines must be there exactly once: so a mutant that no
 * longer fits the core is an error, and never a mutant of nothing.
 *
 *	apply MUTANT CORE
 *
 * Prints the first line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 65536u

static char before[MOST], after[MOST], text[16 * MOST], changed[17 * MOST], path[4096];

static void failed(const char *mutant, const char *what)
{
	fprintf(stderr, "apply: %s: %s: %s\n", mutant, path, what);
	exit(1);
}

static void replace(const char *mutant)
{
	FILE *file;
	char *at;
	size_t length;

	if (before[0] == 0)
		return;
	file = fopen(path, "r");
	if (file == NULL)
		failed(mutant, "there is no such file");
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = 0;
	at = strstr(text, before);
	if (at == NULL)
		failed(mutant,
		       "does not have these lines: the core has changed, so must the mutant");
	if (strstr(at + 1, before) != NULL)
		failed(mutant, "has these lines more than once");
	if (at != text && at[-1] != '\n')
		failed(mutant, "does not have these lines whole");
	snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, after,
		 at + strlen(before));
	file = fopen(path, "w");
	if (file == NULL || fputs(changed, file) == EOF || fclose(file) != 0)
		failed(mutant, "cannot be written");
	before[0] = after[0] = 0;
}

static void append(char *to, const char *line)
{
	const char *rest = line[1] == ' ' ? line + 2 : line + 1;

	if (strlen(to) + strlen(rest) >= MOST)
		abort();
	strcat(to, rest);
}

int main(int argc, char **argv)
{
	char line[4096];
	FILE *file = argc == 3 ? fopen(argv[1], "r") : NULL;
	int replacements = 0;

	if (file == NULL || fgets(line, sizeof(line), file) == NULL)
		return 2;
	fputs(line, stdout);
	while (fgets(line, sizeof(line), file) != NULL) {
		switch (line[0]) {
		case '@':
			replace(argv[1]);
			line[strcspn(line, "\n")] = 0;
			snprintf(path, sizeof(path), "%.2000s/%.2000s", argv[2], line + 2);
			break;
		case '-':
			if (after[0] != 0)
				replace(argv[1]);
			append(before, line);
			replacements++;
			break;
		case '+':
			append(after, line);
			break;
		default:
			break;
		}
	}
	replace(argv[1]);
	fclose(file);
	return replacements == 0;
}
