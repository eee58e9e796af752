// SPDX-License-Identifier: GPL-2.0
/*
 * Mount options. Ours (mount/options.c) are taken out first, and JFS parses the
 * rest. Some of JFS's are refused. JFS of Linux 6.1 and 6.12 takes the options as one
 * text, that of 7.2 one by one.
 */
#include <linux/slab.h>

#include "journal.h"

/* Options of JFS that are refused. */
static const struct refused {
	const char *key, *why;
} refused[] = {
	{"nointegrity", "without its journal the disk would not be consistent after a crash"},
};

int jfsnvj_parse_option(const struct super_block *sb, struct nvjk_mount_options *options,
			struct fs_parameter *param)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		if (strcmp(param->key, refused[i].key))
			continue;
		nvjk_say(sb, KERN_ERR, "%s is refused: %s", param->key, refused[i].why);
		return -EINVAL;
	}
	return nvjk_parse_option(options, param);
}

static int parse_one(struct super_block *sb, struct nvjk_mount_options *options, char *text)
{
	char *value = strchr(text, '=');
	struct fs_parameter param = {.key = text, .type = fs_value_is_flag};
	int error;

	if (value) {
		*value++ = 0;
		param.type = fs_value_is_string;
		param.string = kstrdup(value, GFP_KERNEL);
		param.size = strlen(value);
		if (!param.string)
			return -ENOMEM;
	}
	error = jfsnvj_parse_option(sb, options, &param);
	if (value) {
		kfree(param.string);
		value[-1] = '=';
	}
	return error;
}

/* What is not ours stays in the text. */
static int take_ours(struct super_block *sb, struct nvjk_mount_options *asked, char *options)
{
	char *to = options, *rest = options, *word;
	int error = 0;

	while ((word = strsep(&rest, ",")) != NULL) {
		size_t length = strlen(word);

		if (!*word)
			continue;
		error = parse_one(sb, asked, word);
		if (error && error != -ENOPARAM)
			return error;
		if (!error)
			continue;
		if (to != options)
			*to++ = ',';
		memmove(to, word, length);
		to += length;
	}
	*to = 0;
	return 0;
}

/* Some of the options that the modules share mean nothing for JFS. */
static int check_fits(struct super_block *sb, const struct nvjk_mount_options *asked)
{
	if (asked->given_log) {
		nvjk_say(sb, KERN_ERR,
			 "log= is refused: each transaction of JFS is logged when it ends");
		return -EINVAL;
	}
	if (asked->journal_small) {
		nvjk_say(sb, KERN_ERR,
			 "journal_data=small is refused: JFS has no file data in its "
			 "journal");
		return -EINVAL;
	}
	return 0;
}

int jfsnvj_take_options(struct super_block *sb, struct nvjk_mount_options *given)
{
	struct nvjk_mount *mount = kzalloc(sizeof(*mount), GFP_KERNEL);
	struct jfsnvj *j = kzalloc(sizeof(*j), GFP_KERNEL);

	if (!j || !mount) {
		kfree(j);
		kfree(mount);
		return -ENOMEM;
	}
	mount->options = *given;
	given->journal_path = NULL;
	init_rwsem(&j->allocations);
	init_rwsem(&j->opened);
	j->sb = sb;
	j->mount = mount;
	JFS_SBI(sb)->nvj = j;
	return check_fits(sb, &mount->options);
}

static int check_no_error(struct super_block *sb)
{
	if (READ_ONCE(jfsnvj_of(sb)->aborted)) {
		nvjk_say(sb, KERN_ERR, "the journal has failed: unmount, and mount again");
		return -EROFS;
	}
	/* JFS would drop pages that are not at home, and read what the disk has. */
	if (sb_rdonly(sb) && jfsnvj_of(sb)->nvj) {
		nvjk_say(sb, KERN_ERR,
			 "JFS has found an error: unmount, recover the disk with nvj recover, and "
			 "run fsck.jfs");
		return -EUCLEAN;
	}
	return 0;
}

int jfsnvj_check_remount(struct super_block *sb, const struct nvjk_mount_options *asked,
			 bool read_only)
{
	const char *changed;
	int error = 0;

	/* After an error its lock may not have been free; a remount has it. */
	jfsnvj_is_read_only_now(jfsnvj_of(sb));
	/* What is read-only stays so, as a shutdown asks for it: JFS does nothing then. */
	if (!sb_rdonly(sb) || !read_only)
		error = check_no_error(sb);
	if (!error)
		error = check_fits(sb, asked);
	if (error)
		return error;
	changed = nvjk_changed_option(&jfsnvj_of(sb)->mount->options, asked);
	if (changed)
		nvjk_say(sb, KERN_ERR, "%s cannot be changed by a remount: unmount first", changed);
	return changed ? -EINVAL : 0;
}

int jfsnvj_parse(struct super_block *sb, char *options, const int *remount_flags)
{
	struct nvjk_mount_options asked = {};
	int error = options ? take_ours(sb, &asked, options) : 0;

	if (!error)
		error = remount_flags ? jfsnvj_check_remount(sb, &asked, *remount_flags & SB_RDONLY)
				      : jfsnvj_take_options(sb, &asked);
	kfree(asked.journal_path);
	return error;
}

void jfsnvj_show_options(struct seq_file *seq, struct super_block *sb)
{
	nvjk_show_options(seq, jfsnvj_of(sb)->mount);
}
