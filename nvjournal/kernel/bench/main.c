/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The command line:
 *
 * 	load varmail|create DIRECTORY --files N --prepare
 * 	load varmail DIRECTORY --files N --threads N --milliseconds N [--seed N]
 * 	load create DIRECTORY --files N --threads N [--milliseconds N]
 * 	load clean DIRECTORY --files N --threads N
 *
 * --prepare makes what the run needs, in an empty directory, with the same
 * number of files. So preparing is not measured. create runs once in a prepared
 * directory, and again after clean with the same numbers; varmail any number of
 * times. Exit status 0: a run has printed one
 * line of JSON; 1: a failure; 2: wrong usage.
 */
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(int error, const char *format, ...)
{
	va_list arguments;

	fputs("load: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	if (error)
		fprintf(stderr, ": %s", strerror(error));
	fputc('\n', stderr);
	exit(1);
}

__attribute__((noreturn)) static void usage(void)
{
	fputs("usage: load varmail|create DIRECTORY --files N --prepare\n"
	      "       load varmail DIRECTORY --files N --threads N --milliseconds N [--seed N]\n"
	      "       load create DIRECTORY --files N --threads N [--milliseconds N]\n"
	      "       load clean DIRECTORY --files N --threads N\n",
	      stderr);
	exit(2);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || value < least || value > most)
		usage();
	return value;
}

static const struct load *find(const char *name)
{
	static const struct load *const loads[] = {&load_varmail, &load_create, &load_clean};

	for (size_t n = 0; n < sizeof(loads) / sizeof(loads[0]); n++)
		if (!strcmp(name, loads[n]->name))
			return loads[n];
	usage();
}

int main(int count, char **words)
{
	static const struct option options[] = {
		{"files", required_argument, NULL, 'f'},
		{"threads", required_argument, NULL, 't'},
		{"milliseconds", required_argument, NULL, 'm'},
		{"seed", required_argument, NULL, 'r'},
		{"prepare", no_argument, NULL, 'p'},
		{0},
	};
	struct crew *crew = load_memory(1, sizeof(*crew));
	bool prepare = false;
	int option;

	crew->seed = 1;
	while ((option = getopt_long(count, words, "", options, NULL)) != -1) {
		switch (option) {
		case 't':
			crew->threads = (unsigned)number(optarg, 1, MAX_THREADS);
			break;
		case 'f':
			crew->files = (unsigned)number(optarg, 1, 10000000);
			break;
		case 'm':
			crew->limit_ns = number(optarg, 1, 3600000) * UINT64_C(1000000);
			break;
		case 'r':
			crew->seed = number(optarg, 0, UINT64_MAX);
			break;
		case 'p':
			prepare = true;
			break;
		default:
			usage();
		}
	}
	if (count - optind != 2 || !crew->files || prepare == (crew->threads != 0))
		usage();
	crew->load = find(words[optind]);
	crew->directory = words[optind + 1];
	/* varmail never ends by itself, and clean must end by itself. */
	if (prepare || crew->load == &load_clean ? crew->limit_ns != 0
						 : crew->load == &load_varmail && !crew->limit_ns)
		usage();
	if (strlen(crew->directory) >= MAX_DIRECTORY)
		fail(ENAMETOOLONG, "%s", crew->directory);
	random_contents(crew);
	if (prepare) {
		crew->load->prepare(crew);
		return 0;
	}
	if (crew->load == &load_varmail && crew->files / crew->threads < 4)
		fail(0, "%u files are too few for %u threads: want four for each", crew->files,
		     crew->threads);
	result_print(crew, crew_run(crew));
	return fflush(stdout) ? 1 : 0;
}
