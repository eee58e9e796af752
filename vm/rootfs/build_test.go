package rootfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/internal/cache"
)

// The program that mounts is replaced by one that tells its mount namespace.
func TestMountsOfTheBuildAreNotThoseOfTheHost(t *testing.T) {
	needs.Root(t)
	tools, tree := t.TempDir(), filepath.Join(t.TempDir(), "root")
	const script = "#!/bin/sh\nfor list; do :; done\nreadlink /proc/self/ns/mnt >\"${list%/list}/namespace\"\n"
	if err := os.WriteFile(filepath.Join(tools, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	if err := install(t.Context(), cache.Tools{}, tree, filepath.Join(tree, "list"), filepath.Join(tree, "conf"), packages); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(tree, "namespace"))
	if err != nil {
		t.Fatal(err)
	}
	if own, err := os.Readlink("/proc/self/ns/mnt"); err != nil || own+"\n" == string(got) {
		t.Errorf("mmdebstrap runs in the mount namespace %s of its caller, %v", own, err)
	}
}

func TestOnlySourcesOfDebianAreUsed(t *testing.T) {
	const other = "Packages|Other|Other||http://other.example/debian\n"
	const targets = other +
		"Translations|Debian|Debian||http://a.example/debian\n" +
		"Packages|Debian|Debian|$(SIGNED_BY)|http://b.example/debian\n" +
		"Packages|Debian|Debian|$(SIGNED_BY)|http://c.example/debian\n" +
		"Packages|Debian|Debian-Security|/usr/share/keyrings/k.gpg|http://b.example/debian-security\n"
	const want = "deb http://b.example/debian " + Suite + " main\n" +
		"deb [signed-by=/usr/share/keyrings/k.gpg] http://b.example/debian-security " + Suite + "-security main\n"
	if got, err := sourcesOf(targets); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err := sourcesOf(other); err == nil {
		t.Errorf("without Debian: %q", got)
	}
}
