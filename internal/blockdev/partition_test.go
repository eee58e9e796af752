package blockdev

import (
	"errors"
	"os"
	"slices"
	"testing"
)

func TestPartitionsAreNamedAsTheKernelDoes(t *testing.T) {
	for disk, want := range map[string]string{"loop0": "loop0p2", "nvme0n1": "nvme0n1p2", "vda": "vda2"} {
		if got := partitionName(disk, 2); got != want {
			t.Errorf("partition 2 of %s is called %s, not %s", disk, got, want)
		}
	}
}

// wantPartitions checks which partitions the kernel knows of a disk.
func wantPartitions(t *testing.T, disk Disk, want ...int) {
	t.Helper()
	got, err := partitionNumbers(disk)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s has the partitions %v, %v; want %v", disk.Name, got, err, want)
	}
}

func divided(t *testing.T) Loop {
	t.Helper()
	loop := attachForTest(t, imageFile(t, 8<<20), AttachOptions{})
	if _, err := AddPartitions(loop.Disk, 2, 2<<20); err != nil {
		t.Fatal(err)
	}
	wantPartitions(t, loop.Disk, 1, 2)
	return loop
}

func TestDetachingALoopDeviceRemovesItsPartitions(t *testing.T) {
	needLoop(t)
	for name, detach := range map[string]func(Loop) error{
		"at once":   func(l Loop) error { return l.Detach(t.Context()) },
		"unwatched": Loop.DetachLazily,
	} {
		t.Run(name, func(t *testing.T) {
			loop := divided(t)
			if err := detach(loop); err != nil {
				t.Fatal(err)
			}
			wantPartitions(t, loop.Disk)
		})
	}
}

// A partition that is open while the file is detached stays.
func TestAFileHasNotThePartitionsOfTheFileBefore(t *testing.T) {
	needLoop(t)
	for range 100 {
		before := divided(t)
		open, err := os.Open("/dev/" + partitionName(before.Name, 2))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(before.DetachLazily(), open.Close(), before.awaitDetached(t.Context())); err != nil {
			t.Fatal(err)
		}
		wantPartitions(t, before.Disk, 2)
		after := attachForTest(t, imageFile(t, 4<<20), AttachOptions{})
		if after.Name == before.Name { // no other program was faster
			wantPartitions(t, after.Disk)
			return
		}
	}
	t.Fatal("the loop device was never the same")
}
