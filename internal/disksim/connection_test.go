package disksim

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
)

// selfUserVariable makes a disk's server use its own disk, as no server should,
// once the file exists that the variable names.
const selfUserVariable = "DAYBOOK_DISK_TEST_SELF_USER"

// useOwnDisk reads more from the disk of this server than it delivers during a
// test.
func useOwnDisk(after string) {
	name, h := os.Args[1], home(os.Args[2])
	for {
		if _, err := os.Stat(after); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if fd, err := unix.Open(h.diskFile(name), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Read(fd, make([]byte, maxTransferBytes))
	}
}

// slow is a disk that needs half a minute for the largest request.
var slow = Parameters{BandwidthBytesPerSecond: maxTransferBytes / 30}

// killSelfUser creates disks until one of their servers waits for itself when it
// is killed: it then has ended, and one of its threads has not.
func (r *rig) killSelfUser() *Disk {
	r.t.Helper()
	for wait := 4 * time.Millisecond; wait < time.Minute; wait *= 2 {
		begin := filepath.Join(r.t.TempDir(), "begin")
		if err := os.Setenv(selfUserVariable, begin); err != nil {
			r.t.Fatal(err)
		}
		disk := r.create(Config{Name: "selfuser", Parameters: slow})
		// Not before: what creates the disk flushes it, and would wait for the read.
		if err := os.WriteFile(begin, nil, 0o600); err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(wait) // until its server has the request from itself
		if err := signalProcess(disk.server.pid, disk.server.start, unix.SIGKILL); err != nil {
			r.t.Fatal(err)
		}
		// Its threads need some time to end, except the one that waits.
		time.Sleep(wait)
		l, err := disk.home.lockDisk(disk.Name)
		if errors.Is(err, errAlive) && killed(disk.server.pid, disk.server.start) {
			return disk
		}
		l.release()
		if _, err := Recover(context.Background(), r.dir); err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Fatal("no server waited for itself")
	return nil
}

// A thread that waits for its own process's file system survives SIGKILL, and
// keeps what says that the server is alive.
func TestAKilledServerThatWaitsForItselfIsEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*rig, *Disk) error
	}{
		{"recover", func(r *rig, disk *Disk) error {
			recovered, err := Recover(context.Background(), r.dir)
			if err == nil && (len(recovered) != 1 || recovered[0].Name != disk.Name) {
				err = fmt.Errorf("recovered %+v", recovered)
			}
			return err
		}},
		{"delete", func(r *rig, disk *Disk) error { return Delete(context.Background(), r.dir, disk.Name) }},
		{"create", func(r *rig, disk *Disk) error {
			return r.create(Config{Name: "selfuser"}).Delete(context.Background())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := newRig(t).create(Config{Name: "selfuser"})
			r := newRig(t)
			t.Setenv(selfUserVariable, "") // restored at the end
			disk := r.killSelfUser()
			if err := os.Unsetenv(selfUserVariable); err != nil {
				t.Fatal(err)
			}
			if err := c.end(r, disk); err != nil {
				t.Fatal(err)
			}
			<-disk.server.exited
			r.wantNothingLeft()
			// A disk of the same name elsewhere is not aborted.
			if text, err := os.ReadFile(other.DevicePath); err != nil || len(text) != 64<<20 {
				t.Errorf("%d bytes of the other disk, %v", len(text), err)
			}
		})
	}
}

// Nobody serves the file system yet: whatever uses it waits for ever.
func TestAServerDoesNotUseItsDiskWhileItMountsIt(t *testing.T) {
	needDisks(t)
	h := home(t.TempDir())
	const name = "unserved"
	if err := os.Mkdir(h.mountPoint(name), 0o700); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		_, _, err := open(h, name, assignment{Model: Model{SizeBytes: MinSizeBytes}}, log.Default())
		opened <- err
	}()
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(awaittest.Patience):
		t.Error("the mount waits for an answer of its file system")
	}
	if !mounted(t, h.mountPoint(name)) {
		t.Error("the disk is not mounted")
	}
	// Also if somebody uses it.
	if err := errors.Join(abortConnections(h.mountPoint(name)), unmountFUSE(h.mountPoint(name))); err != nil {
		t.Error(err)
	}
}

func TestOnlyConnectionsOfDisksOnTheMountPointAreAborted(t *testing.T) {
	const point = "/run/daybook/disks/slow.mnt"
	mount := func(minor uint32, kind, source, at string) blockdev.Mount {
		return blockdev.Mount{Dev: blockdev.Dev{Minor: minor}, Root: "/", Type: kind, Source: source, Point: at}
	}
	mounts := []blockdev.Mount{
		mount(1, mountType, mountSource, "/run/daybook/disks/fast.mnt"),
		mount(2, mountType, mountSource, filepath.Dir(point)),
		mount(3, mountType, mountSource, point),
		mount(4, "fuse.sshfs", "host:/", point),
		mount(5, mountType, "host:/", point),
		mount(6, "fuse", mountSource, point),
		mount(7, "tmpfs", mountSource, point),
		{Dev: blockdev.Dev{Major: 8, Minor: 8}, Type: mountType, Source: mountSource, Point: point},
		mount(9, mountType, mountSource, point),
		mount(10, mountType, mountSource, point+"/slow"),
	}
	if got := connectionsOf(mounts, point); !slices.Equal(got, []uint32{3, 9}) {
		t.Errorf("connections %d", got)
	}
	if last := lastOn(mounts, point); last.Dev.Minor != 9 {
		t.Errorf("the last mount is %+v", last)
	}
	if last := lastOn(mounts, "/srv"); isDisk(last) {
		t.Errorf("found %+v", last)
	}
}
