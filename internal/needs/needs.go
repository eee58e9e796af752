// Package needs checks the requirements of a test: root, a tool, a kernel
// feature. A missing requirement skips the test with the reason, so that `go
// test` works everywhere. With DAYBOOK_REQUIRE_ALL=1 (continuous integration)
// the test fails instead, so that no test is skipped silently.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// That continues only if ok is true; reason names the missing requirement.
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
