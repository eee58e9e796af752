// SPDX-License-Identifier: GPL-2.0
/*
 * Our mount options, parsed before those of the file system. They say where the
 * journal is and what it contains. Three of them make it slower, for comparison.
 * One allows unsafe memory.
 *
 * A remount may repeat the options, as mount(8) does, but not change them.
 */
#include <linux/slab.h>
#include <linux/string.h>

#include "mount.h"

enum {
	option_path,
	option_offset,
	option_size,
	option_partitions,
	option_placement,
	option_records,
	option_lock,
	option_log,
	option_journal_data,
	option_allow_volatile,
};

static const struct constant_table placement_values[] = {
	{"block", NVJ_PLACE_BLOCK}, {"cpu", NVJ_PLACE_CPU}, {}};
static const struct constant_table records_values[] = {{"lines", 0}, {"blocks", 1}, {}};
static const struct constant_table lock_values[] = {{"none", 0}, {"one", 1}, {}};
static const struct constant_table log_values[] = {{"commit", 0}, {"handle", 1}, {}};
static const struct constant_table data_values[] = {{"none", 0}, {"small", 1}, {}};

static const struct fs_parameter_spec specs[] = {
	fsparam_string("journal_path", option_path),
	fsparam_string("journal_offset", option_offset),
	fsparam_string("journal_size", option_size),
	fsparam_u32("partitions", option_partitions),
	fsparam_enum("placement", option_placement, placement_values),
	fsparam_enum("records", option_records, records_values),
	fsparam_enum("lock", option_lock, lock_values),
	fsparam_enum("log", option_log, log_values),
	fsparam_enum("journal_data", option_journal_data, data_values),
	fsparam_flag("allow_volatile", option_allow_volatile),
	{},
};

/* Parses bytes, such as 1048576, 1024K, 1M. Returns 0 or -EINVAL. */
static int parse_bytes(const struct fs_parameter *param, u64 *bytes)
{
	char *end;

	*bytes = memparse(param->string, &end);
	if (end == param->string || *end || *bytes % NVJ_BLOCK_BYTES) {
		nvjk_say(NULL, KERN_ERR,
			 "%s=%s is not a number of bytes that is a multiple of 4096: write it as "
			 "268435456 or 256M",
			 param->key, param->string);
		return -EINVAL;
	}
	return 0;
}

static int parse_ours(struct nvjk_mount_options *options, struct fs_parameter *param, int option,
		      const struct fs_parse_result *result)
{
	switch (option) {
	case option_path:
		if (!*param->string) {
			nvjk_say(NULL, KERN_ERR,
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
			nvjk_say(NULL, KERN_ERR, "partitions=%u: choose 1 to %u", result->uint_32,
				 NVJ_MAX_PARTITIONS);
			return -EINVAL;
		}
		options->given_partitions = true;
		options->partitions = result->uint_32;
		return 0;
	case option_placement:
		options->given_placement = true;
		options->placement = result->uint_32;
		return 0;
	case option_records:
		options->given_records = true;
		options->whole_blocks = result->uint_32;
		return 0;
	case option_lock:
		options->given_lock = true;
		options->one_lock = result->uint_32;
		return 0;
	case option_log:
		options->given_log = true;
		options->log_at_handle = result->uint_32;
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

int nvjk_parse_option(struct nvjk_mount_options *options, struct fs_parameter *param)
{
	struct p_log log = {.prefix = KBUILD_MODNAME};
	struct fs_parse_result result;
	int option;

	option = __fs_parse(&log, specs, param, &result);
	return option < 0 ? option : parse_ours(options, param, option, &result);
}

void nvjk_show_options(struct seq_file *seq, const struct nvjk_mount *mount)
{
	const struct nvjk_mount_options *o = &mount->options;

	seq_show_option(seq, "journal_path", o->journal_path);
	if (o->journal_offset)
		seq_printf(seq, ",journal_offset=%llu", o->journal_offset);
	if (o->given_size)
		seq_printf(seq, ",journal_size=%llu", o->journal_size);
	seq_printf(seq, ",partitions=%u", o->partitions);
	seq_printf(seq, ",placement=%s", o->placement == NVJ_PLACE_BLOCK ? "block" : "cpu");
	if (o->whole_blocks)
		seq_puts(seq, ",records=blocks");
	if (o->one_lock)
		seq_puts(seq, ",lock=one");
	if (o->log_at_handle)
		seq_puts(seq, ",log=handle");
	if (o->journal_small)
		seq_puts(seq, ",journal_data=small");
	if (o->allow_volatile)
		seq_puts(seq, ",allow_volatile");
}

const char *nvjk_changed_option(const struct nvjk_mount_options *now,
				const struct nvjk_mount_options *asked)
{
	const char *changed = NULL;

	if (asked->journal_path && strcmp(asked->journal_path, now->journal_path))
		changed = "journal_path";
	if (asked->given_offset && asked->journal_offset != now->journal_offset)
		changed = "journal_offset";
	if (asked->given_size && asked->journal_size != now->journal_size)
		changed = "journal_size";
	if (asked->given_partitions && asked->partitions != now->partitions)
		changed = "partitions";
	if (asked->given_placement && asked->placement != now->placement)
		changed = "placement";
	if (asked->given_records && asked->whole_blocks != now->whole_blocks)
		changed = "records";
	if (asked->given_lock && asked->one_lock != now->one_lock)
		changed = "lock";
	if (asked->given_log && asked->log_at_handle != now->log_at_handle)
		changed = "log";
	if (asked->given_data && asked->journal_small != now->journal_small)
		changed = "journal_data";
	if (asked->allow_volatile && !now->allow_volatile)
		changed = "allow_volatile";
	return changed;
}
