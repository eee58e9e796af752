// SPDX-License-Identifier: GPL-2.0
/*
 * Our mount options, parsed before ext4's own. They say where the journal is
 * and what it contains. Two of them make it slower, for comparison. One allows
 * unsafe memory. Some of ext4's options are refused, because the journal does
 * not support them.
 *
 * A remount may repeat the options, as mount(8) does, but not change them.
 */
#include <linux/fs_parser.h>
#include <linux/parser.h>

#include "fs/ext4/ext4.h"
#include "../include/nvjournal.h"

enum {
	option_path,
	option_offset,
	option_size,
	option_partitions,
	option_records,
	option_lock,
	option_journal_data,
	option_allow_volatile,
};

static const struct constant_table records_values[] = {{"lines", 0}, {"blocks", 1}, {}};
static const struct constant_table lock_values[] = {{"none", 0}, {"one", 1}, {}};
static const struct constant_table data_values[] = {{"none", 0}, {"small", 1}, {}};

static const struct fs_parameter_spec specs[] = {
	fsparam_string("journal_path", option_path),
	fsparam_string("journal_offset", option_offset),
	fsparam_string("journal_size", option_size),
	fsparam_u32("partitions", option_partitions),
	fsparam_enum("records", option_records, records_values),
	fsparam_enum("lock", option_lock, lock_values),
	fsparam_enum("journal_data", option_journal_data, data_values),
	fsparam_flag("allow_volatile", option_allow_volatile),
	{},
};

/* Options of ext4 that are refused; value NULL: any value. */
static const struct refused {
	const char *key, *value, *why;
} refused[] = {
	{"data", "journal",
	 "not all file data is journaled; use data=ordered, the default, or data=writeback, "
	 "and journal_data=small for that of small files"},
	{"journal_dev", NULL, "the journal is named by journal_path=/dev/pmem0"},
	{"journal_async_commit", NULL,
	 "a commit is one line, and is never written ahead of its records"},
	{"fc_debug_force", NULL, "there are no fast commits"},
};

/* Options of ext4 without a meaning here. */
static const char *const ignored[] = {"journal_checksum", "nojournal_checksum"};

/* Parses bytes, such as 1048576, 1024K, 1M. Returns 0 or -EINVAL. */
static int parse_bytes(const struct fs_parameter *param, u64 *bytes)
{
	char *end;

	*bytes = memparse(param->string, &end);
	if (end == param->string || *end || *bytes % NVJ_BLOCK_BYTES) {
		ext4_msg(NULL, KERN_ERR,
			 "%s=%s is not a number of bytes that is a multiple of 4096: write it as "
			 "268435456 or 256M",
			 param->key, param->string);
		return -EINVAL;
	}
	return 0;
}

static int parse_ours(struct ext4nvj_options *options, struct fs_parameter *param, int option,
		      const struct fs_parse_result *result)
{
	switch (option) {
	case option_path:
		if (!*param->string) {
			ext4_msg(NULL, KERN_ERR,
				 "journal_path= is empty: give a pmem device, as /dev/pmem0");
			return -EINVAL;
		}
		kfree(options->journal_path);
		options->journal_path = param->string;
		param->string = NULL;
		return 0;
	case option_offset:
		options->given_offset = true;
		return parse_bytes(param, &options->journal_offset);
	case option_size:
		options->given_size = true;
		return parse_bytes(param, &options->journal_size);
	case option_partitions:
		if (!result->uint_32 || result->uint_32 > NVJ_MAX_PARTITIONS) {
			ext4_msg(NULL, KERN_ERR, "partitions=%u: choose 1 to %u", result->uint_32,
				 NVJ_MAX_PARTITIONS);
			return -EINVAL;
		}
		options->given_partitions = true;
		options->partitions = result->uint_32;
		return 0;
	case option_records:
		options->given_records = true;
		options->whole_blocks = result->uint_32;
		return 0;
	case option_lock:
		options->given_lock = true;
		options->one_lock = result->uint_32;
		return 0;
	case option_journal_data:
		options->given_data = true;
		options->journal_small = result->uint_32;
		return 0;
	case option_allow_volatile:
		options->allow_volatile = true;
		return 0;
	default:
		return -EINVAL;
	}
}

/* Parses an option for the fs_context. Returns 0 or an error. */
int ext4nvj_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	const char *value = param->type == fs_value_is_string ? param->string : NULL;
	struct fs_parse_result result;
	unsigned int i;
	int option;

	option = fs_parse(fc, specs, param, &result);
	if (option >= 0)
		return parse_ours(fc->fs_private, param, option, &result);
	if (option != -ENOPARAM)
		return option;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		const struct refused *r = &refused[i];

		if (strcmp(param->key, r->key) || (r->value && (!value || strcmp(value, r->value))))
			continue;
		ext4_msg(NULL, KERN_ERR, "%s%s%s is refused: %s", param->key, value ? "=" : "",
			 value ?: "", r->why);
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(ignored); i++) {
		if (strcmp(param->key, ignored[i]))
			continue;
		ext4_msg(NULL, KERN_NOTICE, "%s is ignored: each record has a checksum in any case",
			 param->key);
		return 0;
	}
	return ext4_parse_param(fc, param);
}

void ext4nvj_free_context(struct fs_context *fc)
{
	struct ext4nvj_options *options = fc->fs_private;

	if (options)
		kfree(options->journal_path);
	ext4_fc_free(fc);
}

/* Shown in /proc/mounts, after ext4's options. */
int ext4nvj_show_options(struct seq_file *seq, struct dentry *root)
{
	const struct ext4nvj *nvj = EXT4_SB(root->d_sb)->s_nvj;
	int err = ext4_show_options(seq, root);

	if (err || !nvj)
		return err;
	seq_show_option(seq, "journal_path", nvj->options.journal_path);
	if (nvj->options.journal_offset)
		seq_printf(seq, ",journal_offset=%llu", nvj->options.journal_offset);
	if (nvj->options.given_size)
		seq_printf(seq, ",journal_size=%llu", nvj->options.journal_size);
	seq_printf(seq, ",partitions=%u", nvj->options.partitions);
	if (nvj->options.whole_blocks)
		seq_puts(seq, ",records=blocks");
	if (nvj->options.one_lock)
		seq_puts(seq, ",lock=one");
	if (nvj->options.journal_small)
		seq_puts(seq, ",journal_data=small");
	if (nvj->options.allow_volatile)
		seq_puts(seq, ",allow_volatile");
	return 0;
}
