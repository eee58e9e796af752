package records

import (
	"fmt"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
)

// A volume's size: at least what ext4 with a journal needs, at most what ext4
// and a file can have, in whole blocks.
const (
	MinSizeBytes = 16 << 20
	MaxSizeBytes = 16 << 40
)

// CheckSize says what is wrong with a volume's size in bytes. The error wraps
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

// Weights as BFQ on cgroup v1 has them; io.weight's range holds them all.
const (
	MinWeight = 1
	MaxWeight = 1000
)

// CheckWeight says what is wrong with a weight; 0 is none.
func CheckWeight(weight uint64) error {
	if weight > MaxWeight {
		return fmt.Errorf("%w weight: %d, want %d to %d", cause.ErrInvalid, weight, MinWeight, MaxWeight)
	}
	return nil
}
