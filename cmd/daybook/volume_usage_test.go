package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/volume"
)

func TestWrongVolumesAreUsageErrors(t *testing.T) {
	s := newShelf(t)
	pool := s.path("pool")
	s.must("create", "there", "--pool", pool, "--size", "16M")
	long := strings.Repeat("a", 300)
	for _, words := range [][]string{
		{"create"},
		{"create", "a"},
		{"create", "a", "b", "--size", "16M"},
		{"create", "", "--size", "16M"},
		{"create", "..", "--size", "16M"},
		{"create", ".a", "--size", "16M"},
		{"create", "a/b", "--size", "16M"},
		{"create", "/a", "--size", "16M"},
		{"create", "a\n", "--size", "16M"},
		{"create", "ä", "--size", "16M"},
		{"create", long, "--size", "16M"},
		{"create", "a", "--size", "0"},
		{"create", "a", "--size", "-1G"},
		{"create", "a", "--size", "15M"},
		{"create", "a", "--size", "16777217"},
		{"create", "a", "--size", "17T"},
		{"create", "a", "--size", "16777216T"},
		{"create", "a", "--size", "18446744073709551616"},
		{"create", "a", "--size", "99999999999999999999999G"},
		{"create", "a", "--size", "NaN"},
		{"create", "a", "--size", ""},
		{"create", "a", "--size", "16M", "--provision", "fat"},
		{"create", "a", "--size", "16M", "--backing", "cloud"},
		{"create", "a", "--size", "16M", "--backing", ""},
		{"create", "a", "--size", "16M", "--backing", "lvm"},
		{"create", "a", "--size", "16M", "--backing", "device"},
		{"create", "a", "--backing", "lvm", "--volume-group", "vg0"},
		{"create", "a", "--size", "16M", "--backing", "lvm", "--volume-group", ""},
		{"create", "a", "--size", "16M", "--backing", "lvm", "--volume-group", "a/b"},
		{"create", "a", "--size", "16M", "--backing", "lvm", "--volume-group", "vg0", "--thin-pool", "-x"},
		{"create", "a", "--size", "16M", "--backing", "lvm", "--volume-group", "vg0", "--provision", "thin"},
		{"create", "a", "--backing", "lvm", "--volume-group", "vg0", "--device", "/dev/null"},
		{"create", "a", "--size", "16M", "--volume-group", "vg0"},
		{"create", "a", "--size", "16M", "--thin-pool", "tp"},
		{"create", "a", "--backing", "image", "--device", "/dev/null"},
		{"create", "a", "--size", "16M", "--provision", ""},
		{"create", "a", "--size", "16M", "--weight", "0"},
		{"create", "a", "--size", "16M", "--weight", "1001"},
		{"create", "a", "--size", "16M", "--weight", "-1"},
		{"create", "a", "--size", "16M", "--label", "novalue"},
		{"create", "a", "--size", "16M", "--label", "=v"},
		{"create", "a", "--size", "16M", "--label", "k=1", "--label", "k=2"},
		{"create", "a", "--size", "16M", "--label", "k=" + strings.Repeat("v", 2000)},
		{"create", "a", "--size", "16M", "--owner", "root:root"},
		{"create", "a", "--size", "16M", "--owner", "1"},
		{"create", "a", "--size", "16M", "--owner", "4294967296:0"},
		{"create", "a", "--size", "16M", "--mode", "0"},
		{"create", "a", "--size", "16M", "--mode", "4755"},
		{"create", "a", "--size", "16M", "--mode", "rwx"},
		{"create", "a", "--size", "16M", "--block-size", "8K"},
		{"create", "a", "--size", "16M", "--block-size", "0"},
		{"create", "a", "--size", "16M", "--block-size", "4294971392"},
		{"create", "a", "--size", "16M", "--inode-size", "100"},
		{"create", "a", "--size", "16M", "--inode-size", "2048", "--block-size", "1K"},
		{"create", "a", "--size", "16M", "--journal-size", "1500K"},
		{"create", "a", "--size", "16M", "--journal-size", "1M"},
		{"create", "a", "--size", "16M", "--journal-size", "0"},
		{"create", "a", "--size", "16M", "--journal-size", "16M"},
		{"create", "a", "--size", "16M", "--bytes-per-inode", "1"},
		{"attach", "there"},
		{"attach", "there", "--target", ""},
		{"attach", "there", "--persist"},
		{"attach", "there", "--target", s.path("m"), "--persist", "--placement", "container", "--cgroup", "/a"},
		{"attach", "there", "--target", s.path("pool"), "--persist"},
		{"attach", "there", "--all-persistent"},
		{"attach", "--all-persistent", "--target", s.path("m")},
		{"attach", "--all-persistent", "--persist"},
		{"attach", "--all-persistent", "--wait", "-1s"},
		{"attach", "there", "--target", s.path("m"), "--wait", "1s"},
		{"attach", "there", "--target", "/"},
		{"attach", "there", "--target", s.path("m"), "--placement", "beside"},
		{"attach", "there", "--target", s.path("m"), "--placement", "container"},
		{"attach", "there", "--target", s.path("m"), "--placement", "none", "--cgroup", "/a"},
		{"attach", "there", "--target", s.path("m"), "--cgroup", ""},
		{"attach", "there", "--target", s.path("m"), "--cgroup", "relative"},
		{"attach", "there", "--target", s.path("m"), "--cgroup", "/a/../b"},
		{"attach", "there", "--target", s.path("m"), "--weight", "0"},
		{"attach", "there", "--target", s.path("m"), "--weight", "2000"},
		{"attach", "none", "--target", s.path("m")},
		{"detach"},
		{"detach", "none"},
		{"detach", "../there"},
		{"inspect", "none"},
		{"inspect", long},
		{"inspect", "there", "--pool", ""},
		{"inspect", "there", "--pool", s.path("nowhere")},
		{"inspect", "there", "--pool", "/proc/self/mem"},
		{"inspect", "there", "--state-dir", "relative"},
		{"list", "there"},
		{"list", "--pool", s.path("nowhere")},
		{"snapshot", "there"},
		{"snapshot", "there", "a/b"},
		{"snapshot", "there", long},
		{"snapshot", "none", "a"},
		{"clone", "there"},
		{"clone", "there", "there"},
		{"clone", "there", "a/b"},
		{"clone", "there", "b", "--snapshot", "none"},
		{"clone", "there", "b", "--snapshot", ""},
		{"clone", "there", "b", "--weight", "0"},
		{"clone", "there", "b", "--label", "k"},
		{"resize", "there"},
		{"resize", "there", "--size", "0"},
		{"resize", "there", "--size", "-2G"},
		{"resize", "there", "--size", "16777216T"},
		{"resize", "none", "--size", "32M"},
		{"trim", "none"},
		{"send"},
		{"send", "there", "a", "b", "--output", s.path("stream")},
		{"send", "there", "a/b", "--output", s.path("stream")},
		{"send", "none", "--output", s.path("stream")},
		{"send", "there", "none", "--output", s.path("stream")},
		{"send", "there", "a", "--base", ""},
		{"send", "there", "a", "--output", ""},
		{"receive", "a", "--input", s.path("nowhere")},
		{"check", "none"},
		{"check", "there", "--snapshot", ""},
		{"check", "there", "--snapshot", "none"},
		{"check", "there", "--repair", "--snapshot", "a"},
		{"repair", "there"},
		{"repair", "--pool", s.path("nowhere")},
		{"delete"},
		{"delete", "none"},
		{"delete", "there", "--snapshot", ""},
		{"delete", "there", "--snapshot", "none"},
		{"delete", "there", "--snapshot", "a", "--damaged"},
		{"keep", "there"},
		{"keep", "--pool", s.path("nowhere")},
		{"pool", "there"},
		{"pool", "--quota", "-1"},
		{"pool", "--pool", s.path("nowhere")},
		{"creat"},
	} {
		s.fails(exitUsage, words...)
	}
	if _, err := os.Stat(s.path("stream")); err == nil {
		t.Error("half a stream was left")
	}
	if _, err := os.Stat(s.path("nowhere")); err == nil {
		t.Error("a pool was made by a command that was wrong")
	}
	if _, err := os.Stat(s.path("state", "volumes")); err == nil {
		t.Error("the default pool was made by a command that was wrong")
	}
	// Nothing was lost.
	var v inspected
	if s.json(&v, "inspect", "there"); v.SizeBytes != 16<<20 {
		t.Errorf("the volume is %+v", v)
	}
	var listed struct{ Volumes []inspected }
	if s.json(&listed, "list"); len(listed.Volumes) != 1 {
		t.Errorf("volumes were made: %+v", listed)
	}
}

func TestVolumesWantRoot(t *testing.T) {
	s := newShelf(t)
	runtime.LockOSThread()
	// Of this thread alone, on which the command runs.
	keep := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 65534, keep); errno != 0 {
		t.Fatal(errno)
	}
	var errs []error
	for _, words := range [][]string{{"list"}, {"create", "a", "--size", "16M"}, {"repair"}, {"keep"}} {
		errs = append(errs, s.fails(exitUnsupported, words...))
	}
	wrong := s.fails(exitUsage, "create", "a", "--size", "0")
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); errno != 0 {
		t.Fatal(errno) // the thread stays locked, and ends with the test
	}
	runtime.UnlockOSThread()
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "root") {
			t.Errorf("the error is %v", err)
		}
	}
	if wrong == nil || strings.Contains(wrong.Error(), "root") {
		t.Errorf("a wrong size: %v", wrong)
	}
}

func TestOwnersAndModesAreParsed(t *testing.T) {
	if uid, gid, err := parseOwner("999:4294967295"); err != nil || uid != 999 || strconv.FormatUint(uint64(gid), 10) != "4294967295" {
		t.Errorf("%d:%d, %v", uid, gid, err)
	}
	for text, want := range map[string]os.FileMode{"0755": 0o755, "700": 0o700, "1777": os.ModeSticky | 0o777, "2770": os.ModeSetgid | 0o770} {
		if got, err := volume.ParseMode(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestNamesOfVolumesAreCompleted(t *testing.T) {
	s := newShelf(t)
	s.must("create", "db-one", "--size", "32M", "--pool", s.path("pool"))
	s.must("snapshot", "db-one", "monday")
	for _, c := range []struct{ words, want string }{
		{"detach", "db-one\tin " + s.path("pool")},
		{"send db-one", "monday"},
		{"delete db-one --snapshot", "monday"},
		{"create x --provision", "full"},
		{"attach db-one --placement", "container"},
	} {
		words := append([]string{"__complete", "volume", "--state-dir", s.path("state")}, append(strings.Fields(c.words), "")...)
		if out, err := execute(t, words...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.words, out, err, c.want)
		}
	}
}
