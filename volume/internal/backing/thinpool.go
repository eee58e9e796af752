package backing

import (
	"context"
	"fmt"
	"strconv"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/records"
)

// ThinSpace is the space of a thin pool.
type ThinSpace struct {
	SizeBytes, FreeBytes, ChunkBytes uint64
}

// CheckThinSpace refuses a thin volume of so many bytes if its thin pool has no space for an
// empty file system; the error wraps ErrNoSpace. A thin pool may have volumes that are
// longer, together, than the pool: that a volume is longer than the free space is no error,
// and overcommits says so. A thick volume, and one in a pool that is not active, passes.
func CheckThinSpace(ctx context.Context, lv records.LogicalVolume, bytes uint64) (space ThinSpace, overcommits bool, err error) {
	if lv.ThinPool == "" {
		return space, false, nil
	}
	pool, err := lvm{}.find(ctx, records.LogicalVolume{VolumeGroup: lv.VolumeGroup, Name: lv.ThinPool})
	if err != nil || pool == nil || pool.DataPercent == "" {
		return space, false, err
	}
	name := lv.VolumeGroup + "/" + lv.ThinPool
	if problem, bad := poolProblems[pool.Health]; bad {
		return space, false, fmt.Errorf("%w: thin pool %s is %s", cause.ErrNoSpace, name, problem)
	}
	used, err := strconv.ParseFloat(pool.DataPercent, 64)
	if err != nil {
		return space, false, fmt.Errorf("thin pool %s: %q is no percentage", name, pool.DataPercent)
	}
	space = ThinSpace{SizeBytes: number(pool.Size), ChunkBytes: number(pool.ChunkSize)}
	space.FreeBytes = uint64(float64(space.SizeBytes) * max(0, 100-used) / 100)
	if need := space.emptyFileSystem(bytes); space.FreeBytes < need {
		return space, false, fmt.Errorf("%w: thin pool %s has %d of %d MiB free, and an empty file system of %d MiB takes up to %d MiB; extend the pool with lvextend",
			cause.ErrNoSpace, name, space.FreeBytes>>20, space.SizeBytes>>20, bytes>>20, need>>20)
	}
	return space, bytes > space.FreeBytes, nil
}

// emptyFileSystem is about what mke2fs writes to a device that reads as zeros, in whole
// chunks: the superblock, the descriptors of groups and the head of the journal, and bitmaps
// for each 16 groups of 128 MiB. A short volume takes no more than its size.
func (s ThinSpace) emptyFileSystem(bytes uint64) uint64 {
	const fixed, flexGroup = 4 << 20, 2 << 30
	return min(bytes, fixed+bytes/16384+s.ChunkBytes*(2+bytes/flexGroup))
}
