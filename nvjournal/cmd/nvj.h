/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command nvj: what its files share. main.c chooses, arguments.c reads the
 * command line, json.c writes JSON, report.c shows what a check found; one file
 * for each command.
 */
#ifndef NVJ_COMMAND_H
#define NVJ_COMMAND_H

#include <stdio.h>

#include "nvjournal_user.h"

/* Exit codes. */
enum {
	EXIT_SOUND = 0,
	EXIT_DAMAGED = 1,  /* or: it failed */
	EXIT_UNUSABLE = 2, /* no journal, not to be opened, or a wrong command line */
};

/* Each gets the arguments after the command's name, and returns the exit
 * code. */
int command_format(int count, char **words);
int command_inspect(int count, char **words);
int command_check(int count, char **words);
int command_recover(int count, char **words);
int command_dump(int count, char **words);
int command_resize(int count, char **words);
int command_completion(int count, char **words);

/* --- arguments.c ---------------------------------------------------------- */

enum argument_kind {
	ARGUMENT_FLAG,      /* bool */
	ARGUMENT_SIZE,      /* uint64_t: bytes, with K, M, G or T */
	ARGUMENT_COUNT,     /* uint64_t */
	ARGUMENT_TEXT,      /* const char * */
	ARGUMENT_UUID,      /* uint8_t[16] */
	ARGUMENT_PLACEMENT, /* enum nvj_placement: block or cpu */
};

struct argument {
	const char *name; /* "--size" */
	enum argument_kind kind;
	void *value;
	bool *given; /* may be NULL */
};

/*
 * Reads options, ended by one without a name, and one FILE, or what the value of
 * that last one calls it. 0; -1: a sentence was written to stderr; 1: --help was
 * asked for, and printed.
 */
int read_arguments(const char *command, int count, char **words, const struct argument *arguments,
		   const char **file);

/* Prints an error to stderr, after "nvj: ". */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints the --help of a command; NULL: of nvj itself. */
void print_help(const char *command, FILE *to);

char *uuid_text(const uint8_t uuid[16], char text[37]);
/* "cpu" or "block", as for --placement. */
const char *placement_text(const struct nvj_disk_super *super);
bool is_zero(const void *memory, size_t bytes);

/* --- json.c --------------------------------------------------------------- */

struct json {
	FILE *to;
	bool one_line;
	unsigned depth;
	bool has_member;
};

/* name is NULL in an array, and at the top level. */
void json_begin(struct json *json, const char *name, char bracket);
void json_end(struct json *json, char bracket);
void json_number(struct json *json, const char *name, uint64_t value);
void json_hex(struct json *json, const char *name, uint64_t value);
void json_bool(struct json *json, const char *name, bool value);
void json_text(struct json *json, const char *name, const char *value);
void json_null(struct json *json, const char *name);

/* --- report.c ------------------------------------------------------------- */

/* Prints why the result of nvj_read_super or nvj_check makes the journal at offset unusable. */
void complain_of_journal(const char *file, uint64_t offset, int error);

/* Returns the exit code of a check: error is the result of nvj_check. */
int verdict(int error, const struct nvj_report *report);
const char *verdict_text(int exit_code);

void report_text(const struct nvj_report *report, FILE *to);
/* Writes the members of the report into an open object. */
void report_json(const struct nvj_report *report, struct json *json);
void findings_text(const struct nvj_report *report, FILE *to);

/* --- fs.c ------------------------------------------------------------------ */

#define EXT4_ERROR_BYTES 108u

/* What the superblock on a disk says of the journal. */
struct fs_disk {
	bool found;          /* it is an ext2, 3 or 4, or a JFS: else nothing else counts */
	bool jfs;            /* it is a JFS */
	bool marked;         /* by ext4nvj or jfsnvj: it needs recovery from journal_uuid */
	bool needs_recovery; /* from a journal of its own */
	uint8_t uuid[16];    /* of the file system */
	uint8_t journal_uuid[16];
	uint64_t tail_tid;   /* that a checkpoint has marked: the journal's is not before it */
	uint64_t mark_block; /* which has that mark; 0: none */
	bool mark_unreadable;
	/* Of an ext4, as they are in its superblock: the state, and what its errors were. */
	uint8_t ext4_state;
	uint8_t ext4_errors[EXT4_ERROR_BYTES];
	uint8_t ext4_error_codes[4];
};

/* ext4 or JFS. */
const char *fs_name(const struct fs_disk *fs);
/* Returns 0, or -1 if it cannot be read, after an error message. */
int fs_look(struct fs_disk *fs, struct nvju_disk *disk);
/*
 * 0: it does not wait for another journal, nor a later state; -1: it does, after a sentence.
 * any: also if the mark of its state cannot be read.
 */
int fs_fits(const struct fs_disk *fs, const char *file, uint64_t offset, const char *target,
	    const struct nvj_region *region, const struct nvj_disk_super *super, bool any);
/*
 * All is home: makes the maps of a JFS anew, and removes the mark, if there is one. before is
 * what fs_look has found before recovery: newer errors of an ext4 are kept.
 * Returns 0, or -1 after an error message.
 */
int fs_unmark(const char *target, struct nvju_disk *disk, const struct fs_disk *before,
	      bool *unmarked);
/* For ext4.c and jfs.c: */
/* Number 0: there is no block for the mark of the tail. */
void fs_read_mark(struct fs_disk *fs, struct nvju_disk *disk, uint64_t number, uint64_t blocks);
/* flush: it and all before it are persistent. Returns 0 or a negative error. */
int fs_write_block(struct nvju_disk *disk, uint64_t number, const void *image, bool flush);

/* --- ext4.c, jfs.c: of fs.c's functions, those that depend on the file system -- */

int ext4_look(struct fs_disk *fs, struct nvju_disk *disk);
int ext4_unmark(const char *target, struct nvju_disk *disk, const struct fs_disk *before,
		bool *unmarked);
int jfs_look(struct fs_disk *fs, struct nvju_disk *disk);
int jfs_unmark(const char *target, struct nvju_disk *disk, bool *unmarked);

struct ext4_size {
	uint64_t blocks;
	uint32_t block_bytes;
};

/* The size of the one on a device, which may be mounted. Returns 0, or -1 after an
 * error message. */
int ext4_read_size(const char *device, struct ext4_size *size);

/* --- look.c --------------------------------------------------------------- */

/*
 * As nvju_region_open, of the journal that is at offset, and of no more, as other
 * slices may be behind it; of all to the end if there is none.
 */
int open_journal_region(struct nvju_region **region, const char *file, uint64_t offset,
			unsigned flags);

/* A region, mapped read-only, and its superblock. */
struct look {
	struct nvju_region *region;
	struct nvju_platform platform;
	struct nvj_disk_super super;
	int super_error; /* of nvj_read_super */
	bool in_use;     /* a process has it open: what is read may move */
};

/*
 * Maps file read-only at offset. 0; else the exit code, after a sentence. With
 * even_if_in_use the lock of a process that writes to it is no hindrance.
 */
int look_at(struct look *look, const char *file, uint64_t offset, bool even_if_in_use);
/* The same, but closes it if it has no valid superblock: EXIT_UNUSABLE after an error
 * message. */
int look_at_journal(struct look *look, const char *file, uint64_t offset, bool even_if_in_use);
void look_away(struct look *look);

#endif
