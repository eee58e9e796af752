// SPDX-License-Identifier: GPL-2.0
/*
 * Our mount options (mount/options.c), parsed before ext4's own. Some of ext4's
 * options are refused, because the journal does not support them.
 */
#include "fs/ext4/ext4.h"

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

/* Parses an option for the fs_context. Returns 0 or an error. */
int ext4nvj_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	const char *value = param->type == fs_value_is_string ? param->string : NULL;
	unsigned int i;
	int err;

	err = nvjk_parse_option(fc->fs_private, param);
	if (err != -ENOPARAM)
		return err;

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
	struct nvjk_mount_options *options = fc->fs_private;

	if (options)
		kfree(options->journal_path);
	ext4_fc_free(fc);
}

/* Shown in /proc/mounts, after ext4's options. */
int ext4nvj_show_options(struct seq_file *seq, struct dentry *root)
{
	const struct nvjk_mount *nvj = EXT4_SB(root->d_sb)->s_nvj;
	int err = ext4_show_options(seq, root);

	if (!err && nvj)
		nvjk_show_options(seq, nvj);
	return err;
}
