package vm_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

func TestGivenAndFetchedFiles(t *testing.T) {
	mke2fs := needs.Tool(t, "mke2fs")
	dir := t.TempDir()
	content := make([]byte, 20<<20+1)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	big := write("big", string(content), 0o640)
	script := write("tree/bin/script", "#!/bin/sh\necho from the tree\n", 0o755)
	write("tree/sub/empty", "", 0o600)
	if err := os.Symlink("bin/script", filepath.Join(dir, "tree/link")); err != nil {
		t.Fatal(err)
	}
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m := vmtest.Boot(t, vm.Config{
			Kernel: kernel,
			Disks:  []vm.Disk{{SizeBytes: 32 << 20}},
			Give:   []vm.Give{{Host: big, Guest: "/data/big"}, {Host: filepath.Dir(filepath.Dir(script)), Guest: "/tree"}, {Host: script}, {Host: "mkfs.ext4"}},
		})
		ctx := t.Context()
		for command, want := range map[string]string{
			"sha256sum /data/big | cut -d' ' -f1": fmt.Sprintf("%x", sha256.Sum256(content)),
			"stat -c %a /data/big":                "640",
			"/tree/link":                          "from the tree",
			"readlink /tree/link":                 "bin/script",
			script:                                "from the tree",
			"stat -c '%a %s' /tree/sub/empty":     "600 0",
			// A program of the host with its libraries, and not busybox's.
			"command -v mke2fs; command -v mkfs.ext4":                                               mke2fs + "\n" + filepath.Join(filepath.Dir(mke2fs), "mkfs.ext4"),
			"mkfs.ext4 -q -O journal_dev /dev/daybook/disk0; dumpe2fs -h /dev/vda 2>&1; echo done ": "*done",
			"mke2fs -V 2>&1": "*mke2fs 1.",
		} {
			out, err := m.Run(ctx, "sh", "-c", command)
			out = strings.TrimSpace(out)
			if pattern, found := strings.CutPrefix(want, "*"); found {
				if err != nil || !strings.Contains(out, pattern) {
					t.Errorf("%s: %q, %v; want %q in it", command, out, err, pattern)
				}
			} else if err != nil || out != want {
				t.Errorf("%s: %q, %v; want %q", command, out, err, want)
			}
		}
		t.Run("fetch", func(t *testing.T) { fetch(t, m, content) })
	})
}

func fetch(t *testing.T, m *vm.Machine, content []byte) {
	ctx, dir := t.Context(), t.TempDir()
	if err := m.Fetch(ctx, "/data/big", filepath.Join(dir, "copy")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "copy")); err != nil || string(got) != string(content) {
		t.Errorf("the file came back with %d bytes, not as it was; %v", len(got), err)
	}
	if err := m.Fetch(ctx, "/etc/hostname", dir); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "hostname")); err != nil || string(got) != "daybook-vm\n" {
		t.Errorf("into a directory: %q, %v", got, err)
	}
	if err := m.Fetch(ctx, "/proc/sys/kernel/osrelease", filepath.Join(dir, "release")); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "release")); string(got) != m.Kernel()+"\n" {
		t.Errorf("a file of /proc: %q", got)
	}
	if err := m.Fetch(ctx, "/tree", filepath.Join(dir, "tree")); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "tree/link")); err != nil || target != "bin/script" {
		t.Errorf("the link: %q, %v", target, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "tree/bin/script")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the script: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "tree/sub/empty")); err != nil || info.Size() != 0 {
		t.Errorf("the empty file: %v, %v", info, err)
	}
	if err := m.Fetch(ctx, "/none", filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "cannot fetch /none") {
		t.Errorf("what is not there: %v", err)
	}
	if err := m.Fetch(ctx, "/data/big", filepath.Join(dir, "no/such/dir")); err == nil {
		t.Error("to a directory that is not there: no error")
	}
	if _, err := m.Run(ctx, "true"); err != nil {
		t.Errorf("after a fetch that failed: %v", err)
	}
}
