package test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/nvjournal/kernel/test/crash"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// The guest of TestPowerCuts: a disk that loses what is not flushed, the memory
// of the journal, and two pieces of memory for what the test has to say:
//
//	told     by the load: of each thread, how many operations are permanent. It is
//	         recorded with the rest, so it is of the same instant.
//	mailbox  by the host, of the point that it has restored
const (
	cutDiskBytes   = 48 << 20
	cutPmemBytes   = 16 << 20
	toldDevice     = "pmem1"
	mailboxDevice  = "pmem2"
	sectorBytes    = 512
	noMorePoints   = ^uint64(0)
	replayPatience = 3 * time.Minute
)

// sector reads or writes the sector of a device with a number of the test, without
// the kernel's cache.
type sector struct {
	file  *os.File
	bytes []byte
}

func openSector(t *testing.T, device string) *sector {
	t.Helper()
	file, err := os.OpenFile(vmtest.Device(t, device), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &sector{file, aligned(t, sectorBytes)}
}

func (s *sector) set(n int, value uint64) error {
	binary.LittleEndian.PutUint64(s.bytes, value)
	_, err := s.file.WriteAt(s.bytes, int64(n)*sectorBytes)
	return err
}

func (s *sector) get(n int) (uint64, error) {
	_, err := s.file.ReadAt(s.bytes, int64(n)*sectorBytes)
	return binary.LittleEndian.Uint64(s.bytes), err
}

// record is the guest's side of a recording: endless scripts.
func (o crashOrder) record(t *testing.T, v *volume) {
	v.mount()
	if err := os.Mkdir(o.dir(v), 0o755); err != nil {
		t.Fatal(err)
	}
	told := openSector(t, toldDevice)
	for thread := range crashThreads {
		if err := told.set(thread, 0); err != nil {
			t.Fatal(err)
		}
	}
	err := crash.Run(o.dir(v), o.script(), crashThreads, 0, func(thread, count int) {
		if err := told.set(thread, uint64(count)); err != nil {
			panic(err)
		}
		fmt.Printf("told %d %d\n", thread, count)
	})
	t.Fatalf("the load ended: %v", err)
}

// replay is the guest's side of a replay. It recovers each point that the host
// restores, compares it with the recorded messages, and reports whether they match.
func (o crashOrder) replay(t *testing.T) {
	for last := uint64(0); ; {
		number, err := nextPoint(t, last)
		if err != nil {
			t.Fatal(err)
		}
		if number == noMorePoints {
			return
		}
		last = number
		fits := t.Run(fmt.Sprint("point-", number), func(t *testing.T) {
			o := o
			told := openSector(t, toldDevice)
			for thread := range crashThreads {
				count, err := told.get(thread)
				if err != nil {
					t.Fatal(err)
				}
				o.Told = append(o.Told, int(count))
			}
			told.file.Close() // otherwise the kernel's cache of it stays
			o.Command = number%2 == 1
			o.check(t, o.volume(t))
		})
		fmt.Printf("replayed %d %t\n", number, fits)
	}
}

// nextPoint waits for another number in the mailbox.
func nextPoint(t *testing.T, last uint64) (uint64, error) {
	mailbox := openSector(t, mailboxDevice)
	defer mailbox.file.Close()
	for end := time.Now().Add(replayPatience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		// 0: the host is changing it.
		if number, err := mailbox.get(0); err != nil || number != 0 && number != last {
			return number, err
		}
	}
	return 0, fmt.Errorf("no other point than %d came within %s", last, replayPatience)
}

// cuts is a guest whose power cuts are recorded and replayed.
type cuts struct {
	*vm.Machine
	t       *testing.T
	order   crashOrder
	mailbox *os.File
	random  *rand.Rand
}

// bootCuts boots it by a function; with faults, some functions of the kernel can fail.
func bootCuts(t *testing.T, kernel string, faults bool, boot func(t *testing.T, config vm.Config) *vm.Machine) *cuts {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mailbox")
	config := vm.Config{
		Kernel: kernel,
		Disks:  []vm.Disk{{SizeBytes: cutDiskBytes, Volatile: true}},
		Pmem:   []vm.Pmem{{SizeBytes: cutPmemBytes}, {SizeBytes: cutPmemBytes}, {SizeBytes: cutPmemBytes, Path: path}},
	}
	if faults {
		config.Modules = []string{faultsModule(t, kernel)}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &cuts{Machine: boot(t, config), t: t, random: rand.New(rand.NewPCG(seed, 0))}
	mailbox, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mailbox.Close() })
	c.mailbox = mailbox
	return c
}

func (c *cuts) post(number uint64) {
	c.t.Helper()
	if _, err := c.mailbox.WriteAt(binary.LittleEndian.AppendUint64(nil, number), 0); err != nil {
		c.t.Fatal(err)
	}
}

// faultParameters are the parameters of the module faults.
const faultParameters = "/sys/module/faults/parameters/"

// fault makes a function of the guest's kernel only return 0; "" means none.
func (c *cuts) fault(function string) (hits string) {
	c.t.Helper()
	out, err := c.Run(c.t.Context(), "sh", "-ec", "cat "+faultParameters+"hits; echo '"+function+"' >"+faultParameters+"function")
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// record makes a volume, lets the load run on it until there are that many points,
// and ends it.
func (c *cuts) record(s system, most int, fault string) (recording *vm.Recording, points int) {
	c.t.Helper()
	c.post(0) // each point has the mailbox, too
	c.order = crashOrder{System: s.name, Size: max(s.smallestJournal(), 2<<20), Do: "make", Seed: c.random.Uint64()}
	do(c.t, c.Machine, c.order)
	if fault != "" {
		c.fault(fault)
	}
	load, heard := c.order, newTold()
	load.Do = "record"
	process, err := c.Start(guestSide(load, heard))
	if err != nil {
		c.t.Fatal(err)
	}
	wait := func(patience time.Duration, done <-chan struct{}) bool {
		select {
		case <-done:
			return true
		case <-process.Done():
			c.t.Fatalf("the load ended: %s\nconsole:\n%s", heard.said(), c.Console())
		case <-time.After(patience):
		}
		return false
	}
	if !wait(beginPatience, heard.began) {
		c.t.Fatalf("the load does not begin: %s\nconsole:\n%s", heard.said(), c.Console())
	}
	// A guest that hardly ran meanwhile has a point too few: it gets more time.
	for during := time.Duration(scaled(3, 60)) * time.Second; ; during *= 2 {
		recording, err = c.Machine.Record(most)
		if err != nil {
			c.t.Fatal(err)
		}
		if fault == "" {
			// A journal that also has the files' data flushes rarely.
			if !wait(during, recording.Full()) {
				if err := recording.Now(); err != nil {
					c.t.Fatal(err)
				}
			}
		} else {
			// There may be no flush at all; then any moments are used, after the load has
			// reported more.
			for range most {
				told, mostTries := heard.counts(), 1200
				for try := 0; try == 0 || try < mostTries && slices.Equal(told, heard.counts()); try++ {
					wait(100*time.Millisecond, nil)
				}
				if err := recording.Now(); err != nil {
					c.t.Fatal(err)
				}
			}
		}
		points, err = recording.End()
		if err != nil || points < 2 && during > 2*time.Minute {
			c.t.Fatalf("%d points: %v", points, err)
		}
		if points >= 2 {
			break
		}
	}
	if err := process.Signal(unix.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	<-process.Done()
	if fault != "" {
		if hits := c.fault(""); hits == "0" {
			c.t.Errorf("%s was never called", fault)
		}
	}
	const unmount = `while read -r device dir rest; do case $device in /dev/vd*) umount "$dir";; esac; done </proc/mounts`
	if _, err := c.Run(c.t.Context(), "sh", "-ec", unmount); err != nil {
		c.t.Fatalf("after the load: %v", err)
	}
	return recording, points
}

// replay replays count points of a recording, the last one among them, and returns
// how many did not match the messages. With once, it ends at the first that does
// not.
func (c *cuts) replay(recording *vm.Recording, count int, once bool) (tried, wrong int, said string) {
	c.t.Helper()
	order, results := c.order, make(chan bool, count) // the sender must not wait
	order.Do = "replay"
	out := newTold()
	out.other = func(line string) {
		var number uint64
		var fits bool
		if n, _ := fmt.Sscanf(line, "replayed %d %t", &number, &fits); n == 2 {
			results <- fits
		}
	}
	process, err := c.Start(guestSide(order, out))
	if err != nil {
		c.t.Fatal(err)
	}
	points, _ := recording.End()
	chosen := c.random.Perm(points - 1)
	chosen = append(chosen[:min(count-1, len(chosen))], points-1)
	for n, point := range chosen {
		// A disk may write any part of its cache at any time.
		var survives func(int, int) bool
		if n%2 == 1 && len(chosen)-1 != n {
			survives = func(int, int) bool { return c.random.IntN(2) == 0 }
		}
		if err := recording.Restore(point, survives); err != nil {
			c.t.Fatal(err)
		}
		c.post(uint64(n) + 1)
		select {
		case fits := <-results:
			tried++
			if !fits {
				wrong++
			}
		case <-process.Done():
			c.t.Fatalf("the guest's side ended at point %d: %s\nconsole:\n%s", point, out.said(), c.Console())
		case <-time.After(2 * replayPatience):
			c.t.Fatalf("point %d takes too long: %s\nconsole:\n%s", point, out.said(), c.Console())
		}
		if wrong > 0 && once {
			break
		}
	}
	c.post(noMorePoints)
	err = process.Wait(c.t.Context())
	if (err != nil) != (wrong > 0) {
		c.t.Errorf("%d points do not fit, and the guest's side ended with %v:\n%s", wrong, err, out.said())
	}
	return tried, wrong, out.said()
}

// The power fails before each of many flushes of the disk takes effect. The disk
// has what the flush before made durable, and the memory is that of this instant.
// What was synced by then exists. If a flush is made to do nothing, it does not
// exist, and the test detects that.
func TestPowerCuts(t *testing.T) {
	onModuleKernels(t)
	these := systems(all...)
	if scaled(0, 1) == 0 {
		these = systems(one, small)
	}
	powerCuts(t, these, one, []string{"ext4nvj:nvjk_flush_data", "blkdev_issue_flush"}, bootDriven)
}

// powerCuts records and replays the systems, and then one of them without flushes:
// these functions do nothing.
func powerCuts(t *testing.T, these []system, without system, functions []string, boot func(t *testing.T, config vm.Config) *vm.Machine) {
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		c := bootCuts(t, kernel, slices.ContainsFunc(these, system.ours), boot)
		for _, s := range these {
			t.Run(s.name, func(t *testing.T) {
				c.t = t
				began := time.Now()
				recording, points := c.record(s, scaled(60, 600), "")
				recorded := time.Now()
				tried, wrong, said := c.replay(recording, crashes(t, 6, 200), false)
				if wrong > 0 {
					t.Errorf("%d of %d points are not what was synced:\n%s", wrong, tried, said)
				}
				t.Logf("%d points in %s, %d replayed in %s", points, recorded.Sub(began).Round(time.Second/10), tried, time.Since(recorded).Round(time.Second/10))
				faults(t, c.Machine)
			})
		}
		if len(systems(without)) == 0 {
			return
		}
		for _, function := range functions {
			t.Run("without-"+function, func(t *testing.T) {
				c.t = t
				recording, _ := c.record(without, 10, function)
				tried, wrong, said := c.replay(recording, 10, true)
				if wrong == 0 {
					t.Errorf("without flushes %d points were as if there had been any:\n%s", tried, said)
				}
				what, _, _ := strings.Cut(said[strings.Index(said, "crash_test.go"):], "\n")
				t.Logf("seen at point %d: %s", tried, what)
			})
		}
	})
}
