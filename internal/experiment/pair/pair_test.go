package pair

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/blockdev/blockdevtest"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/fixture/fixturetest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/fio"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// newLab returns the environment of the fixtures.
func newLab(t *testing.T) fixture.Lab {
	t.Helper()
	lab := fixturetest.New(t)
	needs.Tool(t, "fio")
	return lab
}

// The two containers' file systems, threads and loads are as the arrangement
// requires; a load runs; and nothing is left.
func TestEachArrangementIsAsDescribed(t *testing.T) {
	lab := newLab(t)
	for _, arrangement := range fixture.Arrangements() {
		t.Run(string(arrangement), func(t *testing.T) {
			before := queues(t)
			s, err := buildPair(t.Context(), lab, Conditions{Disk: HDD, DataMode: Ordered, Arrangement: arrangement, Slicing: ShortSlices()})
			if err != nil {
				t.Fatal(err)
			}
			closed := false
			defer func() {
				if !closed {
					_ = s.Close()
				}
			}()
			checkSlices(t, s)
			shared := s.a.FileSystem == s.b.FileSystem
			if shared != (arrangement == fixture.SharedExt4) {
				t.Errorf("one file system for both: %v", shared)
			}
			for _, x := range s.containers() {
				isAsDescribed(t, s, x)
			}
			t.Run("under load", func(t *testing.T) {
				// A journal for both, one for each with the pool's besides, and control.
				if !slices.Contains([]fixture.Arrangement{fixture.SharedExt4, fixture.PlacedVolumes, fixture.ControlledOnDevices}, arrangement) {
					vmtest.Long(t)
				}
				aPhaseIsMeasured(t, s)
			})
			closed = true
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			checkNothingLeft(t, s, before)
		})
	}
}

// isAsDescribed checks the file system, the journal and the weight of a container.
func isAsDescribed(t *testing.T, s *pair, x *fixture.Container) {
	t.Helper()
	arrangement := s.conditions.Arrangement
	if mode := modeInForce(t, x.FileSystem); mode != Ordered {
		t.Errorf("the file system of %s is in the mode %s", x.Name, mode)
	}
	journal, err := ext4.JournalOf(x.FileSystem)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := ext4.JournalThread(journal.Name)
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.Lab.Tree.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	placed := strings.HasPrefix(at, x.Parent+"/") && at != x.Load
	if want := arrangement != fixture.SharedExt4 && arrangement != fixture.OwnVolumes; placed != want || !want && at != "/" {
		t.Errorf("the jbd2 thread of %s is in %s", x.Name, at)
	}
	weights, err := s.Lab.Tree.Weights(s.Disk.Device.Dev, blockdev.BFQ)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := weights.Get(x.Parent); err != nil || now.Effective() != x.Weight {
		t.Errorf("the weight of %s is %+v, %v; want %d", x.Parent, now, err, x.Weight)
	}
	hasLoop := arrangement != fixture.SharedExt4 && arrangement != fixture.OwnPartitions && !arrangement.OnDevices()
	if (x.Loop.Name != "") != hasLoop {
		t.Errorf("%s has the loop device %q", x.Name, x.Loop.Name)
	}
}

// aPhaseIsMeasured runs a load on both containers: both sync, and all I/O is counted.
func aPhaseIsMeasured(t *testing.T, s *pair) {
	t.Helper()
	u, err := s.subject(t.Context(), Fio)
	if err != nil {
		t.Fatal(err)
	}
	o := Measurement{Seconds: 4, Interval: 2 * time.Second}
	var phase Phase
	// B has the smaller share, and its sixteen writers' syncs end together: on
	// a disk that other tests load, too, there may be seconds between them.
	for phase, err = u.runPhase(t.Context(), o, fio.HighFsync); err == nil && phase.SyncB.Calls == 0 && o.Seconds < 64; {
		o.Seconds *= 2
		phase, err = u.runPhase(t.Context(), o, fio.HighFsync)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f B/s beside %.0f B/s, share %.3f, syncs of A %+v, of B %+v", phase.Rate, phase.RateB, phase.ShareA, phase.SyncA, phase.SyncB)
	if phase.Rate <= 0 || phase.RateB <= 0 || phase.ShareA <= 0 || phase.ShareA >= 1 || len(phase.Samples) != o.Seconds/2 {
		t.Errorf("%+v", phase)
	}
	if phase.SyncA.Calls == 0 || phase.SyncB.Calls == 0 || phase.JournalBytesA == 0 || phase.JournalBytesB == 0 {
		t.Errorf("no sync was timed or no journal seen: %+v", phase)
	}
	if (phase.PoolTransactions > 0) != s.conditions.Arrangement.HasPoolJournal() {
		t.Errorf("%d commits of a pool", phase.PoolTransactions)
	}
	if err := u.close(); err != nil {
		t.Error(err)
	}
}

// modeInForce returns the data mode that the kernel reports for a mounted ext4.
func modeInForce(t *testing.T, dev blockdev.Dev) DataMode {
	t.Helper()
	link, err := os.Readlink("/sys/dev/block/" + dev.String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/fs/ext4/" + filepath.Base(link) + "/options")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(text)), "dioread_nolock") {
		return Unwritten
	}
	return Ordered
}

// queues returns the settings that each loop device keeps when it gets another file.
func queues(t *testing.T) map[string]map[string]string {
	t.Helper()
	_, err := disksim.Recover(t.Context(), "")
	if err := errors.Join(err, fixture.RemoveLeftovers()); err != nil {
		t.Fatal(err)
	}
	// The next disk gets the number of this one, which may be a new device.
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	spare, err := blockdev.Attach(image, blockdev.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := spare.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	disks, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		t.Fatal(err)
	}
	of := make(map[string]map[string]string)
	for _, disk := range disks {
		of[filepath.Base(disk)] = make(map[string]string)
		for _, attribute := range []string{"scheduler", "max_sectors_kb", "nr_requests"} {
			text, err := os.ReadFile(filepath.Join(disk, "queue", attribute))
			if err != nil {
				t.Fatal(err)
			}
			of[filepath.Base(disk)][attribute] = strings.TrimSpace(string(text))
		}
	}
	return of
}

// checkSlices checks that the disk has short slices.
func checkSlices(t *testing.T, s *pair) {
	t.Helper()
	for name, want := range map[string]string{"timeout_sync": "12", "max_budget": "512", "low_latency": "0", "strict_guarantees": "1"} {
		if value, err := s.Disk.Device.Tunable(name); err != nil || value != want {
			t.Errorf("%s is %q, %v; want %s", name, value, err, want)
		}
	}
	blockdevtest.WantQueue(t, s.Disk.Device, map[string]string{"max_sectors_kb": "512", "nr_requests": "256"})
}

func checkNothingLeft(t *testing.T, s *pair, before map[string]map[string]string) {
	t.Helper()
	queue, known := before[s.Disk.Device.Name]
	if !known {
		t.Errorf("%s is new", s.Disk.Device.Name)
	}
	blockdevtest.WantQueue(t, s.Disk.Device, queue)
	if _, err := os.Stat(s.Home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", s.Home, err)
	}
	if _, err := s.Lab.Tree.Lookup(s.Group.Parent); err == nil {
		t.Errorf("the cgroup %s was left", s.Group.Parent)
	}
	loops, err := blockdev.Loops()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(loops, func(l blockdev.Loop) bool { return strings.HasPrefix(l.File, s.Home) }) {
		t.Errorf("loop devices were left: %+v", loops)
	}
	parts, err := filepath.Glob("/dev/" + s.Disk.Device.Name + "p*")
	if err != nil || len(parts) > 0 {
		t.Errorf("partitions were left: %v, %v", parts, err)
	}
}

func TestAPlainDiskIsALoopDeviceUnderBFQ(t *testing.T) {
	lab := newLab(t)
	before := queues(t)
	s, err := buildPair(t.Context(), lab, Conditions{Disk: Plain, DataMode: Unwritten, Arrangement: fixture.PlacedVolumes, Slicing: ShortSlices()})
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := s.Disk.Device.Scheduler()
	direct, directErr := s.Disk.Device.DirectIO()
	if err != nil || directErr != nil || scheduler.Current != blockdev.BFQ || !direct {
		t.Errorf("scheduler %s, direct I/O %v: %v, %v", scheduler.Current, direct, err, directErr)
	}
	checkSlices(t, s)
	if mode := modeInForce(t, s.a.FileSystem); mode != Unwritten {
		t.Errorf("the volume's ext4 is in the mode %s", mode)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkNothingLeft(t, s, before)
}

func TestACrowdReadsAndKeepsTheSlices(t *testing.T) {
	lab := newLab(t)
	before := loopReads(t) // the loop device is not known yet
	s, err := newPair(t.Context(), lab, Conditions{Disk: HDD, DataMode: Ordered, Arrangement: fixture.OwnPartitions, Slicing: CrowdedBefore()})
	if err != nil {
		t.Fatal(err)
	}
	closesAtEnd(t, s)
	checkSlices(t, s)
	name := s.Disk.Device.Name
	if reads := loopReads(t)[name] - before[name]; reads < crowdReaders*crowdReads {
		t.Errorf("%s has read %d times, want at least the crowd's %d", name, reads, crowdReaders*crowdReads)
	}
}

// loopReads returns the number of reads of each loop device, from /sys/block/DISK/stat.
func loopReads(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/stat")
	if err != nil {
		t.Fatal(err)
	}
	reads := make(map[string]int)
	for _, file := range files {
		text, err := os.ReadFile(file)
		words := strings.Fields(string(text))
		if err != nil || len(words) == 0 {
			t.Fatalf("%s: %q, %v", file, text, err)
		}
		if reads[filepath.Base(filepath.Dir(file))], err = strconv.Atoi(words[0]); err != nil {
			t.Fatal(err)
		}
	}
	return reads
}

// closesAtEnd removes a fixture when the test ends.
func closesAtEnd(t *testing.T, s *pair) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
