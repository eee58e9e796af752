package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

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

func createAndSync(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
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
	var written uint64
	for _, c := range sample.Devices[0].Containers {
		written += c.ChargedWriteBytes
	}
	for _, c := range sample.Devices[0].Containers {
		if c.Cgroup == v.JournalCgroup && c.ChargedWriteBytes > 10*c.ReturnedBytes && c.ChargedWriteBytes > written/2 {
			return
		}
	}
	t.Errorf("the journal of %s is not charged to %s: %s", s.name, v.JournalCgroup, out)
}
