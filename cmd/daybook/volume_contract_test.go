package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/volume"
)

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
