// SPDX-License-Identifier: GPL-2.0
/* Frees images of blocks that are at home when the kernel needs memory. */
#include <linux/sched/mm.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "mount.h"

struct nvjk_shrinker {
	struct nvj *nvj;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	struct shrinker *shrinker;
#else
	struct shrinker shrinker;
#endif
};

static unsigned long count(struct nvjk_shrinker *s)
{
	return min_t(u64, nvj_images(s->nvj), LONG_MAX);
}

/*
 * A thread that allocates memory within the file system may hold locks that are
 * needed here.
 */
static unsigned long scan(struct nvjk_shrinker *s, struct shrink_control *control)
{
	unsigned int nofs;
	u64 released, scanned;

	if (!(control->gfp_mask & __GFP_FS))
		return SHRINK_STOP;
	nofs = memalloc_nofs_save();
	released = nvj_shrink(s->nvj, control->nr_to_scan, &scanned);
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

static int start(struct nvjk_shrinker *s, const char *name)
{
	s->shrinker = shrinker_alloc(0, KBUILD_MODNAME "-images:%s", name);
	if (!s->shrinker)
		return -ENOMEM;
	s->shrinker->count_objects = count_objects;
	s->shrinker->scan_objects = scan_objects;
	s->shrinker->private_data = s;
	shrinker_register(s->shrinker);
	return 0;
}

static void stop(struct nvjk_shrinker *s)
{
	shrinker_free(s->shrinker);
}

#else

static unsigned long count_objects(struct shrinker *shrinker, struct shrink_control *control)
{
	return count(container_of(shrinker, struct nvjk_shrinker, shrinker));
}

static unsigned long scan_objects(struct shrinker *shrinker, struct shrink_control *control)
{
	return scan(container_of(shrinker, struct nvjk_shrinker, shrinker), control);
}

static int start(struct nvjk_shrinker *s, const char *name)
{
	s->shrinker.count_objects = count_objects;
	s->shrinker.scan_objects = scan_objects;
	s->shrinker.seeks = DEFAULT_SEEKS;
	return register_shrinker(&s->shrinker, KBUILD_MODNAME "-images:%s", name);
}

static void stop(struct nvjk_shrinker *s)
{
	unregister_shrinker(&s->shrinker);
}

#endif

int nvjk_shrinker_start(struct nvjk_shrinker **shrinker, struct nvj *nvj, const char *name)
{
	struct nvjk_shrinker *s = kzalloc(sizeof(*s), GFP_KERNEL);
	int error;

	if (!s)
		return -ENOMEM;
	s->nvj = nvj;
	error = start(s, name);
	if (error) {
		kfree(s);
		return error;
	}
	*shrinker = s;
	return 0;
}

void nvjk_shrinker_stop(struct nvjk_shrinker *shrinker)
{
	stop(shrinker);
	kfree(shrinker);
}
