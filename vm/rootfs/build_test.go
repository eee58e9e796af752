package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	archives := filepath.Join(t.TempDir(), "archives")
	if err := install(t.Context(), cache.Tools{}, tree, filepath.Join(tree, "list"), filepath.Join(tree, "conf"), archives, packages, t.Logf); err != nil {
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

// mmdebstrap is replaced by a script that downloads one more file at each attempt, into
// the directory that its set-up hook mounts, and succeeds with the third.
func TestARefusedDownloadIsTriedAgainWithoutWhatIsThere(t *testing.T) {
	needs.Root(t)
	pause = 0
	t.Cleanup(func() { pause = 10 * time.Second })
	dir := t.TempDir()
	const script = `#!/bin/sh
for word; do case $word in --setup-hook=*) hook=${word#--setup-hook=};; esac; done
for list; do :; done
root=${list%/list}/root
sh -c "$hook" hook "$root" || exit 2
cd "$root/var/cache/apt/archives" || exit 2
files=$(ls -d *.deb 2>/dev/null | wc -l)
[ "$files" = "$(cat "${list%/list}/wanted")" ] && exit 0
touch "$files.deb"
echo "Get:1 http://a.example bookworm/main amd64 Packages
Err:2 http://a.example bookworm/main amd64 systemd amd64 252
  429  Too Many Requests
E: Failed to fetch http://a.example/systemd.deb  429  Too Many Requests
E: mmdebstrap failed to run" >&2
exit 25
`
	if err := os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	archives := filepath.Join(dir, "it's archives")
	run := func(wanted string) (said []string, err error) {
		if err := os.WriteFile(filepath.Join(dir, "wanted"), []byte(wanted), 0o644); err != nil {
			t.Fatal(err)
		}
		err = install(t.Context(), cache.Tools{}, filepath.Join(dir, "root"), filepath.Join(dir, "list"), "conf", archives, packages,
			func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		return said, err
	}
	said, err := run("5")
	if err == nil || len(said) != attempts-1 || !strings.Contains(err.Error(), "attempt 4 of 4") || !strings.Contains(err.Error(), "systemd.deb  429  Too Many Requests") ||
		strings.Contains(err.Error(), "Get:1") {
		t.Errorf("%v after %q", err, said)
	}
	// The next command goes on with the four files of the one that failed.
	if said, err := run("5"); err != nil || len(said) != 1 {
		t.Errorf("%v after %q", err, said)
	}
	if _, err := os.Stat(archives); !os.IsNotExist(err) {
		t.Errorf("the downloaded packages are left: %v", err)
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
