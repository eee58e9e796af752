package records

import (
	"fmt"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
)

// Bounds of a volume's size: the least for an ext4 with a journal, and the largest ext4
// and file.
const (
	MinSizeBytes = 16 << 20
	MaxSizeBytes = 16 << 40
)

// CheckSize checks a volume's size in bytes. The error wraps
// cause.ErrInvalid.
func CheckSize(bytes uint64) error {
	switch {
	case bytes < MinSizeBytes:
		return fmt.Errorf("%w size: %d bytes, want at least %d (16 MiB)", cause.ErrInvalid, bytes, MinSizeBytes)
	case bytes > MaxSizeBytes:
		return fmt.Errorf("%w size: %d bytes, want at most %d (16 TiB)", cause.ErrInvalid, bytes, uint64(MaxSizeBytes))
	case bytes%chunk.UnitBytes != 0:
		return fmt.Errorf("%w size: %d bytes, want a multiple of %d", cause.ErrInvalid, bytes, chunk.UnitBytes)
	}
	return nil
}

// Bounds of weights: those of BFQ on cgroup v1, which io.weight accepts, too.
const (
	MinWeight = 1
	MaxWeight = 1000
)

// CheckWeight checks a weight; 0 is none.
func CheckWeight(weight uint64) error {
	if weight > MaxWeight {
		return fmt.Errorf("%w weight: %d, want %d to %d", cause.ErrInvalid, weight, MinWeight, MaxWeight)
	}
	return nil
}
