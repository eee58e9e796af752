package initrd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// The cpio program of the host reads the archive.
func TestArchiveIsReadByCPIO(t *testing.T) {
	cpio := needs.Tool(t, "cpio")
	dir := t.TempDir()
	host := filepath.Join(dir, "host")
	if err := os.WriteFile(host, []byte("of the host"), 0o750); err != nil {
		t.Fatal(err)
	}
	root := make(tree)
	for _, err := range []error{
		root.putDirectory("/usr/bin", 0o755),
		root.putLink("/bin", "usr/bin"),
		root.putText("/bin/a", 0o644, "text"),
		root.putText("/deep/er/empty", 0o600, ""),
		root.putFile("/bin/b", host),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var archive bytes.Buffer
	size, err := root.write(&archive)
	if err != nil || size != int64(archive.Len()) {
		t.Fatalf("%d bytes returned, %d written: %v", size, archive.Len(), err)
	}
	into := filepath.Join(dir, "into")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cpio, "-idm", "--no-absolute-filenames", "--quiet")
	cmd.Dir, cmd.Stdin = into, &archive
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := make(map[string]string)
	for _, name := range []string{"usr/bin/a", "usr/bin/b", "deep/er/empty"} {
		text, err := os.ReadFile(filepath.Join(into, name))
		info, statErr := os.Stat(filepath.Join(into, name))
		if err != nil || statErr != nil {
			t.Fatal(err, statErr)
		}
		got[name] = info.Mode().String() + " " + string(text)
	}
	want := map[string]string{"usr/bin/a": "-rw-r--r-- text", "usr/bin/b": "-rwxr-x--- of the host", "deep/er/empty": "-rw------- "}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if target, err := os.Readlink(filepath.Join(into, "bin")); err != nil || target != "usr/bin" {
		t.Errorf("%q, %v", target, err)
	}
}

func TestTreeFollowsItsLinks(t *testing.T) {
	root := make(tree)
	for link, target := range map[string]string{"/bin": "usr/bin", "/x": "/y", "/y": "/x"} {
		if err := root.putLink(link, target); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.putText("/bin/../bin/sh", 0o755, "first"); err != nil {
		t.Fatal(err)
	}
	if err := root.putText("/usr/bin/sh", 0o755, "second"); err != nil {
		t.Fatal(err)
	}
	if got := string(root["/usr/bin/sh"].text); got != "second" {
		t.Errorf("%q", got)
	}
	if err := root.putText("/x/file", 0, ""); err == nil || !strings.Contains(err.Error(), "too many links") {
		t.Errorf("a cycle of links: %v", err)
	}
	if err := root.putText("/usr/bin/sh/below", 0, ""); err == nil {
		t.Error("a file below a file")
	}
	if err := root.putText("/usr/bin", 0, ""); err == nil {
		t.Error("a file in place of a directory")
	}
}

func TestLibrariesOfAProgram(t *testing.T) {
	found, missing := parseList("\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\tlibgone.so.1 => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n")
	if want := []string{"/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !reflect.DeepEqual(found, want) || !reflect.DeepEqual(missing, []string{"libgone.so.1"}) {
		t.Errorf("%q, %q", found, missing)
	}
	shell, err := libraries("/bin/sh")
	if err != nil || !strings.Contains(strings.Join(shell, " "), "libc.so") {
		t.Errorf("/bin/sh needs %q, %v", shell, err)
	}
	if got, err := libraries("/etc/passwd"); err != nil || got != nil {
		t.Errorf("a text file needs %q, %v", got, err)
	}
	if _, err := libraries("/no/such"); err == nil {
		t.Error("no error for a missing file")
	}
}

func TestInvalidGivenFiles(t *testing.T) {
	for want, given := range map[string]Given{
		"no such program":             {Host: "no-such-program"},
		"no such file or directory":   {Host: "./no/such"},
		"must be absolute":            {Host: "/etc/passwd", Guest: "passwd"},
		"not a file, directory":       {Host: "/dev/null", Guest: "/null"},
		"file for the guest has no":   {},
		"as a directory and as a fil": {Host: "/etc/passwd", Guest: "/usr"},
		"the guest's own /sys":        {Host: "/etc/passwd", Guest: "/tmp/../sys/x"},
	} {
		root := make(tree)
		if err := skeleton(root, "h"); err != nil {
			t.Fatal(err)
		}
		if err := given.put(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", given, err, want)
		}
	}
}
