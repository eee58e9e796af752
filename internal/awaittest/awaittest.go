// Package awaittest waits in tests for what other processes or the kernel do.
package awaittest

import (
	"testing"
	"time"
)

// Patience is long enough for anything on a busy host, also if it is stopped for a while.
const Patience = 2 * time.Minute

// Until waits until ok returns true. It calls ok every 2 ms for Patience, so that a state
// of short duration is noticed, and less often for a longer patience. When that is over,
// the test fails; what describes the awaited state.
func Until(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(patience / 60000) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v without success: %s", patience, what)
		}
	}
}
