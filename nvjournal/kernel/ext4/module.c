// SPDX-License-Identifier: GPL-2.0
/* What all mounts share. */
#include <linux/module.h>

#include "fs/ext4/ext4.h"
#include "jbd2/journal.h"

static int __init ext4nvj_init(void)
{
	int err;

	/* A buffer is a block of the engine, and is in one page. */
	BUILD_BUG_ON(PAGE_SIZE != NVJ_BLOCK_BYTES);
	err = nvjk_jbd2_init();
	if (err)
		return err;
	err = ext4_init_fs();
	if (err)
		goto no_fs;
	/* In the directory that the call above has made. */
	err = nvjk_claims_init();
	if (err)
		goto no_claims;
	return 0;

no_claims:
	ext4_exit_fs();
no_fs:
	nvjk_jbd2_exit();
	return err;
}

static void __exit ext4nvj_exit(void)
{
	nvjk_claims_exit();
	ext4_exit_fs();
	nvjk_jbd2_exit();
}

module_init(ext4nvj_init);
module_exit(ext4nvj_exit);
