// Package needs states what a test asks of the machine: root, a tool, a kernel
// feature. A missing need skips the test with the reason, so that `go test`
// is useful everywhere; with DAYBOOK_REQUIRE_ALL=1 (continuous integration)
// it fails instead, so that nothing is skipped unseen.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// That continues only if ok; reason says what is missing.
func That(t testing.TB, ok bool, reason string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("DAYBOOK_REQUIRE_ALL") == "1" {
		t.Fatalf("required here, but missing: %s", reason)
	}
	t.Skipf("needs %s", reason)
}

// Root continues only as root.
func Root(t testing.TB) {
	t.Helper()
	That(t, os.Geteuid() == 0, "root")
}

// Tool continues only if the program is on the PATH, and returns its path.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	That(t, err == nil, "the program "+name)
	return path
}
