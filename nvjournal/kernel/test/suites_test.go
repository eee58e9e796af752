package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// Loads of other projects: each runs to its end without an error, and leaves a
// sound volume. pjdfstest must give the same result for each of its tests as on
// stock ext4 in the same guest.
func TestSuites(t *testing.T) {
	vmtest.Long(t)
	config := vmtest.Config{}
	if !vmtest.Inside() {
		for _, name := range []string{"stress-ng", "dbench", "fs_mark"} {
			needs.Tool(t, name)
			config.Give = append(config.Give, name)
		}
		config.Give = append(config.Give, "/usr/share/dbench/client.txt", built(t, "../../build/suites/bin/pjdfstest", "suites")+":/usr/bin/pjdfstest")
	}
	inGuest(t, config, func(t *testing.T) {
		addUsers(t)
		var ofStock map[string]string
		for _, s := range systems(stock, one, eight) {
			t.Run(s.name, func(t *testing.T) {
				t.Run("pjdfstest", func(t *testing.T) {
					if !chosen("pjdfstest") {
						return
					}
					results := pjdfstest(t, s)
					if s == stock {
						ofStock = results
					}
					if ofStock != nil && s.ours() {
						sameResults(t, ofStock, results)
					}
				})
				if chosen("links") {
					t.Run("links", func(t *testing.T) { mostLinks(t, s) })
				}
				for _, load := range [][]string{
					{"stress-ng", "--temp-path", "DIR", "--timeout", "30s", "--verify", "--oom-avoid", "--hdd", "1", "--hdd-bytes", "8M", "--dir", "1", "--rename", "1",
						"--link", "1", "--symlink", "1", "--fallocate", "1", "--fallocate-bytes", "8M", "--xattr", "1", "--dentry", "1", "--iomix", "1", "--iomix-bytes", "8M", "--dirdeep", "1", "--utime", "1"},
					{"dbench", "-c", "/usr/share/dbench/client.txt", "-D", "DIR", "-t", "20", "3"},
					{"dbench", "-c", "/usr/share/dbench/client.txt", "-D", "DIR", "-t", "20", "-S", "-x", "2"},
					{"fs_mark", "-d", "DIR", "-n", "1000", "-s", "5000", "-t", "3", "-S", "1", "-k", "-l", "/tmp/fs_mark.log"},
				} {
					if chosen(load[0]) {
						t.Run(load[0], func(t *testing.T) { foreign(t, s, load) })
					}
				}
			})
		}
	})
}

// As TestSuites, for JFS: pjdfstest gives the same result for each of its tests as on
// stock JFS in the same guest.
func TestGuestJFSSuites(t *testing.T) {
	vmtest.Long(t)
	config := vmtest.Config{}
	if !vmtest.Inside() {
		for _, name := range []string{"dbench", "fs_mark"} {
			needs.Tool(t, name)
			config.Give = append(config.Give, name)
		}
		config.Give = append(config.Give, "/usr/share/dbench/client.txt", built(t, "../../build/suites/bin/pjdfstest", "suites")+":/usr/bin/pjdfstest")
	}
	inJFSGuest(t, config, func(t *testing.T) {
		addUsers(t)
		var ofStock map[string]string
		for _, s := range systems(allJFS...) {
			t.Run(s.name, func(t *testing.T) {
				if chosen("pjdfstest") {
					t.Run("pjdfstest", func(t *testing.T) {
						results := pjdfstest(t, s)
						if ofStock == nil {
							ofStock = results
						}
						sameResults(t, ofStock, results)
					})
				}
				for _, load := range [][]string{
					{"dbench", "-c", "/usr/share/dbench/client.txt", "-D", "DIR", "-t", "20", "3"},
					{"fs_mark", "-d", "DIR", "-n", "1000", "-s", "5000", "-t", "3", "-S", "1", "-k", "-l", "/tmp/fs_mark.log"},
				} {
					if chosen(load[0]) {
						t.Run(load[0], func(t *testing.T) { foreign(t, s, load) })
					}
				}
			})
		}
	})
}

// foreign runs a load on its own volume; DIR is its directory.
func foreign(t *testing.T, s system, load []string) {
	v := s.make(t, plan{})
	args := append([]string(nil), load[1:]...)
	for n, a := range args {
		if a == "DIR" {
			args[n] = v.dir
		}
	}
	must(t, load[0], args...)
	v.end(nil)
}

// mostLinks makes as many links as ext4 allows, and one more.
func mostLinks(t *testing.T, s system) {
	const most = 65000
	v := s.make(t, plan{})
	first := filepath.Join(v.dir, "first")
	if err := os.WriteFile(first, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < most; n++ {
		if err := os.Link(first, filepath.Join(v.dir, fmt.Sprint(n))); err != nil {
			t.Fatalf("link %d: %v", n+1, err)
		}
	}
	if err := os.Link(first, filepath.Join(v.dir, "more")); !errors.Is(err, unix.EMLINK) {
		t.Errorf("link %d: %v", most+1, err)
	}
	v.unmount()
	v.fsck()
}

// addUsers makes the users that pjdfstest runs as.
func addUsers(t *testing.T) {
	for path, text := range map[string]string{
		"/etc/passwd": "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\ntests:x:977:977::/:/bin/sh\n",
		"/etc/group":  "root:x:0:\nnobody:x:65534:\ntests:x:977:\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// pjdfstestResult is a test of pjdfstest and its result.
var pjdfstestResult = regexp.MustCompile(`(?m)^(?:pjdfstest::tests::)?([a-z0-9_]+(?:::[a-z0-9_]+)+)\s+(.*)$`)

// pjdfstest runs it, and gives the result of each test.
func pjdfstest(t *testing.T, s system) map[string]string {
	v := s.make(t, plan{})
	for path := v.dir; path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	configuration := filepath.Join(t.TempDir(), "pjdfstest.toml")
	if err := os.WriteFile(configuration, []byte("[features]\nposix_fallocate = {}\nutime_now = {}\nutimensat = {}\n[settings]\nnaptime = 0.02\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run("pjdfstest", "-c", configuration, "-p", v.dir)
	results := map[string]string{}
	for _, m := range pjdfstestResult.FindAllStringSubmatch(out, -1) {
		results[m[1]] = m[2]
	}
	if len(results) < 200 {
		t.Fatalf("%d results: %v:\n%s", len(results), err, out)
	}
	counts := map[string]int{}
	for _, r := range results {
		counts[r]++
	}
	t.Logf("%v; it says %v", counts, err)
	v.end(nil)
	return results
}

// byTypeName asks the C library how many links a file may have. It knows ext4 only
// by its name, and takes ours for ext3: 32000. On both it is 65000.
const byTypeName = "link::link_count_max"

func sameResults(t *testing.T, want, got map[string]string) {
	for name, w := range want {
		if name == byTypeName {
			continue
		}
		if got[name] != w {
			t.Errorf("%s: %q, on stock ext4 %q", name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d results, on stock ext4 %d", len(got), len(want))
	}
}
