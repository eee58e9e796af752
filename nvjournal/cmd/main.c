/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvj: formats, inspects, checks, recovers and dumps journals, and grows ext4 on
 * one. This file chooses, and helps.
 */
#include <string.h>

#include "nvj.h"

static const struct {
	const char *name;
	int (*run)(int count, char **words);
	const char *what, *help;
} commands[] = {
	{"format", command_format, "make an empty journal in a file or device",
	 "nvj format FILE [--size SIZE] [--partitions N] [--placement cpu|block] [--commits N]\n"
	 "           [--offset SIZE] [--disk-uuid UUID] [--force] [--allow-volatile]\n"
	 "\n"
	 "Makes an empty journal in FILE: a DAX device, a file on a DAX file system, or a\n"
	 "pmem block device for ext4nvj or jfsnvj.\n"
	 "\n"
	 "  --size SIZE       size of the journal; a shorter file is extended. Default: all\n"
	 "  --partitions N    independently written rings, 1 to 64. Default: one for each\n"
	 "                    processor, with 8 MiB of the journal each at least\n"
	 "  --placement P     the ring of a record: cpu, of the processor that writes it;\n"
	 "                    block, of its block. Default: cpu\n"
	 "  --commits N       transactions that may wait for a checkpoint, a power of 2 from\n"
	 "                    16 to 65536. Default: depends on the size\n"
	 "  --offset SIZE     start of the journal in FILE. Default: 0\n"
	 "  --disk-uuid UUID  UUID of the journal's disk. Default: any\n"
	 "  --force           overwrite the existing content\n"
	 "  --allow-volatile  for development: also accept other files and block devices,\n"
	 "                    which may lose committed data when power fails\n"
	 "\n"
	 "Without --force, refuses a journal with transactions that are not at home, and\n"
	 "any other content that is not empty. It refuses to begin within another journal, or\n"
	 "to reach into one, and an offset that is no multiple of 64K: it looks for other\n"
	 "journals at such multiples only.\n"
	 "\n"
	 "  nvj format /mnt/pmem/journal --size 256M --partitions 8\n"
	 "  nvj format /dev/dax0.0 --partitions 16\n"
	 "  nvj format /dev/dax0.0 --partitions 8 --placement block\n"},
	{"inspect", command_inspect, "show the properties and the use of a journal",
	 "nvj inspect FILE [--target DISK] [--offset SIZE] [--json]\n"
	 "\n"
	 "Shows the superblock, the last transactions at home and committed, and the use of\n"
	 "each ring. Changes nothing. The journal may be in use.\n"
	 "\n"
	 "  --target DISK     also show the file system on DISK, ext4 or JFS, and whether\n"
	 "                    it needs this journal. Default: the disk with the journal's\n"
	 "                    UUID in /dev/disk/by-uuid\n"
	 "\n"
	 "  nvj inspect /mnt/pmem/journal\n"
	 "  nvj inspect /mnt/pmem/journal --json | jq .rings\n"},
	{"check", command_check, "check everything that recovery reads; change nothing",
	 "nvj check FILE [--offset SIZE] [--json]\n"
	 "\n"
	 "Reads everything that recovery would read; changes nothing. Exit code: 0 sound, 1\n"
	 "damaged (each place is listed), 2 unusable: no journal, or it cannot be read.\n"
	 "A damaged copy of the superblock or tail is 1, too; recovery writes it again.\n"
	 "\n"
	 "  nvj check /mnt/pmem/journal && echo sound\n"},
	{"recover", command_recover, "write committed data to the disk",
	 "nvj recover FILE --target DISK [--disk-uuid UUID] [--any-disk] [--offset SIZE]\n"
	 "            [--json] [--allow-volatile]\n"
	 "\n"
	 "Writes all committed data to its place on DISK. Checks everything first; if\n"
	 "anything is damaged, it writes nothing. It may be interrupted and run again.\n"
	 "\n"
	 "  --target DISK     file or block device, not mounted\n"
	 "  --disk-uuid UUID  UUID of DISK: must match the journal. Not needed for\n"
	 "                    ext4 and JFS, whose UUID nvj reads\n"
	 "  --any-disk        do not check the UUID of DISK, and continue if the block of\n"
	 "                    DISK with the mark of the journal's tail is unreadable\n"
	 "  --allow-volatile  accept a FILE on volatile memory, for development\n"
	 "\n"
	 "After a crash, a disk of ext4nvj or jfsnvj is marked, and the kernel's ext4 and\n"
	 "JFS, e2fsck and fsck.jfs refuse it. Recovery needs the journal that the disk was\n"
	 "last mounted with, and removes the mark. For JFS it also rebuilds the maps of\n"
	 "free blocks and inodes.\n"
	 "\n"
	 "Exit code: 0 recovered, or nothing to do; 1 damaged or failed; 2 unusable.\n"
	 "\n"
	 "  nvj recover /dev/dax0.0 --target /dev/vdb\n"
	 "  nvj recover /dev/pmem0 --offset 1G --target /dev/vdb && e2fsck -f /dev/vdb\n"},
	{"dump", command_dump, "show the records that are not at home",
	 "nvj dump FILE [--partition N] [--transaction N] [--offset SIZE] [--json]\n"
	 "\n"
	 "Shows the records between the last transaction at home and the last commit, one per\n"
	 "line, in the order of the rings. --json: each line is an object.\n"
	 "\n"
	 "  nvj dump /mnt/pmem/journal --partition 0\n"
	 "  nvj dump /mnt/pmem/journal --json | jq -s 'map(.lines) | add'\n"},
	{"resize", command_resize, "grow a mounted ext4nvj or ext4",
	 "nvj resize DIR [--size SIZE] [--json]\n"
	 "\n"
	 "Grows the file system mounted at DIR while it is in use: ext4nvj, whose\n"
	 "disk resize2fs does not open, or ext4. It cannot shrink it.\n"
	 "\n"
	 "  --size SIZE       new size of the file system. Default: that of its device\n"
	 "\n"
	 "Exit code: 0 grown, or already large enough; 1 refused or failed; 2 DIR is not\n"
	 "such a mount.\n"
	 "\n"
	 "  nvj resize /srv/data\n"
	 "  nvj resize /srv/data --size 200G\n"},
	{"completion", command_completion, "print the completion script of a shell",
	 "nvj completion bash\n"
	 "\n"
	 "  . <(nvj completion bash)\n"},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

void print_help(const char *command, FILE *to)
{
	unsigned n;

	for (n = 0; n < COMMANDS && command; n++)
		if (!strcmp(command, commands[n].name)) {
			fprintf(to, "%s", commands[n].help);
			return;
		}
	fputs("nvj COMMAND ...: journals in byte-addressable memory\n\n", to);
	for (n = 0; n < COMMANDS; n++)
		fprintf(to, "  %-11s %s\n", commands[n].name, commands[n].what);
	fputs("\n"
	      "  nvj COMMAND --help   help for the command\n"
	      "  nvj --version\n"
	      "\n"
	      "Sizes are in bytes, or with K, M, G, T (of 1024). Exit codes: 0; 1 damaged or\n"
	      "failed; 2 unusable, or a wrong command line.\n"
	      "\n"
	      "  nvj format /dev/pmem0 --offset 1G --size 256M --partitions 8\n"
	      "  nvj inspect /dev/pmem0 --offset 1G\n"
	      "  nvj check journal.img\n"
	      "  nvj recover journal.img --target disk.img --allow-volatile\n",
	      to);
}

static bool is_command(const char *name)
{
	unsigned n;

	for (n = 0; n < COMMANDS; n++)
		if (!strcmp(name, commands[n].name))
			return true;
	return false;
}

static int no_command(const char *name)
{
	complain("there is no command \"%s\"; see nvj --help", name);
	return EXIT_UNUSABLE;
}

int main(int count, char **words)
{
	unsigned n;

	if (count < 2) {
		print_help(NULL, stderr);
		return EXIT_UNUSABLE;
	}
	if (!strcmp(words[1], "--help") || !strcmp(words[1], "-h") || !strcmp(words[1], "help")) {
		if (count > 2 && !is_command(words[2]))
			return no_command(words[2]);
		print_help(count > 2 ? words[2] : NULL, stdout);
		return EXIT_SOUND;
	}
	if (!strcmp(words[1], "--version")) {
		if (count > 2) {
			complain("--version: there is nothing after it: \"%s\"", words[2]);
			return EXIT_UNUSABLE;
		}
		printf("nvj %s, format %u\n", NVJ_VERSION, NVJ_FORMAT_VERSION);
		return EXIT_SOUND;
	}
	for (n = 0; n < COMMANDS; n++) {
		int result;

		if (strcmp(words[1], commands[n].name))
			continue;
		result = commands[n].run(count - 2, words + 2);
		if (fflush(stdout) == 0 && !ferror(stdout))
			return result;
		complain("%s: cannot write all of the output", words[1]);
		return result == EXIT_SOUND ? EXIT_DAMAGED : result;
	}
	return no_command(words[1]);
}
