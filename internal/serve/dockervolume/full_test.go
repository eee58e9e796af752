package dockervolume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
)

// poolOnDisk puts the pool on a file system of its own.
func (r *rig) poolOnDisk(bytes int64) {
	r.t.Helper()
	file, pool := r.Path("disk"), filepath.Join(r.home, "pool")
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		err = os.Truncate(file, bytes)
	}
	if err == nil {
		err = os.Mkdir(pool, 0o700)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	if err := ext4.Make(r.t.Context(), loop.Node(), ext4.MakeOptions{Arguments: []string{"-m", "0"}}); err != nil { // no blocks for root alone
		r.t.Fatal(err)
	}
	if err := ext4.Mount(loop.Node(), pool, ext4.MountOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := unix.Unmount(pool, 0); err != nil {
			r.t.Error(err)
		}
	})
}

// fillPool takes all the space that the pool's file system has left.
func (r *rig) fillPool() {
	r.t.Helper()
	// The kernel keeps a few blocks back from one file.
	for n, piece := range []int{1 << 20, 4096, 1, 1, 1, 1} {
		for full := false; !full; {
			file, err := os.OpenFile(filepath.Join(r.home, "pool", fmt.Sprintf("ballast%d", n)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				r.t.Fatal(err)
			}
			_, err = file.Write(make([]byte, piece))
			err = errors.Join(err, file.Sync(), file.Close())
			if full = err != nil || piece == 1; err != nil && !errors.Is(err, unix.ENOSPC) {
				r.t.Fatal(err)
			}
		}
	}
}

// emptyPool undoes fillPool.
func (r *rig) emptyPool() {
	r.t.Helper()
	ballast, err := filepath.Glob(filepath.Join(r.home, "pool", "ballast*"))
	for _, file := range ballast {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// A daemon that starts takes the file for complete: a user that had left would keep the volume attached.
func TestWhoLeftWhileThePoolWasFullIsRecordedLater(t *testing.T) {
	r := newRig(t)
	r.poolOnDisk(96 << 20)
	name := r.name("a")
	recorded := func(id string) bool {
		text, err := os.ReadFile(filepath.Join(r.home, "pool", usersFile))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), `"`+id+`"`)
	}
	r.start()
	r.create(name, map[string]string{"size": "32M", "provision": "full"})
	for _, id := range []string{"one", "two", "three"} {
		r.mount(name, id)
	}
	r.fillPool()
	r.unmount(name, "one")
	if !recorded("one") {
		t.Error("the pool was not full")
	}
	r.emptyPool()
	awaittest.Until(t, awaittest.Patience, "it is recorded while nothing else changes", func() bool { return !recorded("one") })
	r.fillPool()
	r.unmount(name, "two")
	if !recorded("two") {
		t.Error("the pool was not full")
	}
	r.emptyPool()
	r.daemon.Stop()
	if recorded("two") {
		t.Error("a daemon that ended has not recorded it")
	}
	r.start()
	r.unmount(name, "three")
	r.wantMounted(name, false)
	r.call("VolumeDriver.Remove", object{"Name": name})
}

// What frees space must not need any.
func TestVolumesInAFullPoolAreUnmountedAndRemoved(t *testing.T) {
	r := newRig(t)
	r.poolOnDisk(192 << 20)
	r.start()
	used, removed, shared := r.name("used"), r.name("removed"), r.name("shared")
	full := map[string]string{"size": "32M", "provision": "full"}
	for _, name := range []string{used, removed, shared} {
		r.create(name, full)
		r.mount(name, "one")
	}
	r.mount(shared, "two")
	r.fillPool()
	r.unmount(shared, "one")
	r.wantMounted(shared, true)
	for _, name := range []string{used, shared} {
		r.unmount(name, "one")
		r.unmount(name, "two")
		r.wantMounted(name, false)
	}
	r.call("VolumeDriver.Remove", object{"Name": removed}) // with a user
	r.wantMounted(removed, false)
	r.wantRefused("VolumeDriver.Get", object{"Name": removed}, "not found")
	r.fillPool()
	for _, name := range []string{used, shared} {
		r.call("VolumeDriver.Remove", object{"Name": name})
	}
	// With space, the file is written again.
	again := r.name("again")
	r.create(again, full)
	r.mount(again, "three")
	text, err := os.ReadFile(filepath.Join(r.home, "pool", usersFile))
	if err != nil || strings.Count(string(text), "one")+strings.Count(string(text), "two") != 0 || !strings.Contains(string(text), "three") {
		t.Errorf("%s, %v", text, err)
	}
	r.unmount(again, "three")
	r.call("VolumeDriver.Remove", object{"Name": again})
}
