package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/blockdev"
)

func TestConfigNamesOneOrSeveralDisks(t *testing.T) {
	for text, want := range map[string][]string{
		"device: sda": {"sda"}, "devices: [sda, sdb]": {"sda", "sdb"}, "devices: [sda]": {"sda"}, "": nil,
	} {
		if config, err := ReadConfig(strings.NewReader(text), "test"); err != nil || !slices.Equal(config.Devices, want) {
			t.Errorf("%s: %q, %v", text, config.Devices, err)
		}
	}
	for text, want := range map[string]string{
		"device: sda\ndevices: [sdb]": "one of the two", "devices: [sda, sda]": "twice", "devices: ['']": "not a name",
		"devices: sda": "did not expect", "devices: [[sda]]": "did not expect",
	} {
		if _, err := ReadConfig(strings.NewReader(text), "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// onTwoDisks is a sample in which each container writes to the journal of one of
// two disks.
func onTwoDisks() account.Sample {
	return account.Sample{IntervalSeconds: 5, Devices: []account.Device{
		{Device: "loop0", Containers: []account.Container{did("/ca", 100e6, 0), did("/cb", 70e6, 30e6)}},
		{Device: "loop1", Containers: []account.Container{did("/ca", 70e6, 30e6), did("/cb", 100e6, 0)}},
	}}
}

// twoDisks are the options for two fake disks with cgroups of the same names.
// The second is gone after some steps.
func twoDisks(t *testing.T, one, two *fakeHost, gone *bool, steps int) Options {
	t.Helper()
	options := fakeOptions(t, one, twoEqual, repeat(steps, onTwoDisks)...)
	options.Disks = append(options.Disks, Disk{Device: "loop1", Dev: "7:1", Host: two.host(), Present: func() error {
		if *gone {
			return blockdev.ErrGone
		}
		return nil
	}})
	return options
}

func TestSeveralDisksAreControlledEachByItself(t *testing.T) {
	one, two := newFakeHost("/ca", "/cb"), newFakeHost("/ca", "/cb")
	gone := false
	options := twoDisks(t, one, two, &gone, 6)
	last := map[string]Decision{}
	options.OnInterval = func(d Decision) {
		last[d.Device] = d
		for _, device := range []string{"loop0", "loop1"} {
			if state, err := LoadState(options.Config.StateDir, device); err != nil || state.Device != device || len(state.Cgroups) != 2 {
				t.Errorf("the state of %s: %+v, %v", device, state, err)
			}
			var busy *BusyError
			if _, err := AcquireLock(options.Config.StateDir, device, ""); !errors.As(err, &busy) {
				t.Errorf("%s is not locked: %v", device, err)
			}
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	a, b := last["loop0"].Weights, last["loop1"].Weights
	if len(a) != 2 || len(b) != 2 || a[1].After >= 480 || b[0].After >= 480 || a[0].After <= 520 || b[1].After <= 520 {
		t.Errorf("loop0 %+v, loop1 %+v; want the one reduced that logs on each", a, b)
	}
	for _, f := range []*fakeHost{one, two} {
		if f.weight("/ca") != (Setting{Default: 100}) || f.weight("/cb") != (Setting{Default: 100}) {
			t.Errorf("in the end %+v", f.weights)
		}
	}
	if left, _ := StateDevices(options.Config.StateDir); len(left) != 0 {
		t.Errorf("states left: %v", left)
	}
}

func TestADiskThatIsGoneEndsOnlyItsOwnControl(t *testing.T) {
	one, two := newFakeHost("/ca", "/cb"), newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	gone := false
	options := twoDisks(t, one, two, &gone, 8)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	count := map[string]int{}
	options.OnInterval = func(d Decision) {
		count[d.Device]++
		gone = count["loop1"] == 3
	}
	var ended []string
	options.OnEnd = func(device string) { ended = append(ended, device) }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ended, []string{"loop1"}) {
		t.Errorf("ended: %q; want loop1", ended)
	}
	if count["loop0"] != 8 || count["loop1"] != 3 {
		t.Errorf("intervals: %v; want 8 of loop0 and 3 of loop1", count)
	}
	if n := strings.Count(log.String(), "its control ends"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	if two.weight("/ca") != (Setting{Default: 100}) || one.weight("/ca") != (Setting{Default: 100}) {
		t.Errorf("in the end %+v %+v", one.weights, two.weights)
	}
	// The end of the last one ends all.
	gone = true
	options.Disks = options.Disks[1:]
	if err := Run(context.Background(), options); !errors.Is(err, blockdev.ErrGone) {
		t.Errorf("without a disk: %v", err)
	}
	t.Run("reload before it is noticed", func(t *testing.T) { reloadWithoutADisk(t, 3, nil) })
	t.Run("reload after it was noticed", func(t *testing.T) { reloadWithoutADisk(t, 4, nil) })
	t.Run("reload that finds no meter", func(t *testing.T) { reloadWithoutADisk(t, 4, errors.New("no BTF")) })
}

// A read of sysfs can fail for another reason, as when the host has too many open files.
func TestADiskThatCannotBeLookedAtForAMomentStaysControlled(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	options := fakeOptions(t, f, twoEqual, repeat(8, journalling)...)
	count := 0
	options.Disks[0].Present = func() error {
		if count >= 2 && count < 5 || count == 6 {
			return fmt.Errorf("disk loop0: %w", unix.ENFILE)
		}
		return nil
	}
	options.OnInterval = func(Decision) { count++ }
	options.OnEnd = func(device string) { t.Errorf("the control of %s ended", device) }
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := Run(context.Background(), options); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "too many open files in system"); count != 8 || n != 2 {
		t.Errorf("%d intervals, and the error was logged %d times; want 8, and 2 because it came twice:\n%s", count, n, log.String())
	}
}

// The kernel removes the tunables with the disk.
func TestNothingIsLeftToRestoreOfADiskThatWasRemoved(t *testing.T) {
	one, two := newFakeHost("/ca", "/cb"), newFakeHost("/ca", "/cb")
	two.tunables["low_latency"] = "1"
	var log bytes.Buffer
	options := twoDisks(t, one, two, &two.gone, 6)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	steps := 0
	options.OnInterval = func(d Decision) {
		if d.Device != "loop1" {
			return
		}
		if steps++; steps == 3 {
			if two.tunables["low_latency"] != "0" {
				t.Fatalf("control has set no tunable: %v", two.tunables)
			}
			two.gone = true
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "the disk is gone: its control ends") || strings.Contains(log.String(), "daybook restore") {
		t.Errorf("errors: %d; want that the disk is gone, and no other:\n%s", n, log.String())
	}
	if left, err := StateDevices(options.Config.StateDir); err != nil || len(left) != 0 {
		t.Errorf("states left: %v, %v", left, err)
	}
}

// reloadWithoutADisk changes the interval after that many samples; loop1 is gone
// after the third. A meter for a disk that is gone cannot be opened.
func reloadWithoutADisk(t *testing.T, after int, broken error) {
	one, two := newFakeHost("/ca", "/cb"), newFakeHost("/ca", "/cb")
	var log bytes.Buffer
	gone := false
	options := twoDisks(t, one, two, &gone, 0)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	reload := make(chan os.Signal)
	options.Reload = reload
	options.Load = func() (Config, error) {
		next := options.Config
		next.Interval *= 2
		return next, nil
	}
	var opened [][]string
	options.OpenSource = func(devices []string, _ time.Duration) (account.Source, error) {
		opened = append(opened, devices)
		switch {
		case gone && slices.Contains(devices, "loop1"):
			return nil, blockdev.ErrGone
		case len(opened) == 2 && broken != nil:
			return nil, broken
		case len(opened) == 2:
			return &scriptedSource{steps: repeat(2, onTwoDisks)}, nil
		}
		// The current sample at the reload belongs to the new meter, if there is
		// one.
		steps := append(repeat(after, onTwoDisks), func() account.Sample { reload <- syscall.SIGHUP; return onTwoDisks() }, onTwoDisks)
		return &scriptedSource{steps: steps}, nil
	}
	count := map[string]int{}
	options.OnInterval = func(d Decision) {
		count[d.Device]++
		gone = count["loop1"] == 3
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if count["loop0"] != after+2 || count["loop1"] != 3 {
		t.Errorf("intervals: %v; want %d of loop0 and 3 of loop1", count, after+2)
	}
	if len(opened) != 2 || !slices.Equal(opened[0], []string{"loop0", "loop1"}) || !slices.Equal(opened[1], []string{"loop0"}) {
		t.Errorf("meters were opened for %v", opened)
	}
	if logged := strings.Contains(log.String(), "the running one goes on"); logged != (broken != nil) {
		t.Errorf("the log:\n%s", log.String())
	}
}

func TestOneDiskThatCannotBeControlledStopsTheStart(t *testing.T) {
	one, two := newFakeHost("/ca", "/cb"), newFakeHost("/ca", "/cb")
	gone := false
	options := twoDisks(t, one, two, &gone, 3)
	lock, err := AcquireLock(options.Config.StateDir, "loop1", "")
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if err := Run(context.Background(), options); !errors.As(err, &busy) || busy.Device != "loop1" {
		t.Errorf("%v; want loop1 busy", err)
	}
	lock.Release()
	if len(one.writes())+len(two.writes()) != 0 {
		t.Errorf("wrote %v %v", one.writes(), two.writes())
	}
	if err := Run(context.Background(), options); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestTheIdealsAreRecordedForOtherPrograms(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/d", "/d/x", "/d/y")
	const config = "containers: [{match: /ca, weight: 5}, {match: /cb}, {match: '/d/*', weight: 30}]"
	options := fakeOptions(t, f, config, repeat(5, journalling)...)
	var announced Ideals
	options.OnIdeals = func(device string, ideals Ideals) {
		if device != "loop0" {
			t.Errorf("of %s", device)
		}
		announced = ideals
	}
	id := fakeCgroups{f}.ID
	n := 0
	options.OnInterval = func(Decision) {
		loaded, err := LoadIdeals(options.Config.StateDir, "loop0", id)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]uint64{"/ca": 5, "/cb": 100, "/d": 60, "/d/x": 30, "/d/y": 30}
		if n++; n > 3 {
			want["/cb"] = 40
		}
		if n == 3 {
			f.choose("/cb", Setting{Default: 40})
		}
		if !loaded.Configured || !loaded.equal(announced) || !loaded.equal(Ideals{Configured: true, Weights: want, Units: map[string]bool{"/ca": true, "/cb": true, "/d/x": true, "/d/y": true},
			Control: account.Control{Actuator: ActuatorWeights}}) {
			t.Errorf("interval %d: recorded %+v, announced %+v, want %v", n, loaded, announced, want)
		}
		if n == 5 { // another cgroup at the same path is left out
			other, err := LoadIdeals(options.Config.StateDir, "loop0", func(path string) (uint64, error) {
				if path == "/ca" {
					return 1, nil
				}
				return id(path)
			})
			if err != nil || other.Units["/ca"] || len(other.Units) != 3 {
				t.Errorf("%+v, %v", other, err)
			}
		}
	}
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdeals(options.Config.StateDir, "loop0", id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in the end: %v", err)
	}
}
