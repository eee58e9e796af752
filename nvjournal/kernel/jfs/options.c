// SPDX-License-Identifier: GPL-2.0
/*
 * Mount options. JFS takes them as one text. Ours (mount/options.c) are taken out
 * of it, and JFS parses the rest. Some of JFS's are refused.
 */
#include <linux/slab.h>

#include "journal.h"

/* Options of JFS that are refused. */
static const struct refused {
	const char *key, *why;
} refused[] = {
	{"nointegrity", "without its journal the disk would not be consistent after a crash"},
};

static int parse_one(struct super_block *sb, struct nvjk_mount_options *options, char *text)
{
	char *value = strchr(text, '=');
	struct fs_parameter param = {.key = text, .type = fs_value_is_flag};
	unsigned int i;
	int error;

	if (value) {
		*value++ = 0;
		param.type = fs_value_is_string;
		param.string = kstrdup(value, GFP_KERNEL);
		param.size = strlen(value);
		if (!param.string)
			return -ENOMEM;
	}
	error = nvjk_parse_option(options, &param);
	if (value) {
		kfree(param.string);
		value[-1] = '=';
	}
	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		if (strcmp(text, refused[i].key))
			continue;
		nvjk_say(sb, KERN_ERR, "%s is refused: %s", text, refused[i].why);
		return -EINVAL;
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

static bool remount(struct super_block *sb, char *options)
{
	struct nvjk_mount_options asked = {};
	const char *changed = NULL;
	bool fits;

	if (READ_ONCE(jfsnvj_of(sb)->aborted)) {
		nvjk_say(sb, KERN_ERR, "the journal has failed: unmount, and mount again");
		return false;
	}
	fits = !options || !take_ours(sb, &asked, options);
	if (fits)
		changed = nvjk_changed_option(&jfsnvj_of(sb)->mount->options, &asked);
	if (changed)
		nvjk_say(sb, KERN_ERR, "%s cannot be changed by a remount: unmount first", changed);
	kfree(asked.journal_path);
	return fits && !changed;
}

bool jfsnvj_parse(struct super_block *sb, char *options, bool again)
{
	struct nvjk_mount *mount;
	struct jfsnvj *j;

	if (again)
		return remount(sb, options);
	j = kzalloc(sizeof(*j), GFP_KERNEL);
	mount = kzalloc(sizeof(*mount), GFP_KERNEL);
	if (!j || !mount) {
		kfree(j);
		kfree(mount);
		return false;
	}
	j->sb = sb;
	j->mount = mount;
	JFS_SBI(sb)->nvj = j;
	return !options || !take_ours(sb, &mount->options, options);
}

void jfsnvj_show_options(struct seq_file *seq, struct super_block *sb)
{
	nvjk_show_options(seq, jfsnvj_of(sb)->mount);
}

int jfsnvj_refuse_resize(struct super_block *sb)
{
	nvjk_say(sb, KERN_ERR, "resize is not supported: unmount, mount as jfs, and resize there");
	return -EOPNOTSUPP;
}
