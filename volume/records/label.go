package records

import (
	"fmt"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// Bounds of labels.
const (
	maxLabels     = 64
	MaxLabelBytes = 1024
)

// CheckLabels refuses too many labels, or too long ones. The error wraps
// cause.ErrInvalid.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%w labels: %d, at most %d", cause.ErrInvalid, len(labels), maxLabels)
	}
	for key, value := range labels {
		if key == "" || len(key)+len(value) > MaxLabelBytes {
			return fmt.Errorf("%w label %.20q: want a key, and at most %d bytes in all", cause.ErrInvalid, key, MaxLabelBytes)
		}
	}
	return nil
}
