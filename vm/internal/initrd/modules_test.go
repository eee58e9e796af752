package initrd

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// index returns the index of a small kernel, in depmod's format.
func index(t *testing.T) *moduleIndex {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"modules.dep": `kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko
kernel/fs/jbd2/jbd2.ko:
kernel/lib/crc16.ko:
kernel/drivers/a-b.ko: kernel/drivers/near.ko kernel/drivers/far.ko
kernel/drivers/near.ko: kernel/drivers/far.ko
kernel/drivers/far.ko:
kernel/crypto/crc32c_generic.ko:
kernel/crypto/crc32c-intel.ko:
`,
		"modules.softdep": "# comment\nsoftdep ext4 pre: crc32c\nsoftdep far post: near\n",
		"modules.alias":   "alias crypto-crc32c crc32c_generic\nalias crc32c crc32c_generic\nalias crc32c crc32c_intel\nalias fs-ext4 ext4\nalias pci:v*d* far\n",
		"modules.builtin": "kernel/drivers/char/virtio_console.ko\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x, err := readModuleIndex(dir)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestModulesAreLoadedAfterTheirDependencies(t *testing.T) {
	for wanted, want := range map[string]string{
		"ext4":               "crc32c_generic crc32c_intel crc16 jbd2 ext4",
		"fs-ext4":            "crc32c_generic crc32c_intel crc16 jbd2 ext4",
		"a-b":                "far near a_b",
		"a_b":                "far near a_b",
		"near,a-b,near":      "far near a_b",
		"virtio_console":     "",
		"virtio-console,far": "far",
	} {
		set, err := index(t).choose(strings.Split(wanted, ","))
		if err != nil {
			t.Errorf("%s: %v", wanted, err)
			continue
		}
		if got := strings.Join(set.order, " "); got != want {
			t.Errorf("%s: %s, want %s", wanted, got, want)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe.ko")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := index(t).choose([]string{pipe}); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := (Root{Agent: pipe}).Write(io.Discard); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a pipe as init: %v", err)
	}
	if _, err := index(t).choose([]string{"none"}); err == nil || !strings.Contains(err.Error(), `no module "none"`) {
		t.Errorf("%v", err)
	}
}

func TestTheIndexOfModulesIsInEachGuest(t *testing.T) {
	x := index(t)
	set, err := x.choose([]string{"ext4"})
	if err != nil {
		t.Fatal(err)
	}
	root := make(tree)
	if err := set.put(root, x, "1.2"); err != nil {
		t.Fatal(err)
	}
	want := `kernel/crypto/crc32c_generic.ko:
kernel/crypto/crc32c-intel.ko:
kernel/lib/crc16.ko:
kernel/fs/jbd2/jbd2.ko:
kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko
`
	if got := string(root["/lib/modules/1.2/modules.dep"].text); got != want {
		t.Errorf("modules.dep:\n%s", got)
	}
	if got := string(root["/lib/modules/1.2/modules.alias"].text); strings.Contains(got, "pci:") || !strings.Contains(got, "alias fs-ext4 ext4\n") {
		t.Errorf("modules.alias:\n%s", got)
	}
	if got, want := set.guestPaths("1.2")[2:], []string{"/lib/modules/1.2/kernel/lib/crc16.ko", "/lib/modules/1.2/kernel/fs/jbd2/jbd2.ko", "/lib/modules/1.2/kernel/fs/ext4/ext4.ko"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func TestFilesThatAreNotModules(t *testing.T) {
	text := filepath.Join(t.TempDir(), "x.ko")
	if err := os.WriteFile(text, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{text, self, "/no/such.ko"} {
		if _, err := index(t).choose([]string{file}); err == nil {
			t.Errorf("%s: no error", file)
		}
	}
}
