package disksim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
)

// ownerVariable makes the test binary a program that creates a disk and waits
// to be killed; its value is "STATEDIR NAME bound|kept".
const ownerVariable = "DAYBOOK_DISK_TEST_OWNER"

func TestMain(m *testing.M) {
	if begin := os.Getenv(selfUserVariable); begin != "" && os.Getenv(serveVariable) == workServe {
		go useOwnDisk(begin)
	}
	ServeIfAsked()
	if order := os.Getenv(ownerVariable); order != "" {
		beOwner(strings.Fields(order))
	}
	os.Exit(m.Run())
}

func beOwner(order []string) {
	disk, err := Create(context.Background(), Config{
		Name: order[1], SizeBytes: 64 << 20, StateDir: order[0], OwnerBound: order[2] == "bound",
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(disk.DevicePath)
	select {}
}

func needDisks(t testing.TB) {
	t.Helper()
	needs.Root(t)
	for _, node := range []string{"/dev/fuse", "/dev/loop-control"} {
		_, err := os.Stat(node)
		needs.That(t, err == nil, node)
	}
}

// testPrefix begins the names of disks in tests.
var testPrefix = fmt.Sprintf("test%d-", os.Getpid())

// rig is a state directory that must be empty at the end.
type rig struct {
	t   testing.TB
	dir string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	needDisks(t)
	dir, err := os.MkdirTemp("", "daybook-disks-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t, dir}
	t.Cleanup(func() {
		records, _ := List(dir)
		for _, record := range records {
			for _, mount := range r.mounts() {
				_ = unix.Unmount(mount, unix.MNT_DETACH)
			}
			_ = Delete(context.Background(), dir, record.Name)
		}
		if _, err := Recover(context.Background(), dir); err != nil {
			t.Error(err)
		}
		r.wantNothingLeft()
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return r
}

// mounts lists what is mounted on the rig's loop devices.
func (r *rig) mounts() []string {
	r.t.Helper()
	all, err := blockdev.Mounts()
	if err != nil {
		r.t.Fatal(err)
	}
	var points []string
	for _, loop := range r.loops() {
		for _, mount := range all {
			if mount.Dev == loop.Dev {
				points = append(points, mount.Point)
			}
		}
	}
	return points
}

func (r *rig) loops() []blockdev.Loop {
	r.t.Helper()
	all, err := blockdev.Loops()
	if err != nil {
		r.t.Fatal(err)
	}
	var loops []blockdev.Loop
	for _, loop := range all {
		// Once the FUSE file system is unmounted, only "/NAME" remains of the
		// path. Only these tests use such names for disks.
		orphan := filepath.Dir(loop.File) == "/" && strings.HasPrefix(loop.File, "/"+testPrefix)
		if strings.HasPrefix(loop.File, r.dir+"/") || orphan {
			loops = append(loops, loop)
		}
	}
	return loops
}

// processes lists the servers and their children.
func (r *rig) processes() []int {
	r.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		r.t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), r.dir+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// left lists the remains of disks: loop devices, FUSE mounts, processes and
// files.
func (r *rig) left() []string {
	r.t.Helper()
	var left []string
	for _, loop := range r.loops() {
		left = append(left, loop.Name+" on "+loop.File)
	}
	mounts, err := blockdev.Mounts()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, mount := range mounts {
		if strings.HasPrefix(mount.Point, r.dir+"/") {
			left = append(left, "mount "+mount.Point)
		}
	}
	for _, pid := range r.processes() {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	return left
}

func (r *rig) wantNothingLeft() {
	r.t.Helper()
	if left := r.left(); len(left) > 0 {
		r.t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

func (r *rig) create(config Config) *Disk {
	r.t.Helper()
	config.StateDir = r.dir
	config.Name = testPrefix + config.Name
	if config.SizeBytes == 0 {
		config.SizeBytes = 64 << 20
	}
	disk, err := Create(context.Background(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	return disk
}

// owner starts another process that creates a disk.
func (r *rig) owner(name, binding string) (*exec.Cmd, io.Reader) {
	r.t.Helper()
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), ownerVariable+"="+strings.Join([]string{r.dir, testPrefix + name, binding}, " "))
	out, err := command.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { kill(command) })
	return command, out
}

// device waits until the owner prints the path of its disk.
func device(t testing.TB, out io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "/dev/loop") {
		t.Fatalf("the owner printed %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

func kill(command *exec.Cmd) {
	_ = command.Process.Kill()
	_ = command.Wait()
}

// mount makes an ext4 on the device and mounts it; the test, or the tested
// code, unmounts it.
func (r *rig) mount(device string) string {
	r.t.Helper()
	needs.Tool(r.t, "mke2fs")
	if err := ext4.Make(context.Background(), device, ext4.MakeOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return r.mountOnly(device)
}

func (r *rig) mountOnly(device string) string {
	r.t.Helper()
	point := r.t.TempDir()
	if err := ext4.Mount(device, point, ext4.MountOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	return point
}

func mounted(t testing.TB, point string) bool {
	t.Helper()
	mounts, err := blockdev.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range mounts {
		if mount.Point == point {
			return true
		}
	}
	return false
}
