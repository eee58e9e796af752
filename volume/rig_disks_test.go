package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
)

// newDevice makes an empty loop device over a file; the rig removes it.
func (r *rig) newDevice(sizeBytes uint64) string {
	r.t.Helper()
	file := filepath.Join(r.home, fmt.Sprintf("device%d", rigs.Add(1)))
	if err := imagefile.MakeSparse(file, sizeBytes); err != nil {
		r.t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if r.pool != nil { // the remains of a failed test
			names, _ := r.pool.files.Names()
			for _, name := range names {
				_ = r.pool.Detach(context.Background(), name)
			}
		}
		r.unmountBelow(filepath.Join(r.home, "mnt"))
		if err := loop.Detach(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	r.before = append(r.before, "loop of "+strings.TrimPrefix(file, r.home))
	return loop.Node()
}

// poolDisk is the rig's own disk, a loop device over a file, with an ext4 for
// pools.
type poolDisk struct {
	blockdev.Loop
	dir string
}

// newDisk makes and mounts one; the rig removes it.
func (r *rig) newDisk(sizeBytes int64, sectorBytes uint32, scheduler string, arguments ...string) poolDisk {
	r.t.Helper()
	id := rigs.Add(1)
	file := filepath.Join(r.home, fmt.Sprintf("disk%d", id))
	if err := imagefile.MakeSparse(file, uint64(sizeBytes)); err != nil {
		r.t.Fatal(err)
	}
	loop, err := blockdev.Attach(file, blockdev.AttachOptions{BlockSizeBytes: sectorBytes})
	if err != nil {
		r.t.Fatal(err)
	}
	d := poolDisk{loop, filepath.Join(r.home, fmt.Sprintf("on-disk%d", id))}
	previous, err := loop.Scheduler()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.endPoolOn(d)
		// The device number, and its scheduler, exist longer than the file.
		if err := loop.SetScheduler(previous.Current); err != nil {
			r.t.Error(err)
		}
		if err := loop.Detach(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	if scheduler != "" {
		if err := loop.SetScheduler(scheduler); err != nil {
			needs.That(r.t, !errors.Is(err, blockdev.ErrNoScheduler), "the scheduler "+scheduler)
			r.t.Fatal(err)
		}
	}
	if err := ext4.Make(r.t.Context(), loop.Node(), ext4.MakeOptions{BlockSizeBytes: 4096, Arguments: arguments}); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := ext4.Mount(loop.Node(), d.dir, ext4.MountOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.before = append(r.before, "loop of "+strings.TrimPrefix(file, r.home), "mount on "+strings.TrimPrefix(d.dir, r.home))
	return d
}

// endPoolOn detaches the rig's volumes on a disk that will be removed.
func (r *rig) endPoolOn(d poolDisk) {
	if r.pool != nil && strings.HasPrefix(r.pool.dir, d.dir) {
		if names, err := r.pool.files.Names(); err == nil {
			for _, name := range names {
				if err := r.pool.Detach(context.Background(), name); err != nil {
					r.t.Error(err)
				}
			}
		}
		r.unmountBelow(filepath.Join(r.home, "mnt"))
		if loops, err := blockdev.Loops(); err == nil {
			for _, loop := range loops {
				if strings.HasPrefix(loop.File, d.dir+"/") {
					_ = loop.DetachLazily()
				}
			}
		}
		r.pool = nil
	}
	if err := ext4.Unmount(context.Background(), d.dir); err != nil {
		r.t.Error(err)
		_ = unix.Unmount(d.dir, unix.MNT_DETACH)
	}
}
