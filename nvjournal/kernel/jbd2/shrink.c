// SPDX-License-Identifier: GPL-2.0
/* Frees images of blocks that are at home when the kernel needs memory. */
#include <linux/sched/mm.h>

#include "journal.h"

static unsigned long count(struct nvjk_journal *j)
{
	return min_t(u64, nvj_images(j->nvj), LONG_MAX);
}

/*
 * A thread that allocates memory within the file system may hold locks that are
 * needed here.
 */
static unsigned long scan(struct nvjk_journal *j, struct shrink_control *control)
{
	unsigned int nofs;
	u64 released, scanned;

	if (!(control->gfp_mask & __GFP_FS))
		return SHRINK_STOP;
	nofs = memalloc_nofs_save();
	released = nvj_shrink(j->nvj, control->nr_to_scan, &scanned);
	memalloc_nofs_restore(nofs);
	/* Without progress the kernel would repeat this without end. */
	if (!scanned)
		return SHRINK_STOP;
	control->nr_scanned = scanned;
	return released;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)

static unsigned long count_objects(struct shrinker *shrinker, struct shrink_control *control)
{
	return count(shrinker->private_data);
}

static unsigned long scan_objects(struct shrinker *shrinker, struct shrink_control *control)
{
	return scan(shrinker->private_data, control);
}

int nvjk_shrinker_start(struct nvjk_journal *j)
{
	j->shrinker = shrinker_alloc(0, "ext4nvj-images:%s", j->name);
	if (!j->shrinker)
		return -ENOMEM;
	j->shrinker->count_objects = count_objects;
	j->shrinker->scan_objects = scan_objects;
	j->shrinker->private_data = j;
	shrinker_register(j->shrinker);
	return 0;
}

void nvjk_shrinker_stop(struct nvjk_journal *j)
{
	shrinker_free(j->shrinker);
}

#else

static unsigned long count_objects(struct shrinker *shrinker, struct shrink_control *control)
{
	return count(container_of(shrinker, struct nvjk_journal, shrinker));
}

static unsigned long scan_objects(struct shrinker *shrinker, struct shrink_control *control)
{
	return scan(container_of(shrinker, struct nvjk_journal, shrinker), control);
}

int nvjk_shrinker_start(struct nvjk_journal *j)
{
	j->shrinker.count_objects = count_objects;
	j->shrinker.scan_objects = scan_objects;
	j->shrinker.seeks = DEFAULT_SEEKS;
	return register_shrinker(&j->shrinker, "ext4nvj-images:%s", j->name);
}

void nvjk_shrinker_stop(struct nvjk_journal *j)
{
	unregister_shrinker(&j->shrinker);
}

#endif
