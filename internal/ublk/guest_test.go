package ublk

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// withDriver is the kernel that Debian builds with ublk_drv.
const withDriver = "6.12"

// What is written to the disk is in the image, at its place, and the kernel charges it to
// the cgroup of the server.
func TestGuestAnImageIsServed(t *testing.T) {
	vmtest.Long(t)
	if !slices.Contains(vmtest.Kernels(t), withDriver) {
		t.Skipf("want kernel %s", withDriver)
	}
	t.Setenv("DAYBOOK_VM_KERNELS", withDriver)
	vmtest.InGuest(t, vmtest.Config{Disks: []string{"256M"}, Modules: "ext4,ublk_drv", Give: []string{"mke2fs"}}, func(t *testing.T) {
		lower, err := blockdev.Lookup(vmtest.Device(t, "disk0"))
		if err != nil {
			t.Fatal(err)
		}
		if err := ext4.Make(t.Context(), lower.Node(), ext4.MakeOptions{}); err != nil {
			t.Fatal(err)
		}
		directory := t.TempDir()
		if err := ext4.Mount(lower.Node(), directory, ext4.MountOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := ext4.Unmount(t.Context(), directory); err != nil {
				t.Error(err)
			}
		}()
		const pieces, pieceBytes = 64, 512<<10 + 4096 // more than one request each
		image := filepath.Join(directory, "image")
		if err := os.WriteFile(image, make([]byte, pieces*pieceBytes), 0o600); err != nil {
			t.Fatal(err)
		}
		tree := cgrouptest.Tree(t)
		at := cgrouptest.New(t, tree, "ublk")
		server, err := Start(image, filepath.Join(tree.Root(), at))
		if err != nil {
			t.Fatal(err)
		}
		random := rand.NewChaCha8([32]byte{1})
		want := make([]byte, pieces*pieceBytes)
		_, _ = random.Read(want)
		disk, err := os.OpenFile(server.Node, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		var writers sync.WaitGroup
		for n := range pieces {
			writers.Go(func() {
				if _, err := disk.WriteAt(want[n*pieceBytes:][:pieceBytes], int64(n*pieceBytes)); err != nil {
					t.Error(err)
				}
				if err := disk.Sync(); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if got, err := os.ReadFile(image); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the image differs from what was written: %v", err)
		}
		counted, err := tree.IO(at)
		if err != nil || counted[lower.Dev].WriteBytes < uint64(len(want)) {
			t.Errorf("charged to the server: %+v, %v; want at least %d bytes", counted[lower.Dev], err, len(want))
		}
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(server.Node); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", server.Node, err)
		}
		// Served again, it reads what is in the image.
		if server, err = Start(image, filepath.Join(tree.Root(), at)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(server.Node); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the disk differs from the image: %v", err)
		}
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
}
