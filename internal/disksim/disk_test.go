package disksim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestSeveralDisksAtATimeKeepTheirOwnData(t *testing.T) {
	r := newRig(t)
	const count = 3
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() {
			name := fmt.Sprintf("%sdisk-%d", testPrefix, i)
			disk, err := Create(context.Background(), Config{Name: name, StateDir: r.dir, SizeBytes: 64 << 20})
			if err != nil {
				t.Error(err)
				return
			}
			if err := checkFileSystem(t.TempDir(), disk, uint64(i)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := disk.Delete(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	r.wantNothingLeft()
}

// checkFileSystem writes random data through ext4 and the page cache, and reads
// it after a remount, which dropped the cache.
func checkFileSystem(point string, disk *Disk, seed uint64) error {
	ctx := context.Background()
	if err := ext4.Make(ctx, disk.DevicePath, ext4.MakeOptions{}); err != nil {
		return err
	}
	data := make([]byte, 8<<20)
	random := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = random.Read(data)
	path := filepath.Join(point, "data")
	for _, step := range []func() error{
		func() error { return os.WriteFile(path, data, 0o600) },
		func() error {
			got, err := os.ReadFile(path)
			if err == nil && !bytes.Equal(got, data) {
				err = errors.New("read other data than was written")
			}
			return err
		},
	} {
		if err := ext4.Mount(disk.DevicePath, point, ext4.MountOptions{}); err != nil {
			return err
		}
		if err := errors.Join(step(), ext4.Unmount(ctx, point)); err != nil {
			return err
		}
	}
	return nil
}

func TestConcurrentRequestsOfAllSizesReadWhatWasWritten(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "mixed", SizeBytes: 32 << 20, Parameters: Parameters{RequestSeconds: 20e-6}})
	fd, err := unix.Open(disk.DevicePath, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	var group sync.WaitGroup
	const writers, region = 8, 4 << 20
	for w := range writers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			buffer, err := unix.Mmap(-1, 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = unix.Munmap(buffer) }()
			shadow := make([]byte, region)
			for range 60 {
				// A request above 1 MiB arrives in parts.
				length := 512 * (1 + random.IntN(len(buffer)/512))
				offset := 512 * random.IntN((region-length)/512+1)
				part := buffer[:length]
				at := int64(w*region + offset)
				if random.IntN(2) == 0 {
					fill := byte(random.Uint32())
					for i := range part {
						part[i] = fill + byte(i>>9)
					}
					if n, err := unix.Pwrite(fd, part, at); err != nil || n != length {
						t.Errorf("wrote %d of %d bytes at %d: %v", n, length, at, err)
						return
					}
					copy(shadow[offset:], part)
				} else if n, err := unix.Pread(fd, part, at); err != nil || n != length || !bytes.Equal(part, shadow[offset:offset+length]) {
					t.Errorf("read %d of %d bytes at %d, or others than written: %v", n, length, at, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestTheDeviceHasTheRequestedProperties(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "asked", SizeBytes: 1 << 30, Parameters: presets["hdd"], Scheduler: "mq-deadline"})
	before := disk.Record().PreviousScheduler
	if size, err := disk.Device.SizeBytes(); err != nil || size != 1<<30 {
		t.Errorf("size %d, %v", size, err)
	}
	if direct, err := disk.Device.DirectIO(); err != nil || !direct {
		t.Errorf("direct I/O %v, %v", direct, err)
	}
	if scheduler, err := disk.Device.Scheduler(); err != nil || scheduler.Current != "mq-deadline" {
		t.Errorf("scheduler %+v, %v", scheduler, err)
	}
	if rotational, err := disk.Device.Queue("rotational"); err != nil || rotational != "1" {
		t.Errorf("rotational %q, %v", rotational, err)
	}
	records, err := List(r.dir)
	if err != nil || len(records) != 1 || records[0] != disk.Record() {
		t.Errorf("listed %+v, %v; want %+v", records, err, disk.Record())
	}
	if err := disk.Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
	if scheduler, err := disk.Device.Scheduler(); err == nil && before != "" && scheduler.Current != before {
		t.Errorf("scheduler is %s after the deletion, was %s before", scheduler.Current, before)
	}
	if err := disk.Delete(context.Background()); err != nil {
		t.Errorf("second deletion: %v", err)
	}
	if err := Delete(context.Background(), r.dir, disk.Name); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

// The kernel keeps the value of a loop device when its file is detached, and changes it when
// one is attached.
func TestTheFreeDeviceIsRotationalAgainIfItWasSo(t *testing.T) {
	r := newRig(t)
	for _, model := range []string{"ssd", "hdd"} {
		earlier := map[string]string{}
		for n := range 256 {
			name := fmt.Sprintf("loop%d", n)
			if text, err := os.ReadFile("/sys/block/" + name + "/queue/rotational"); err == nil {
				earlier[name] = strings.TrimSpace(string(text))
			}
		}
		disk := r.create(Config{Name: model, Parameters: presets[model]})
		before := disk.Record().PreviousRotational
		if want, known := earlier[disk.Device.Name]; before == "" || known && before != want {
			t.Errorf("%s: %s was %q, the record says %q", model, disk.Device.Name, want, before)
		}
		if err := disk.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after, err := disk.Device.Queue("rotational"); err != nil || after != before {
			t.Errorf("%s: %s is %q, %v, after the deletion, was %q before", model, disk.Device.Name, after, err, before)
		}
	}
}

func TestTheSchedulerIsBFQByDefault(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "bfq"})
	scheduler, err := disk.Device.Scheduler()
	needs.That(t, err != nil || slices.Contains(scheduler.Available, blockdev.BFQ), "the BFQ scheduler")
	if err != nil || scheduler.Current != blockdev.BFQ {
		t.Errorf("scheduler %+v, %v; want bfq", scheduler, err)
	}
}

func TestTheSchedulerIsANewOneForEachDisk(t *testing.T) {
	r := newRig(t)
	const tunable, odd = "slice_idle", "3"
	for range 5 { // other programs may get the number between the disks
		first := r.create(Config{Name: "first", Scheduler: KeepScheduler})
		before, err := first.Device.Scheduler()
		needs.That(t, err != nil || slices.Contains(before.Available, blockdev.BFQ), "the BFQ scheduler")
		if err := first.Device.RenewScheduler(blockdev.BFQ); err != nil {
			t.Fatal(err)
		}
		usual, err := first.Device.Tunable(tunable)
		if err != nil || usual == odd {
			t.Fatalf("%s is %q, %v", tunable, usual, err)
		}
		if err := errors.Join(first.Device.SetTunable(tunable, odd), first.Delete(context.Background())); err != nil {
			t.Fatal(err)
		}
		second := r.create(Config{Name: "second"})
		same := second.Device.Name == first.Device.Name
		var initial, left string
		if same {
			initial, err = second.Device.Tunable(tunable)
			err = errors.Join(err, second.Device.SetTunable(tunable, odd))
		}
		err = errors.Join(err, second.Delete(context.Background()))
		if same {
			var leftErr error
			left, leftErr = second.Device.Tunable(tunable)
			err = errors.Join(err, leftErr)
		}
		// The first disk kept the existing scheduler, and so nothing was
		// restored.
		if err := errors.Join(err, first.Device.RenewScheduler(before.Current)); err != nil {
			t.Fatal(err)
		}
		if same {
			if initial != usual || left != usual {
				t.Errorf("%s was %s in a new disk and %s after it, want the kernel's %s", tunable, initial, left, usual)
			}
			return
		}
	}
	t.Fatal("another process got the loop device's number five times")
}

// This is the state after a kill at any time; a scheduler that another program
// chose meanwhile stays.
func TestTheSchedulerIsRestoredUnlessAnotherProgramChangedIt(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "back", Scheduler: KeepScheduler})
	before, err := disk.Device.Scheduler()
	needs.That(t, err != nil || slices.Contains(before.Available, blockdev.BFQ), "the BFQ scheduler")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := disk.Device.SetScheduler(before.Current); err != nil {
			t.Error(err)
		}
	}()
	const other = "mq-deadline"
	for _, c := range []struct{ found, previous, want string }{
		{blockdev.BFQ, other, other},
		{blockdev.NoScheduler, other, other}, // between two instances
		{other, blockdev.NoScheduler, other}, // set by another program
	} {
		record := Record{Device: disk.Device.Name, Scheduler: blockdev.BFQ, PreviousScheduler: c.previous}
		if err := errors.Join(disk.Device.SetScheduler(c.found), restoreScheduler(disk.Device, record)); err != nil {
			t.Fatal(err)
		}
		if now, err := disk.Device.Scheduler(); err != nil || now.Current != c.want {
			t.Errorf("%+v: it is %+v, %v", c, now, err)
		}
	}
}

func TestAFailedCreationLeavesNothing(t *testing.T) {
	r := newRig(t)
	for name, wrong := range map[string]struct {
		config Config
		want   error
	}{
		"name":      {Config{Name: "No"}, ErrInvalid},
		"size":      {Config{Name: "no", SizeBytes: 1000}, ErrInvalid},
		"model":     {Config{Name: "no", Parameters: Parameters{FlushSeconds: -1}}, ErrInvalid},
		"scheduler": {Config{Name: "no", Scheduler: "cfq-of-old"}, ErrUnsupported},
		"file":      {Config{Name: "no", Backing: "/no/such/directory/file"}, os.ErrNotExist},
		"program":   {Config{Name: "no", Executable: "/bin/true"}, nil},
		"no server": {Config{Name: "no", Executable: "/no/such/program"}, os.ErrNotExist},
	} {
		wrong.config.StateDir = r.dir
		disk, err := Create(context.Background(), wrong.config)
		if err == nil {
			t.Errorf("%s: created %s", name, disk.DevicePath)
			continue
		}
		// Errors of the server arrive as text.
		if wrong.want != nil && !errors.Is(err, wrong.want) && !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s: got %v, want %v", name, err, wrong.want)
		}
		r.wantNothingLeft()
	}
}

func TestAFailedCreationRemovesAFileThatItMade(t *testing.T) {
	r := newRig(t)
	for _, before := range []string{"", "data"} {
		file := filepath.Join(t.TempDir(), "data")
		config := Config{Name: "no", SizeBytes: 1 << 20, Scheduler: "cfq-of-old", Backing: file, StateDir: r.dir}
		if before != "" {
			if err := errors.Join(os.WriteFile(file, []byte(before), 0o600), os.Truncate(file, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Create(context.Background(), config); !errors.Is(err, ErrUnsupported) {
			t.Fatalf("got %v, want ErrUnsupported", err)
		}
		switch got, err := os.ReadFile(file); {
		case before == "" && !errors.Is(err, os.ErrNotExist):
			t.Errorf("the file that it made is left: %v", err)
		case before != "" && (len(got) != 1<<20 || string(got[:len(before)]) != before):
			t.Errorf("the file that was there has %d bytes: %v", len(got), err)
		}
	}
}

// A disk of another creator may have taken the file meanwhile. It has no data yet.
func TestTheFileOfAnotherDiskIsNotRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	other, err := openStore(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := removeEmpty(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("while another disk has the file: %v", err)
	}
	if err := errors.Join(other.file.Close(), removeEmpty(path)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after its end: %v", err)
	}
}

func TestANameIsUnique(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "once"})
	if _, err := Create(context.Background(), Config{Name: disk.Name, StateDir: r.dir}); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
}

func TestAMountedDiskIsNotDeletedAndTheErrorNamesTheMount(t *testing.T) {
	r := newRig(t)
	disk := r.create(Config{Name: "mounted", Scheduler: "mq-deadline"})
	point := r.mount(disk.DevicePath)
	before, beforeErr := disk.Device.Scheduler()
	err := disk.Delete(context.Background())
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), point) {
		t.Errorf("got %v, want ErrBusy and %s", err, point)
	}
	after, afterErr := disk.Device.Scheduler()
	if beforeErr != nil || afterErr != nil || before.Current != after.Current {
		t.Errorf("the scheduler was %s and is %s after the refusal", before.Current, after.Current)
	}
	if err := os.WriteFile(filepath.Join(point, "still"), []byte("there"), 0o600); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
	if err := ext4.Unmount(context.Background(), point); err != nil {
		t.Fatal(err)
	}
	if err := disk.Delete(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestDataInAFileSurviveTheDisk(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	for i, name := range []string{"first", "second"} {
		disk := r.create(Config{Name: name, Backing: path})
		var point string
		if i == 0 {
			point = r.mount(disk.DevicePath)
			if err := os.WriteFile(filepath.Join(point, "kept"), []byte("data"), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			point = r.mountOnly(disk.DevicePath)
			if got, err := os.ReadFile(filepath.Join(point, "kept")); err != nil || string(got) != "data" {
				t.Errorf("read %q, %v", got, err)
			}
		}
		if err := ext4.Unmount(context.Background(), point); err != nil {
			t.Fatal(err)
		}
		if err := disk.Delete(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// Each would overwrite the other's data.
func TestTwoDisksHaveNotTheSameFile(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	first := r.create(Config{Name: "first", Backing: path})
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, link} {
		_, err := Create(context.Background(), Config{Name: "second", SizeBytes: first.Record().SizeBytes, Backing: file, StateDir: r.dir})
		if err == nil || !strings.Contains(err.Error(), "another disk has its data in "+file) {
			t.Errorf("a second disk with %s: %v", file, err)
		}
	}
	if err := first.Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.create(Config{Name: "second", Backing: path})
}

func TestDiscardedRangesReadAsZerosAndFreeTheirSpace(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	disk := r.create(Config{Name: "discard", Backing: path, SizeBytes: 64 << 20})
	file, err := os.OpenFile(disk.DevicePath, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(bytes.Repeat([]byte{0xff}, 16<<20), 0); err != nil {
		t.Fatal(err)
	}
	if used := filetest.AllocatedBytes(t, path); used < 16<<20 {
		t.Errorf("the file takes %d bytes after writing 16 MiB", used)
	}
	ends := [2]uint64{4 << 20, 8 << 20}
	if err := discard(file, ends); err != nil {
		t.Fatal(err)
	}
	if used := filetest.AllocatedBytes(t, path); used > 9<<20 {
		t.Errorf("the file takes %d bytes after discarding 8 of 16 MiB", used)
	}
	got := make([]byte, 16<<20)
	if _, err := file.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{0xff}, 16<<20)
	clear(want[4<<20 : 12<<20])
	if !bytes.Equal(got, want) {
		t.Error("not exactly the discarded range reads as zeros")
	}
}
