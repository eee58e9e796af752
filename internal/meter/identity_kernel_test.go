package meter_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/meter"
	"github.com/daybook-project/daybook/internal/workload"
)

// plain names a cgroup by its path.
type plain struct{}

func (plain) Identify(path string) (top, name, runtime string) { return path, path, "" }

// identityRig is a meter, and two cgroups that make directories in turn.
type identityRig struct {
	meter *meter.Meter
	tree  *cgroup.Tree
	paths [2]string
}

// newIdentityRig also needs a mounted file system, because the probe needs
// jbd2.
func newIdentityRig(t *testing.T) *identityRig {
	t.Helper()
	tree := cgrouptest.Tree(t)
	r := &identityRig{tree: tree}
	for n, name := range []string{"a", "b"} {
		r.paths[n] = cgrouptest.New(t, tree, name)
	}
	var err error
	if r.meter, err = meter.Open(t.Context(), meter.Options{Interval: time.Minute, Tree: tree, Naming: plain{}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.meter.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// work lets a cgroup make directories, and writes all of it back: first the
// journal, then the same blocks in place.
func (r *identityRig) work(t *testing.T, who int, on ext4test.FileSystem) {
	t.Helper()
	r.change(t, who, on, workload.Mkdir)
	flush(t, on.Dir, unix.Syncfs)
	flush(t, on.Disk.Node(), unix.Fsync)
}

// change lets a cgroup do an operation 1500 times.
func (r *identityRig) change(t *testing.T, who int, on ext4test.FileSystem, operation string) {
	t.Helper()
	spec := workload.Spec{Jobs: []workload.Job{{Operation: operation, In: filepath.Join(on.Dir, operation), Count: 1500}}}
	for _, prepare := range []bool{true, false} {
		spec.Prepare = prepare
		child, err := workload.Start(spec, r.tree.Root()+r.paths[who])
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Go(); err != nil {
			t.Error(err)
		}
		if _, err := child.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func flush(t *testing.T, path string, call func(fd int) error) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = call(fd)
		_ = unix.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// account ends the interval, and returns the line of the disk and the lines of
// both cgroups in it.
func (r *identityRig) account(t *testing.T, on ext4test.FileSystem) (account.Device, [2]account.Container) {
	t.Helper()
	sample, err := r.meter.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range sample.Devices {
		if device.Device != on.Disk.Name {
			continue
		}
		var lines [2]account.Container
		for _, c := range device.Containers {
			for n, path := range r.paths {
				if c.Cgroup == path {
					lines[n] = c
				}
			}
		}
		t.Logf("%s: %d bytes in place; a %d, b %d; journal %d: a %d, b %d; unaccounted %d of %d", device.Volume, device.MetadataBytes,
			lines[0].MetadataBytes, lines[1].MetadataBytes, device.JournalBytes, lines[0].JournalBytes, lines[1].JournalBytes, device.UnaccountedBytes, device.DiskBytes)
		return device, lines
	}
	t.Fatalf("no line for %s", on.Disk.Name)
	return account.Device{}, [2]account.Container{}
}

// unmountBytes is the maximum that an unmount itself writes in place.
const unmountBytes = 64 << 10

// onlyOf checks that the metadata of the interval belongs to one cgroup: the
// one that worked.
func onlyOf(t *testing.T, who int, device account.Device, lines [2]account.Container) {
	t.Helper()
	if lines[who].MetadataBytes < 256<<10 || lines[who].JournalBytes < 256<<10 {
		t.Errorf("%s wrote %d bytes in place and %d of journal: it shows nothing", lines[who].Cgroup, lines[who].MetadataBytes, lines[who].JournalBytes)
	}
	if other := lines[1-who]; other.Hidden() > unmountBytes {
		t.Errorf("the earlier file system belonged to cgroup %c: %d bytes in place (%.0f %% of the disk's), %d of journal, %d of data are charged to it",
			'a'+1-who, other.MetadataBytes, 100*float64(other.MetadataBytes)/float64(device.MetadataBytes), other.JournalBytes, other.UnchargedBytes)
	}
}

func TestADiskWithTheNumberOfAnotherInheritsNothing(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{Image: "volumes/one/image"})
	if err := os.WriteFile(filepath.Join(fs.Home, "daybook-pool.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	rig := newIdentityRig(t)
	rig.work(t, 0, fs)
	device, lines := rig.account(t, fs)
	onlyOf(t, 0, device, lines)
	if device.Volume != "one" {
		t.Errorf("volume %q, want one", device.Volume)
	}

	fs = fs.Replace(t, "volumes/two/image", ext4.MakeOptions{BlockSizeBytes: 4096})
	rig.work(t, 1, fs)
	device, lines = rig.account(t, fs)
	onlyOf(t, 1, device, lines)
	if device.Volume != "two" {
		t.Errorf("volume %q, want two", device.Volume)
	}
}

func TestARecreatedFileSystemInheritsNothing(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	rig := newIdentityRig(t)
	rig.work(t, 0, fs)
	device, lines := rig.account(t, fs)
	onlyOf(t, 0, device, lines)
	before, ok := meter.MountedFrom(fs.Dev())
	fs = fs.Replace(t, "", ext4.MakeOptions{BlockSizeBytes: 1024})
	after, stillOK := meter.MountedFrom(fs.Dev())
	if !ok || !stillOK || before.Number != fs.Dev() || before.Dev != after.Dev || before.Mount == after.Mount {
		t.Errorf("mounted %+v, %v; then %+v, %v: want another mount of the same device", before, ok, after, stillOK)
	}
	rig.work(t, 1, fs)
	device, lines = rig.account(t, fs)
	onlyOf(t, 1, device, lines)
}

// Writes during an unmount belong to the cgroups that changed the file system.
func TestTheLastCheckpointBelongsToTheFormerOwners(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	rig := newIdentityRig(t)
	rig.work(t, 0, fs)
	rig.account(t, fs)
	rig.change(t, 0, fs, workload.Creat)
	fs = fs.Replace(t, "", ext4.MakeOptions{BlockSizeBytes: 4096})
	device, lines := rig.account(t, fs)
	onlyOf(t, 0, device, lines)
	if root := int64(device.MetadataBytes) - int64(lines[0].MetadataBytes); root > int64(device.MetadataBytes)/10 {
		t.Errorf("%d of %d bytes in place are not its own", root, device.MetadataBytes)
	}
}
