package blame

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFlushIsExpectedWhereADiskHasACache(t *testing.T) {
	for name, c := range map[string]struct {
		disks map[string][2]string // size and cache
		want  bool
	}{
		"no disk":                          {nil, false},
		"no cache":                         {map[string][2]string{"a": {"8", "write through"}}, false},
		"one of two":                       {map[string][2]string{"a": {"8", "write through"}, "b": {"8", "write back"}}, true},
		"a loop device without a file":     {map[string][2]string{"a": {"0", "write back"}}, false},
		"a disk that does not say what":    {map[string][2]string{"a": {"8", ""}}, true},
		"a disk that is removed meanwhile": {map[string][2]string{"a": {"", "write back"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			blockDirectory = dir
			defer func() { blockDirectory = "/sys/block" }()
			for disk, is := range c.disks {
				if err := os.MkdirAll(filepath.Join(dir, disk, "queue"), 0o700); err != nil {
					t.Fatal(err)
				}
				for at, file := range []string{"size", "queue/write_cache"} {
					if is[at] == "" {
						continue
					}
					if err := os.WriteFile(filepath.Join(dir, disk, file), []byte(is[at]+"\n"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got, err := anyWriteCache(); err != nil || got != c.want {
				t.Errorf("%t, %v; want %t", got, err, c.want)
			}
		})
	}
}
