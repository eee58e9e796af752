package vmtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/kernels"
)

// initFor returns the init of a guest: "" for this test binary. A kernel for another
// architecture gets the test binary of this package for that one, which is built now. go
// test runs tests in the directory of their package.
func initFor(t *testing.T, kernel string) (string, error) {
	pin, err := kernels.Find(kernel)
	if err != nil || pin.Arch() == kernels.AMD64 {
		return "", err
	}
	binary := filepath.Join(t.TempDir(), "test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH="+pin.Arch(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build this test for %s: %w\n%s", pin.Arch(), err, strings.TrimSpace(string(text)))
	}
	return binary, nil
}
