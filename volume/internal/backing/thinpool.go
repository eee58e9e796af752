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
	// MetadataBytes is the size of its metadata, MetadataFreeBytes what the kernel lets
	// volumes use of it.
	MetadataBytes, MetadataFreeBytes uint64
}

// CheckThinSpace refuses so many bytes more of file system, of a thin volume that is created,
// cloned, received or made longer, if its thin pool has no space for the tables of the file
// system, or for the metadata of their blocks; the error wraps ErrNoSpace. A thin pool may have
// volumes that are longer, together, than the pool: that the bytes are more than the free space
// is no error, and overcommits says so. A thick volume, and one in a pool that is not active,
// passes. zeros are bytes of inode tables and journal that are written although they are zeros.
func CheckThinSpace(ctx context.Context, lv records.LogicalVolume, bytes, zeros uint64) (space ThinSpace, overcommits bool, err error) {
	if lv.ThinPool == "" {
		return space, false, nil
	}
	pool, err := lvm{}.find(ctx, records.LogicalVolume{VolumeGroup: lv.VolumeGroup, Name: lv.ThinPool})
	if err != nil || pool == nil {
		return space, false, err
	}
	name := lv.VolumeGroup + "/" + lv.ThinPool
	if problem, bad := pool.poolProblem(); bad {
		return space, false, fmt.Errorf("%w: thin pool %s is %s", cause.ErrNoSpace, name, problem)
	}
	if pool.DataPercent == "" {
		return space, false, nil
	}
	if space, err = pool.thinSpace(); err != nil {
		return space, false, fmt.Errorf("thin pool %s: %w", name, err)
	}
	need := space.tables(bytes, zeros)
	if space.FreeBytes < need {
		return space, false, fmt.Errorf("%w: thin pool %s has %d of %d MiB free, and the tables of a file system of %d MiB take up to %d MiB; extend the pool with lvextend",
			cause.ErrNoSpace, name, space.FreeBytes>>20, space.SizeBytes>>20, bytes>>20, need>>20)
	}
	if mapping := space.metadata(need); space.MetadataFreeBytes < mapping {
		return space, false, fmt.Errorf("%w: thin pool %s has %d of %d KiB of metadata free, and the tables of a file system of %d MiB take up to %d KiB; extend it with lvextend --poolmetadatasize",
			cause.ErrNoSpace, name, space.MetadataFreeBytes>>10, space.MetadataBytes>>10, bytes>>20, mapping>>10)
	}
	return space, bytes > space.FreeBytes, nil
}

// thinSpace is the space of an active thin pool.
func (f found) thinSpace() (ThinSpace, error) {
	space := ThinSpace{SizeBytes: number(f.Size), ChunkBytes: number(f.ChunkSize), MetadataBytes: number(f.MetadataSize)}
	for _, part := range []struct {
		percent     string
		size, free  *uint64
		keptPercent float64
	}{
		{f.DataPercent, &space.SizeBytes, &space.FreeBytes, 0},
		{f.MetadataPercent, &space.MetadataBytes, &space.MetadataFreeBytes, metadataKeptPercent},
	} {
		used, err := strconv.ParseFloat(part.percent, 64)
		if err != nil {
			return space, fmt.Errorf("%q is no percentage", part.percent)
		}
		*part.free = uint64(float64(*part.size) * max(0, 100-part.keptPercent-used) / 100)
	}
	return space, nil
}

// metadataKeptPercent is what the kernel keeps free of the metadata of a thin pool, at most: it
// makes the pool read-only before (dm-thin-metadata.c, __set_metadata_reserve).
const metadataKeptPercent = 10

// tables is about what mke2fs writes, in whole chunks: the superblock, the descriptors of
// groups and the head of the journal, bitmaps for each 16 groups of 128 MiB, and zeros. A short
// volume takes no more than its size.
func (s ThinSpace) tables(bytes, zeros uint64) uint64 {
	const fixed, flexGroup = 4 << 20, 2 << 30
	return min(bytes, fixed+bytes/16384+s.ChunkBytes*(2+bytes/flexGroup)+zeros)
}

// metadata is at least what the metadata of so many new bytes takes: an entry of 16 bytes for
// each chunk, in blocks that are half full, and copies of the blocks above.
func (s ThinSpace) metadata(bytes uint64) uint64 {
	const fixed, entry = 64 << 10, 32
	return fixed + entry*bytes/max(1, s.ChunkBytes)
}
