package kernels

import "context"

// Need fetches a part by any pin, for tests.
func (s Store) Need(ctx context.Context, pin Pin, part Part) error { return s.need(ctx, pin, part) }
