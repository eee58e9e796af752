package victimtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
)

// Stop stops a process by SIGSTOP, and waits until it has stopped. So it does nothing between the
// death of its child and its own.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaittest.Until(t, awaittest.Patience, fmt.Sprintf("process %d has stopped", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		return err != nil || strings.HasPrefix(state, "T")
	})
}
