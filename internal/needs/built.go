package needs

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Built builds a program of this repository, such as "daybook", and returns its path.
// It continues only if the program go is on the PATH.
func Built(t testing.TB, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.Command(Tool(t, "go"), "build", "-o", program, "github.com/daybook-project/daybook/cmd/"+name)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v: %s", name, err, output)
	}
	return program
}
