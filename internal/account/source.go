package account

import "context"

// Source yields one Sample per interval: a live meter or a recorded file.
type Source interface {
	// Next blocks until the interval ends. io.EOF: no more samples.
	Next(ctx context.Context) (Sample, error)
	// Close releases what the source holds.
	Close() error
}
