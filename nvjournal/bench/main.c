/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the journal and what it is compared with, and prints JSON:
 *
 *	bench --stream varmail=FILE --stream create=FILE [--rounds N] [--quick]
 *	      [--region MIB] [--fence-ns N] [--line-ns N] [--bandwidth MB/S]
 *	      [--persistence NAME] [--only SECTION] [--engine NAME] [--memory DIR] [--disk DIR]
 *	      [--latency NS,NS...]
 *
 * "daybook-bench nvjournal" runs it, and makes tables, pictures, the model and
 * the verdict of what it prints.
 */
#include "bench.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void usage(void)
{
	fprintf(stderr, "usage: bench --stream NAME=FILE... [--rounds N] [--quick] [--region MIB]\n"
			"             [--fence-ns N] [--line-ns N] [--bandwidth MB/S]\n"
			"             [--persistence NAME] [--only SECTION]\n"
			"             [--engine NAME] [--memory DIR] [--disk DIR]\n"
			"             [--latency NS,NS...]\n");
	exit(2);
}

static const struct {
	const char *name;
	void (*measure)(struct bench *b);
} sections[] = {
	{"streams", measure_streams}, {"updates", measure_updates},
	{"commit", measure_commit},   {"recovery", measure_recovery},
	{"rings", measure_rings},     {"checkpoint", measure_checkpoint},
	{"order", measure_order},     {"data", measure_data},
	{"machine", measure_machine}, {"latency", measure_latency},
};
#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

static bool is_section(const char *name)
{
	for (unsigned n = 0; n < SECTIONS; n++)
		if (!strcmp(name, sections[n].name))
			return true;
	return false;
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (end == text || *end || value < least || value > most)
		usage();
	return value;
}

static void set_latencies(struct bench *b, char *list)
{
	b->latency_count = 0;
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
		if (b->latency_count == MAX_LATENCIES)
			usage();
		b->latency_ns[b->latency_count++] = number(word, 0, 1000000);
	}
}

static void add_stream(struct bench *b, char *argument)
{
	char *path = strchr(argument, '=');

	if (!path || b->stream_count == MAX_STREAMS)
		usage();
	*path++ = 0;
	if (stream_load(&b->streams[b->stream_count++], argument, path))
		exit(2);
}

/* All pages are there, large ones if there are such, before anything is measured. */
static void make_region(struct bench *b, uint64_t bytes, const struct nvju_dram *model)
{
	if (nvju_region_dram(&b->memory, bytes, model)) {
		fprintf(stderr, "bench: %s\n", nvju_error());
		exit(2);
	}
	b->region = nvju_region(b->memory);
	(void)madvise(b->region->base, b->region->size_bytes, MADV_HUGEPAGE);
	memset(b->region->base, 0, b->region->size_bytes);
}

int main(int argc, char **argv)
{
	static struct bench b = {.directory = "/dev/shm",
				 .disk = "/tmp",
				 .rounds = 5,
				 .comma = false,
				 .latency_count = 4,
				 .latency_ns = {0, 100, 300, 500}};
	static const struct option options[] = {{"stream", required_argument, NULL, 's'},
						{"rounds", required_argument, NULL, 'r'},
						{"quick", no_argument, NULL, 'q'},
						{"region", required_argument, NULL, 'm'},
						{"fence-ns", required_argument, NULL, 'f'},
						{"line-ns", required_argument, NULL, 'l'},
						{"bandwidth", required_argument, NULL, 'b'},
						{"persistence", required_argument, NULL, 'p'},
						{"only", required_argument, NULL, 'o'},
						{"engine", required_argument, NULL, 'e'},
						{"memory", required_argument, NULL, 'M'},
						{"disk", required_argument, NULL, 'd'},
						{"latency", required_argument, NULL, 'L'},
						{0}};
	struct nvju_dram model = {0};
	uint64_t region_mib = 2048;
	const char *only = NULL;
	int option;

	b.out = stdout;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 's':
			add_stream(&b, optarg);
			break;
		case 'r':
			b.rounds = (unsigned)number(optarg, 1, MAX_ROUNDS);
			break;
		case 'q':
			b.quick = true;
			break;
		case 'm':
			region_mib = number(optarg, 64, 1 << 20);
			break;
		case 'f':
			model.fence_ns = number(optarg, 0, 1000000);
			break;
		case 'l':
			model.line_ns = number(optarg, 0, 1000000);
			break;
		case 'b':
			model.bytes_per_second = 1000000 * number(optarg, 0, 1000000);
			break;
		case 'p':
			model.persistence = optarg;
			break;
		case 'o':
			only = optarg;
			break;
		case 'e':
			b.engine = optarg;
			break;
		case 'M':
			b.directory = optarg;
			break;
		case 'd':
			b.disk = optarg;
			break;
		case 'L':
			set_latencies(&b, optarg);
			break;
		default:
			usage();
		}
	if (optind != argc || !b.stream_count || (only && !is_section(only)))
		usage();
	/* Files in /dev/shm count as persistent memory for PMDK. */
	setenv("PMEM_IS_PMEM_FORCE", "1", 1);
	make_region(&b, region_mib << 20, &model);
	json_open(&b, NULL, '{');
	json_text(&b, "persistence", b.region->persistence->name);
	json_number(&b, "processors", (double)sysconf(_SC_NPROCESSORS_ONLN));
	json_number(&b, "region_bytes", (double)b.region->size_bytes);
	json_number(&b, "rounds", b.rounds);
	json_number(&b, "fence_ns", (double)model.fence_ns);
	json_number(&b, "line_ns", (double)model.line_ns);
	json_number(&b, "bytes_per_second", (double)model.bytes_per_second);
	for (unsigned n = 0; n < SECTIONS; n++) {
		if (only && strcmp(only, sections[n].name))
			continue;
		fprintf(stderr, "bench: %s\n", sections[n].name);
		sections[n].measure(&b);
		fflush(stdout);
	}
	if (b.nearest_ns > 0)
		json_number(&b, "nearest_line_transfer_ns", b.nearest_ns);
	json_close(&b, '}');
	fputc('\n', stdout);
	for (unsigned n = 0; n < b.stream_count; n++)
		stream_free(&b.streams[n]);
	nvju_region_close(b.memory);
	return ferror(stdout) ? 2 : 0;
}
