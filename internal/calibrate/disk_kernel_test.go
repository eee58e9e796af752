package calibrate

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/iocost"
	"github.com/daybook-project/daybook/internal/needs"
)

// The simulated hard disk says itself what it does: 40 MB/s, and a seek by its
// distance.
func TestCoefficientsAreThoseOfTheSimulatedDisk(t *testing.T) {
	lab := fixturetest.New(t)
	needs.Tool(t, "fio")
	parameters, err := disksim.Preset("hdd")
	if err != nil {
		t.Fatal(err)
	}
	fs, err := fixture.MakeFileSystem(t.Context(), lab.Tree, fixture.Options{Parameters: parameters, SizeBytes: 1 << 30, JournalBytes: 16 << 20, Scheduler: blockdev.NoScheduler})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(fs.Disk.SetInstant(true), fs.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := fs.Disk.SetInstant(false); err != nil {
		t.Fatal(err)
	}
	const fileBytes = 128 << 20
	bandwidth := parameters.BandwidthBytesPerSecond
	// The mean of the square root of the distance of two random places is 8/15.
	part := math.Sqrt(fileBytes/float64(1<<30)) * 8 / 15
	seek := parameters.TrackToTrackSeekSeconds + (parameters.FullStrokeSeekSeconds-parameters.TrackToTrackSeekSeconds)*part
	random := 1 / (seek + smallBlock/bandwidth)
	// A busy host makes the disk slower, never faster: the best of several counts.
	var best iocost.Coefficients
	low := func(got uint64, want, tolerance float64) bool { return float64(got) < (1-tolerance)*want }
	for attempt := range 5 {
		var progress []string
		m, err := MeasureDisk(t.Context(), DiskOptions{Device: fs.Disk.Device.Name, Dir: fs.Directory, FileBytes: fileBytes, Time: time.Second,
			Progress: func(what string, done, total int) { progress = append(progress, what) }})
		if err != nil {
			t.Fatal(err)
		}
		c := m.Coefficients
		t.Logf("%+v", c)
		if len(progress) != 7 || m.Directory != fs.Directory || m.Scheduler != blockdev.NoScheduler {
			t.Errorf("progress %q, model %+v", progress, m)
		}
		for name, compared := range map[string]struct{ got, most float64 }{
			"rbps":      {float64(c.ReadBytesPerSecond), 1.1 * bandwidth},
			"wbps":      {float64(c.WriteBytesPerSecond), 1.1 * bandwidth},
			"rrandiops": {float64(c.ReadRandomPerSecond), 1.3 * random},
			"wrandiops": {float64(c.WriteRandomPerSecond), 1.3 * random},
			"rseqiops":  {float64(c.ReadSequentialPerSecond), 1.1 * bandwidth / smallBlock},
			"wseqiops":  {float64(c.WriteSequentialPerSecond), 1.1 * bandwidth / smallBlock},
		} {
			if compared.got > compared.most {
				t.Errorf("attempt %d: %s is %.0f; the disk can do %.0f at most", attempt, name, compared.got, compared.most)
			}
		}
		best = iocost.Coefficients{
			ReadBytesPerSecond: max(best.ReadBytesPerSecond, c.ReadBytesPerSecond), WriteBytesPerSecond: max(best.WriteBytesPerSecond, c.WriteBytesPerSecond),
			ReadRandomPerSecond: max(best.ReadRandomPerSecond, c.ReadRandomPerSecond), WriteRandomPerSecond: max(best.WriteRandomPerSecond, c.WriteRandomPerSecond),
			ReadSequentialPerSecond: max(best.ReadSequentialPerSecond, c.ReadSequentialPerSecond),
		}
		if !low(best.ReadBytesPerSecond, bandwidth, 0.1) && !low(best.WriteBytesPerSecond, bandwidth, 0.1) && !low(best.ReadRandomPerSecond, random, 0.3) &&
			!low(best.WriteRandomPerSecond, random, 0.3) && best.ReadSequentialPerSecond > 2*best.ReadRandomPerSecond {
			wantNothingLeft(t, fs.Directory)
			return
		}
	}
	// How many small requests in sequence it does depends on the host's processor.
	t.Errorf("the best of all attempts is %+v; want %.0f bytes and %.0f random requests a second, and twice as many requests in sequence", best, bandwidth, random)
}

func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), workDirPrefix) {
			t.Errorf("left behind: %s", entry.Name())
		}
	}
}

// A colon separates files for fio, which works in a directory of its own.
func TestTheDirectoryOfADiskCalibrationMayBeRelativeAndHaveAColon(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	needs.Tool(t, "fio")
	if err := os.Mkdir(filepath.Join(fs.Dir, "a:b"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(fs.Dir)
	m, err := MeasureDisk(t.Context(), DiskOptions{Device: fs.Disk.Name, Dir: "a:b", FileBytes: MinDiskFileBytes, Time: time.Second})
	if want := filepath.Join(fs.Dir, "a:b"); err != nil || m.Directory != want {
		t.Errorf("%q, %v; want %s", m.Directory, err, want)
	}
	t.Chdir("/")
	wantNothingLeft(t, filepath.Join(fs.Dir, "a:b"))
}

func TestAMountPointOfAnotherUserIsNotChosenForADiskCalibration(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	needs.Tool(t, "fio")
	if err := os.Chown(fs.Dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": "name a directory", fs.Dir: "user 65534"} {
		_, err := MeasureDisk(t.Context(), DiskOptions{Device: fs.Disk.Name, Dir: dir, FileBytes: MinDiskFileBytes, Time: time.Second})
		if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v; want ErrUnsuitable with %q", dir, err, want)
		}
	}
	wantNothingLeft(t, fs.Dir)
}

// zram, where the kernel has it. Loop devices have queues, as the other tests need.
func TestADiskWithoutRequestQueuesIsRefused(t *testing.T) {
	needs.Root(t)
	needs.Tool(t, "fio")
	disks, err := blockdev.Disks()
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range disks {
		if !strings.HasPrefix(disk.Name, "zram") {
			continue
		}
		if _, err := MeasureDisk(t.Context(), DiskOptions{Device: disk.Name, Time: time.Second}); !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "needs them") {
			t.Errorf("%s: %v", disk.Name, err)
		}
	}
}

func TestADiskWhoseIOIsNotCountedIsRefusedWithTheCommand(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	needs.Tool(t, "fio")
	if err := fs.Disk.SetQueue("iostats", "0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Disk.SetQueue("iostats", "1"); err != nil {
			t.Error(err)
		}
	})
	_, err := MeasureDisk(t.Context(), DiskOptions{Device: fs.Disk.Name, Time: time.Second})
	if want := "echo 1 > /sys/block/" + fs.Disk.Name + "/queue/iostats"; !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
}

func TestAnInterruptedDiskCalibrationLeavesNothing(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	needs.Tool(t, "fio")
	for _, at := range []int{0, 1} { // while the file is made, and while fio runs
		ctx, cancel := context.WithCancel(t.Context())
		_, err := MeasureDisk(ctx, DiskOptions{Device: fs.Disk.Name, FileBytes: MinDiskFileBytes, Time: time.Minute, Progress: func(_ string, done, _ int) {
			if done == at {
				time.AfterFunc(time.Duration(at)*300*time.Millisecond, cancel)
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at %d: %v", at, err)
		}
		wantNothingLeft(t, fs.Dir)
	}
}

func TestADiskThatHoldsSomethingIsNotOverwritten(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{ExternalJournal: true})
	needs.Tool(t, "fio")
	needs.Tool(t, "wipefs")
	measure := func(o DiskOptions) error {
		o.Time = time.Second
		_, err := MeasureDisk(t.Context(), o)
		return err
	}
	elsewhere := t.TempDir()
	for name, o := range map[string]DiskOptions{
		"mounted":                       {Device: fs.Disk.Name, RawWrites: true},
		"the journal of another":        {Device: fs.Journal.Name, RawWrites: true},
		"no such disk":                  {Device: "daybook-none"},
		"no file system on it":          {Device: fs.Journal.Name},
		"a directory elsewhere":         {Device: fs.Disk.Name, Dir: elsewhere},
		"no directory":                  {Device: fs.Disk.Name, Dir: fs.Dir + "/none"},
		"more than half of what's free": {Device: fs.Disk.Name, FileBytes: 250 << 20},
	} {
		if err := measure(o); !errors.Is(err, ErrUnsuitable) {
			t.Errorf("%s: %v; want it refused", name, err)
		}
	}
	unused := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(unused, nil, 0o600), os.Truncate(unused, 64<<20), ext4.Make(t.Context(), unused, ext4.MakeOptions{BlockSizeBytes: 4096})); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.Attach(unused, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	err = measure(DiskOptions{Device: loop.Name, RawWrites: true})
	if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "ext4") || !strings.Contains(err.Error(), "wipefs --all") {
		t.Errorf("unused, with a file system: %v; want it refused, with the command that empties it", err)
	}
	wantNothingLeft(t, fs.Dir)
}

func TestFioIsNamedIfItIsMissing(t *testing.T) {
	needs.Root(t)
	t.Setenv("PATH", t.TempDir())
	if _, err := MeasureDisk(t.Context(), DiskOptions{Device: "sda", Time: time.Second}); !errors.Is(err, ErrDiskUnsupported) || !strings.Contains(err.Error(), "install fio") {
		t.Errorf("%v; want advice", err)
	}
}
