package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/statusline"
	"github.com/daybook-project/daybook/volume"
)

// shelf is a place for pools, mount points and the list of known pools, and
// names that nobody else has. When the test ends, nothing of it is left.
type shelf struct {
	t    *testing.T
	dir  string
	name string
}

var shelves atomic.Int32

func newShelf(t *testing.T) *shelf {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	_, err := os.Stat("/dev/loop-control")
	needs.That(t, err == nil, "/dev/loop-control")
	_, err = cgroup.Find()
	needs.That(t, err == nil, fmt.Sprintf("a cgroup hierarchy with block I/O: %v", err))
	t.Setenv(poolVariable, "")
	dir, err := os.MkdirTemp("", "daybook-cli-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{t: t, dir: dir, name: fmt.Sprintf("dbcli%d-%d", os.Getpid(), shelves.Add(1))}
	t.Cleanup(s.clear)
	return s
}

// clear detaches and removes all, and says what should not have been left.
func (s *shelf) clear() {
	for _, dir := range []string{"pool", "other", "state/volumes"} {
		pool, err := volume.Open(context.Background(), s.path(dir), volume.PoolOptions{})
		if err != nil {
			continue
		}
		names, _ := pool.Names()
		for _, name := range names {
			// A container that is being started anywhere on this host holds
			// every mount for a moment.
			err := pool.Detach(context.Background(), name)
			for deadline := time.Now().Add(awaittest.Patience); errors.Is(err, volume.ErrBusy) && time.Now().Before(deadline); {
				time.Sleep(50 * time.Millisecond)
				err = pool.Detach(context.Background(), name)
			}
			if err != nil {
				s.t.Error(err)
			}
		}
	}
	for _, line := range kernelLines(s.t, "/proc/self/mountinfo") {
		if strings.Contains(line, s.dir+"/") {
			s.t.Errorf("left mounted: %s", line)
		}
	}
	loops, err := blockdev.Loops()
	if err != nil {
		s.t.Error(err)
	}
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, s.dir+"/") {
			s.t.Errorf("left attached: %s", loop.Path())
			_ = loop.DetachLazily()
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Error(err)
	}
}

func (s *shelf) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// run runs "daybook volume ..." with its list of known pools here.
func (s *shelf) run(words ...string) (string, error) {
	s.t.Helper()
	return execute(s.t, append([]string{"volume", "--state-dir", s.path("state")}, words...)...)
}

// must runs a command that has to succeed.
func (s *shelf) must(words ...string) string {
	s.t.Helper()
	out, err := s.run(words...)
	if err != nil {
		s.t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return out
}

// json runs a command with --json and decodes what it prints.
func (s *shelf) json(into any, words ...string) {
	s.t.Helper()
	out := s.must(append(words, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.t.Fatalf("%s: %v in %s", strings.Join(words, " "), err, out)
	}
}

// fails runs a command that has to end with an exit code.
func (s *shelf) fails(code int, words ...string) error {
	s.t.Helper()
	out, err := s.run(words...)
	if exitCode(err) != code || err == nil {
		s.t.Errorf("%s: exit code %d (%v), want %d; it printed %q", strings.Join(words, " "), exitCode(err), err, code, out)
	}
	return err
}

func kernelLines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// inspected is the part of inspect --json that the contract names.
type inspected struct {
	Name           string   `json:"name"`
	Pool           string   `json:"pool"`
	LoopDevice     string   `json:"loop_device"`
	DirectIO       bool     `json:"direct_io"`
	Mountpoint     string   `json:"mountpoint"`
	JBD2PID        int      `json:"jbd2_pid"`
	JournalCgroup  string   `json:"journal_cgroup"`
	SizeBytes      uint64   `json:"size_bytes"`
	AllocatedBytes uint64   `json:"allocated_bytes"`
	Snapshots      []string `json:"snapshots"`
	Placed         bool     `json:"placed"`
}

// agreesWithTheKernel checks each field of an attached volume.
func (v inspected) agreesWithTheKernel(t *testing.T) {
	t.Helper()
	image := filepath.Join(v.Pool, "volumes", v.Name, "image")
	var st unix.Stat_t
	if err := unix.Stat(image, &st); err != nil {
		t.Fatal(err)
	}
	if uint64(st.Size) != v.SizeBytes || uint64(st.Blocks)*512 != v.AllocatedBytes {
		t.Errorf("the image has %d bytes, %d allocated; inspect says %d and %d", st.Size, st.Blocks*512, v.SizeBytes, v.AllocatedBytes)
	}
	fd, err := unix.Open(v.LoopDevice, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("loop_device %q: %v", v.LoopDevice, err)
	}
	defer unix.Close(fd)
	info, err := unix.IoctlLoopGetStatus64(fd)
	if err != nil {
		t.Fatal(err)
	}
	if info.Inode != st.Ino {
		t.Errorf("%s has inode %d, the image is %d", v.LoopDevice, info.Inode, st.Ino)
	}
	if direct := info.Flags&unix.LO_FLAGS_DIRECT_IO != 0; direct != v.DirectIO {
		t.Errorf("direct_io is %v, the kernel says %v", v.DirectIO, direct)
	}
	mounted := false
	for _, line := range kernelLines(t, "/proc/self/mountinfo") {
		before, after, _ := strings.Cut(line, " - ")
		if strings.Fields(before)[4] == v.Mountpoint {
			mounted = strings.HasPrefix(after, "ext4 "+v.LoopDevice+" ")
		}
	}
	if !mounted {
		t.Errorf("mountinfo does not have %s as ext4 on %s", v.LoopDevice, v.Mountpoint)
	}
	comm := kernelLines(t, fmt.Sprintf("/proc/%d/comm", v.JBD2PID))[0]
	if want := "jbd2/" + filepath.Base(v.LoopDevice) + "-8"; comm != want {
		t.Errorf("process %d is %q, want %q", v.JBD2PID, comm, want)
	}
	if at := cgroupOf(t, v.JBD2PID); at != v.JournalCgroup {
		t.Errorf("the thread is in %q, journal_cgroup is %q", at, v.JournalCgroup)
	}
}

// cgroupOf reads /proc/PID/cgroup: v1's blkio, else v2's line.
func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	unified := ""
	for _, line := range kernelLines(t, fmt.Sprintf("/proc/%d/cgroup", pid)) {
		parts := strings.SplitN(line, ":", 3)
		switch {
		case parts[1] == "":
			unified = parts[2]
		case strings.Contains(","+parts[1]+",", ",blkio,"):
			return parts[2]
		}
	}
	return unified
}

// The commands that others script, one after the other.
func TestVolumeCommandsDoWhatTheContractSays(t *testing.T) {
	s := newShelf(t)
	name, pool, target := s.name, s.path("pool"), s.path("mnt")
	var made struct {
		Name      string            `json:"name"`
		SizeBytes uint64            `json:"size_bytes"`
		Weight    uint64            `json:"weight"`
		Labels    map[string]string `json:"labels"`
	}
	s.json(&made, "create", name, "--pool", pool, "--size", "64M", "--weight", "700", "--label", "team=a=b")
	if made.Name != name || made.SizeBytes != 64<<20 || made.Weight != 700 || made.Labels["team"] != "a=b" {
		t.Errorf("created %+v", made)
	}
	if err := s.fails(exitUsage, "create", name, "--pool", pool, "--size", "64M"); !errors.Is(err, volume.ErrExists) {
		t.Errorf("created again: %v", err)
	}

	s.must("attach", name, "--pool", pool, "--target", target)
	var v inspected
	s.json(&v, "inspect", name)
	if v.Name != name || v.Pool != pool || !v.DirectIO || v.Mountpoint != target || v.JournalCgroup != "/daybook/"+name+"/journal" || !v.Placed || v.SizeBytes != 64<<20 {
		t.Errorf("inspect tells %+v", v)
	}
	v.agreesWithTheKernel(t)
	if err := os.WriteFile(filepath.Join(target, "row"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}

	var listed struct{ Volumes []inspected }
	s.json(&listed, "list")
	if len(listed.Volumes) != 1 || listed.Volumes[0].LoopDevice != v.LoopDevice || listed.Volumes[0].JBD2PID != v.JBD2PID {
		t.Errorf("list tells %+v", listed)
	}
	if text := s.must("list"); !strings.Contains(text, name) || !strings.Contains(text, target) {
		t.Errorf("list prints %q", text)
	}

	var snapshot struct {
		Name      string `json:"name"`
		SizeBytes uint64 `json:"size_bytes"`
	}
	s.json(&snapshot, "snapshot", name, "monday", longFreeze)
	if snapshot.Name != "monday" || snapshot.SizeBytes != 64<<20 {
		t.Errorf("snapshot tells %+v", snapshot)
	}
	s.resize(name, target, "96M")
	s.json(&v, "inspect", name)
	if v.SizeBytes != 96<<20 || len(v.Snapshots) != 1 || v.Snapshots[0] != "monday" {
		t.Errorf("inspect tells %+v", v)
	}
	v.agreesWithTheKernel(t)
	if text := s.must("inspect", name); !strings.Contains(text, "monday") || !strings.Contains(text, v.LoopDevice+" on "+target+", direct I/O") {
		t.Errorf("inspect prints\n%s", text)
	}
	if err := os.WriteFile(filepath.Join(target, "row"), []byte("overwritten"), 0o644); err != nil {
		t.Fatal(err)
	}

	// Repair finds nothing to do, and touches nothing.
	var repaired struct {
		Pools []struct {
			Pool    string
			Volumes map[string]string
			Work    int `json:"work_removed"`
		}
	}
	s.json(&repaired, "repair")
	if len(repaired.Pools) != 1 || repaired.Pools[0].Pool != pool || len(repaired.Pools[0].Volumes) != 0 || repaired.Pools[0].Work != 0 {
		t.Errorf("repair tells %+v", repaired)
	}

	if err := s.fails(exitFailure, "delete", name); !errors.Is(err, volume.ErrBusy) {
		t.Errorf("deleted while attached: %v", err)
	}
	device, journal := v.LoopDevice, v.JournalCgroup
	var detached inspected
	s.json(&detached, "detach", name)
	if detached.LoopDevice != "" || detached.Mountpoint != "" || detached.JBD2PID != 0 || detached.JournalCgroup != "" {
		t.Errorf("detach tells %+v", detached)
	}
	if disk, err := blockdev.Lookup(device); err == nil {
		if file, err := disk.BackingFile(); err == nil && strings.HasPrefix(file, s.dir) {
			t.Errorf("%s has %s still", device, file)
		}
	}
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Lookup(filepath.Dir(journal)); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("cgroup %s is there still: %v", filepath.Dir(journal), err)
	}
	s.must("detach", name) // is no error

	// What the snapshot kept.
	s.must("clone", name, name+"c", "--snapshot", "monday", "--weight", "100")
	s.must("attach", name+"c", "--target", target, "--read-only", "--placement", "none")
	if text, err := os.ReadFile(filepath.Join(target, "row")); err != nil || string(text) != "kept" {
		t.Errorf("the clone has %q, %v", text, err)
	}
	s.must("detach", name+"c")
	var checked struct{ Clean bool }
	if s.json(&checked, "check", name); !checked.Clean {
		t.Error("check finds errors")
	}
	s.must("delete", name, "--snapshot", "monday")
	if s.json(&v, "inspect", name); len(v.Snapshots) != 0 {
		t.Errorf("the snapshot is there still: %+v", v)
	}
	s.must("delete", name+"c")
	s.must("delete", name)
	if s.json(&listed, "list", "--pool", pool); len(listed.Volumes) != 0 {
		t.Errorf("after the deletion: %+v", listed)
	}
	if err := s.fails(exitUsage, "inspect", name); !errors.Is(err, volume.ErrNotFound) {
		t.Errorf("inspected after the deletion: %v", err)
	}
}

// resize resizes an attached volume. Where this process may not (ext4 asks for
// CAP_SYS_RESOURCE, which some hosts keep from root), it does so detached.
func (s *shelf) resize(name, target, size string) {
	s.t.Helper()
	const capSysResource = 24
	for _, line := range kernelLines(s.t, "/proc/self/status") {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			if bits&(1<<capSysResource) != 0 {
				s.must("resize", name, "--size", size)
				return
			}
		}
	}
	s.must("detach", name)
	s.must("resize", name, "--size", size)
	s.must("attach", name, "--target", target)
}

func TestVolumeIsSentAndReceived(t *testing.T) {
	s := newShelf(t)
	name, target := s.name, s.path("mnt")
	s.must("create", name, "--pool", s.path("pool"), "--size", "32M")
	s.must("attach", name, "--target", target)
	for i, snapshot := range []string{"first", "second"} {
		if err := os.WriteFile(filepath.Join(target, snapshot), bytes.Repeat([]byte{byte('a' + i)}, 1<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		s.must("snapshot", name, snapshot, longFreeze)
	}
	var sent struct {
		StreamBytes uint64 `json:"stream_bytes"`
	}
	s.json(&sent, "send", name, "first", "--output", s.path("first.stream"))
	if info, err := os.Stat(s.path("first.stream")); err != nil || uint64(info.Size()) != sent.StreamBytes || info.Mode().Perm() != 0o600 {
		t.Errorf("the stream's file is %+v, %v; want %d bytes", info, err, sent.StreamBytes)
	}
	s.fails(exitUsage, "send", name, "first", "--output", s.path("first.stream"))
	s.must("send", name, "second", "--base", "first", "--output", s.path("second.stream"))
	if err := os.WriteFile(filepath.Join(target, "third"), bytes.Repeat([]byte{'c'}, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must("send", name, "--base", "second", "--output", s.path("third.stream"), longFreeze)
	for _, stream := range []string{"first", "second", "third"} {
		s.must("receive", name, "--pool", s.path("other"), "--input", s.path(stream+".stream"))
	}
	s.must("attach", name, "--pool", s.path("other"), "--target", s.path("copy"), "--cgroup", "/daybook/"+name+"-copy")
	for i, file := range []string{"first", "second", "third"} {
		text, err := os.ReadFile(s.path("copy", file))
		if err != nil || !bytes.Equal(text, bytes.Repeat([]byte{byte('a' + i)}, 1<<20)) {
			t.Errorf("received %s: %d bytes, %v", file, len(text), err)
		}
	}
	// A stream that is cut off changes nothing.
	text, err := os.ReadFile(s.path("first.stream"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("cut.stream"), text[:len(text)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run("receive", name+"x", "--pool", s.path("other"), "--input", s.path("cut.stream")); err == nil {
		t.Error("a stream that is cut off was received")
	}
	s.fails(exitUsage, "inspect", name+"x", "--pool", s.path("other"))
}

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
		{"create", "a", "--size", "16M", "--journal-size", "0"},
		{"create", "a", "--size", "16M", "--journal-size", "16M"},
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

func TestPoolIsFoundWithoutItsFlag(t *testing.T) {
	s := newShelf(t)
	// Nothing known, nothing named: the default pool is made.
	s.must("create", "a", "--size", "16M")
	var v inspected
	if s.json(&v, "inspect", "a"); v.Pool != s.path("state/volumes") {
		t.Errorf("it is in %s", v.Pool)
	}
	// The same name elsewhere is another volume, and then the name alone
	// names neither.
	s.must("create", "a", "--size", "32M", "--pool", s.path("other"))
	err := s.fails(exitUsage, "inspect", "a")
	if err == nil || !strings.Contains(err.Error(), s.path("state/volumes")) || !strings.Contains(err.Error(), s.path("other")) {
		t.Errorf("the error does not tell the pools: %v", err)
	}
	for _, words := range [][]string{{"delete", "a"}, {"resize", "a", "--size", "64M"}, {"attach", "a", "--target", s.path("mnt")}} {
		s.fails(exitUsage, words...)
	}
	if s.json(&v, "inspect", "a", "--pool", s.path("other")); v.SizeBytes != 32<<20 {
		t.Errorf("in the other pool: %+v", v)
	}
	t.Setenv(poolVariable, s.path("other"))
	if s.json(&v, "inspect", "a"); v.SizeBytes != 32<<20 {
		t.Errorf("by the environment: %+v", v)
	}
	if s.json(&v, "inspect", "a", "--pool", s.path("state/volumes")); v.SizeBytes != 16<<20 {
		t.Errorf("the flag over the environment: %+v", v)
	}
	var listed struct{ Volumes []inspected }
	if s.json(&listed, "list"); len(listed.Volumes) != 1 {
		t.Errorf("list by the environment: %+v", listed)
	}
	t.Setenv(poolVariable, "")
	if s.json(&listed, "list"); len(listed.Volumes) != 2 {
		t.Errorf("list of all: %+v", listed)
	}
	if text, err := s.run("list"); err != nil || strings.Count(text, "\n") != 3 {
		t.Errorf("%v, %q", err, text)
	}
	s.must("delete", "a", "--pool", s.path("other"))
	s.must("delete", "a")
}

func TestQuotaOfAPoolIsSetAndKept(t *testing.T) {
	s := newShelf(t)
	s.must("pool", "--pool", s.path("pool"), "--create", "--quota", "40M")
	s.must("create", "a", "--size", "32M", "--pool", s.path("pool"))
	if err := s.fails(exitFailure, "create", "b", "--size", "16M", "--pool", s.path("pool")); !errors.Is(err, volume.ErrNoSpace) {
		t.Errorf("over the quota: %v", err)
	}
	var told struct {
		Pools []struct {
			Pool     string
			Volumes  int
			Quota    uint64 `json:"quota_bytes"`
			Promised uint64 `json:"promised_bytes"`
		}
	}
	s.json(&told, "pool", "--quota", "48M")
	if len(told.Pools) != 1 || told.Pools[0].Pool != s.path("pool") || told.Pools[0].Volumes != 1 || told.Pools[0].Quota != 48<<20 || told.Pools[0].Promised != 32<<20 {
		t.Errorf("pool tells %+v", told)
	}
	s.must("create", "b", "--size", "16M", "--pool", s.path("pool"))
	if text := s.must("pool"); !strings.Contains(text, "48MiB") {
		t.Errorf("pool prints %q", text)
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

// The keeper puts a thread back that somebody moved, finds pools that become
// known later, and ends when it is told to.
func TestKeeperKeepsPoolsThatBecomeKnownLater(t *testing.T) {
	s := newShelf(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		root := newRootCommand()
		root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "keep"})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		ended <- root.ExecuteContext(ctx)
	}()
	s.must("create", s.name, "--size", "32M", "--pool", s.path("pool"))
	s.must("attach", s.name, "--target", s.path("mnt"))
	var v inspected
	s.json(&v, "inspect", s.name)
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Move(v.JBD2PID, cgroup.RootPath); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(awaittest.Patience); cgroupOf(t, v.JBD2PID) != v.JournalCgroup; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the thread is in %s still", cgroupOf(t, v.JBD2PID))
		}
	}
	// A second keeper of the same pool is refused.
	if err := s.fails(exitFailure, "keep", "--pool", s.path("pool")); !errors.Is(err, volume.ErrBusy) {
		t.Errorf("two keepers: %v", err)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(awaittest.Patience):
		t.Fatal("it does not end")
	}
	if at := cgroupOf(t, v.JBD2PID); at != v.JournalCgroup {
		t.Errorf("its end moved the thread to %s", at)
	}
}

// keepSyncing creates and syncs files in a directory, with pauses, until stop is called.
func keepSyncing(directory string, pause time.Duration) (stop func() error) {
	quit, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-quit:
				stopped <- nil
				return
			case <-time.After(pause):
			}
			if err := createAndSync(filepath.Join(directory, strconv.Itoa(i%100))); err != nil {
				stopped <- err
				return
			}
		}
	}()
	return func() error {
		close(quit)
		return <-stopped
	}
}

// What the volume's journal writes, the kernel charges to the journal's cgroup,
// and top shows both by the volume's name.
func TestTopShowsVolumesByName(t *testing.T) {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	s := newShelf(t)
	needs.That(t, err == nil, "a kernel with BTF")
	s.must("create", s.name, "--pool", s.path("pool"), "--size", "32M")
	s.must("attach", s.name, "--target", s.path("mnt"))
	var v inspected
	s.json(&v, "inspect", s.name)
	stop := keepSyncing(s.path("mnt"), 20*time.Millisecond)
	out, err := output(t, "top", "--once", "--json", "--interval", "1s", "--device", filepath.Base(v.LoopDevice))
	if err := errors.Join(err, stop()); err != nil {
		t.Fatal(err)
	}
	var sample account.Sample
	if err := json.Unmarshal([]byte(out), &sample); err != nil || len(sample.Devices) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	if sample.Devices[0].Volume != s.name {
		t.Errorf("the device's volume is %q, want %q", sample.Devices[0].Volume, s.name)
	}
	for _, c := range sample.Devices[0].Containers {
		if c.Cgroup != v.JournalCgroup {
			continue
		}
		if want := "volume " + s.name + " (journal)"; c.Name != want || c.Runtime != "volume" {
			t.Errorf("%s is called %q, runtime %q; want %q", c.Cgroup, c.Name, c.Runtime, want)
		}
		if c.ReturnedBytes == 0 {
			t.Errorf("the journal's writes were not charged to its cgroup: %+v", c)
		}
		return
	}
	t.Errorf("cgroup %s is missing in %s", v.JournalCgroup, out)
}

// On the pool's disk, where the shares are divided, the volume's journal is its
// thread's cgroup's too, and not metadata of the pool's file system.
func TestTopChargesAVolumesJournalOnThePoolsDisk(t *testing.T) {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	s := newShelf(t)
	needs.That(t, err == nil, "a kernel with BTF")
	under := ext4test.New(t, ext4test.Options{})
	pool := filepath.Join(under.Dir, "pool")
	s.must("create", s.name, "--pool", pool, "--size", "32M", "--provision", "full")
	s.must("attach", s.name, "--target", s.path("mnt"))
	defer s.must("detach", s.name)
	var v inspected
	s.json(&v, "inspect", s.name)
	stop := keepSyncing(s.path("mnt"), 5*time.Millisecond)
	out, err := output(t, "top", "--once", "--json", "--interval", "2s", "--device", under.Disk.Name)
	if err := errors.Join(err, stop()); err != nil {
		t.Fatal(err)
	}
	var sample account.Sample
	if err := json.Unmarshal([]byte(out), &sample); err != nil || len(sample.Devices) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	for _, c := range sample.Devices[0].Containers {
		if c.Cgroup == v.JournalCgroup && c.ChargedWriteBytes > 10*c.ReturnedBytes && c.ChargedWriteBytes > 1<<20 {
			return
		}
	}
	t.Errorf("the journal of %s is not charged to %s: %s", s.name, v.JournalCgroup, out)
}

func createAndSync(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

func TestDamagedVolumeIsReportedAndDeletedOnlyIfRequested(t *testing.T) {
	s := newShelf(t)
	s.must("create", "a", "--size", "16M", "--pool", s.path("pool"))
	s.must("create", "b", "--size", "16M", "--pool", s.path("pool"))
	if err := os.WriteFile(s.path("pool/volumes/a/volume.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var listed struct {
		Volumes []struct{ Name, Problem string }
	}
	s.json(&listed, "list")
	if len(listed.Volumes) != 2 || listed.Volumes[0].Problem == "" || listed.Volumes[1].Problem != "" {
		t.Errorf("list tells %+v", listed)
	}
	for _, words := range [][]string{{"inspect", "a"}, {"delete", "a"}, {"attach", "a", "--target", s.path("mnt")}, {"repair"}} {
		if err := s.fails(exitFailure, words...); !errors.Is(err, volume.ErrCorrupt) {
			t.Errorf("%s: %v", words[0], err)
		}
	}
	var said bytes.Buffer
	root := newRootCommand()
	root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "delete", "a", "--damaged"})
	root.SetErr(&said)
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(said.String(), "lsattr -d DIR") || !strings.Contains(said.String(), "chattr -i DIR") {
		t.Errorf("%v; nothing says that a mount point may be immutable: %q", err, said.String())
	}
	s.must("repair")
	s.must("inspect", "b")
}

func TestInterruptedCreateLeavesNothing(t *testing.T) {
	s := newShelf(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		root := newRootCommand()
		root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "create", "a", "--pool", s.path("pool"), "--size", "2G", "--provision", "full"})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		ended <- root.ExecuteContext(ctx)
	}()
	for deadline := time.Now().Add(awaittest.Patience); ; time.Sleep(time.Millisecond) {
		if work, _ := filepath.Glob(s.path("pool", "work", "*", "image")); len(work) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not begin")
		}
	}
	stop()
	if err := <-ended; exitCode(err) != exitInterrupted {
		t.Errorf("exit code %d (%v), want %d", exitCode(err), err, exitInterrupted)
	}
	for _, dir := range []string{"volumes", "work"} {
		if entries, err := os.ReadDir(s.path("pool", dir)); err != nil || len(entries) != 0 {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
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

// In a mount namespace of its own, a unit would mount and unmount nothing of the
// host's.
func TestUnitsThatMountStayInTheHostsMountNamespace(t *testing.T) {
	for name, command := range map[string]string{
		"daybook-volumes.service": "daybook volume keep",
		"daybook-attach.service":  "daybook volume attach --all-persistent",
	} {
		text := units(t)[name]
		if !strings.Contains(text, command) {
			t.Fatalf("the unit %s is %q", name, text)
		}
		wantHostsMounts(t, name, text)
	}
}

func wantHostsMounts(t *testing.T, name, text string) {
	t.Helper()
	// What makes a namespace by systemd.exec(5).
	for _, setting := range []string{
		"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectKernelTunables", "ProtectKernelModules",
		"ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset", "MountFlags", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths",
		"ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "RootDirectory", "RootImage", "DynamicUser",
	} {
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, setting+"=") {
				t.Errorf("%s has %s", name, line)
			}
		}
	}
}

func TestProgressIsReportedOnlyOfLongWork(t *testing.T) {
	clock := time.Unix(1000, 0)
	run := func(terminal bool, seconds int) string {
		var out bytes.Buffer
		bar := statusline.On(&out)
		if terminal {
			bar = statusline.OnTerminal(&out)
		}
		p := &workProgress{out: &out, bar: bar, what: "writing db1", now: func() time.Time { return clock }, began: clock, reported: clock}
		for i := range seconds * 10 {
			clock = clock.Add(100 * time.Millisecond)
			p.show(uint64(i+1)<<20, 1000<<20)
		}
		p.end()
		return out.String()
	}
	for _, terminal := range []bool{true, false} {
		if out := run(terminal, 1); out != "" {
			t.Errorf("terminal %v, after a second: %q", terminal, out)
		}
	}
	lines := strings.Split(strings.TrimSuffix(run(false, 25), "\n"), "\n")
	if len(lines) != 2 || lines[0] != "writing db1: 10 % of 1000MiB, 10MiB/s, 1m30s left" {
		t.Errorf("not on a terminal: %q", lines)
	}
	out := run(true, 25)
	if n := strings.Count(out, "\r\x1b[K"); n < 100 || n > 130 || !strings.HasSuffix(out, "\r\x1b[K") || strings.Contains(out, "\n") {
		t.Errorf("on a terminal: %d drawings: %q", n, out)
	}
}

func TestBytesAreRounded(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 64 << 20: "64MiB", 10<<30 + 5: "10GiB", 1<<30 - 1: "1GiB", 16 << 40: "16TiB",
		5<<40 + 5<<39: "7.5TiB", 1<<64 - 1: "16777216TiB",
	} {
		if got := roundBytes(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
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

func TestVolumeOnADevice(t *testing.T) {
	s := newShelf(t)
	file := s.path("lv")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the shelf's own, which wants no loop devices left
		_, _ = s.run("detach", s.name)
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	node, target, pool := loop.Node(), s.path("mnt"), s.path("pool")
	for _, words := range [][]string{
		{"--device", node, "--size", "64M"}, {"--device", node, "--provision", "full"}, {"--device", ""}, {"--device", file}, {},
	} {
		s.fails(exitUsage, append([]string{"create", s.name, "--pool", pool}, words...)...)
	}
	if text := s.must("create", s.name, "--pool", pool, "--device", node, "--weight", "700"); !strings.Contains(text, "64MiB, device "+node) {
		t.Errorf("create prints %q", text)
	}
	if err := s.fails(exitFailure, "create", s.name+"x", "--pool", pool, "--device", node); !strings.Contains(err.Error(), "wipefs") {
		t.Errorf("a second volume on the device: %v", err)
	}
	if text := s.must("attach", s.name, "--target", target); !strings.HasPrefix(text, node+" on "+target) {
		t.Errorf("attach prints %q", text)
	}
	var v struct {
		inspected
		Device      string
		BlockDevice string `json:"block_device"`
	}
	s.json(&v, "inspect", s.name)
	if v.Device != node || v.BlockDevice != node || v.LoopDevice != "" || v.Mountpoint != target || v.JBD2PID == 0 || !v.Placed {
		t.Errorf("inspect tells %+v", v)
	}
	if text := s.must("inspect", s.name); !strings.Contains(text, "device "+node) || !strings.Contains(text, node+" on "+target) {
		t.Errorf("inspect prints\n%s", text)
	}
	if text := s.must("list"); !strings.Contains(text, node) {
		t.Errorf("list prints\n%s", text)
	}
	if err := s.fails(exitUnsupported, "snapshot", s.name, "monday"); !errors.Is(err, volume.ErrUnsupported) {
		t.Errorf("snapshot: %v", err)
	}
	s.must("detach", s.name)
	s.must("delete", s.name)
	if text := s.must("create", s.name, "--pool", pool, "--device", node); text == "" {
		t.Error("the device was not released")
	}
}
