package ext4

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// resize2fsThatFails puts a resize2fs into PATH that fails so many times with this message,
// and returns a function that tells how often it ran.
func resize2fsThatFails(t *testing.T, times int, message string) (runs func() int) {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho run >>%s/runs\n[ $(wc -l <%s/runs) -gt %d ] || { echo '%s' >&2; exit 1; }\n", dir, dir, times, message)
	if err := os.WriteFile(filepath.Join(dir, "resize2fs"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		text, err := os.ReadFile(filepath.Join(dir, "runs"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
}

func TestGrowIsTriedAgainWhereTheKernelWasChangingTheSuperblock(t *testing.T) {
	const changing = "resize2fs: Superblock checksum does not match superblock while trying to open /dev/loop0"
	for what, c := range map[string]struct {
		fails, runs int
		message     string
		works       bool
	}{
		"in the middle of two changes": {2, 3, changing, true},
		"damaged":                      {1000, growTries, changing, false},
		"another error":                {1, 1, "resize2fs: No space left on device", false},
	} {
		t.Run(what, func(t *testing.T) {
			runs := resize2fsThatFails(t, c.fails, c.message)
			err := Grow(t.Context(), "/dev/loop0", 1<<20)
			if (err == nil) != c.works || !c.works && !strings.Contains(err.Error(), c.message) {
				t.Errorf("%v", err)
			}
			if runs() != c.runs {
				t.Errorf("resize2fs ran %d times, want %d", runs(), c.runs)
			}
		})
	}
}
