package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/nvjournal/kernel/test/crash"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// crashVariable tells TestGuestSide what to do: a crashOrder in JSON.
const crashVariable = "DAYBOOK_EXT4NVJ_CRASH"

// crashOrder is the host's request to the guest's side.
type crashOrder struct {
	Do     string // make, load, recover, check; record and replay: see powercut_test.go
	System string
	Number int // of disk and persistent memory
	Size   int // of the journal, bytes
	Round  int
	Seed   uint64
	// For a check: the operations of each thread that were reported. Command means
	// that nvj recovers, and not a mount.
	Told []int // of each thread
	// Command says that nvj recovers, and not mounting.
	Command bool
	// Again says that a recovery was interrupted: it may have ended before.
	Again bool
}

// crashThreads is the number of scripts that run on each volume.
const crashThreads = 2

func (o crashOrder) volume(t *testing.T) *volume {
	return systemNamed(o.System).volume(t, plan{
		disk: vmtest.Device(t, fmt.Sprintf("disk%d", o.Number)), pmem: vmtest.Device(t, fmt.Sprintf("pmem%d", o.Number)),
		size: o.Size, journalMB: 4,
	})
}

func (o crashOrder) script() crash.Script {
	return crash.Script{Seed: o.Seed, LazyInodes: systemNamed(o.System).jfs}
}

func (o crashOrder) dir(v *volume) string {
	return filepath.Join(v.dir, fmt.Sprintf("round%d", o.Round))
}

// TestGuestSide is not a test: TestKilled and others run it in a guest that they
// control from outside.
func TestGuestSide(t *testing.T) {
	text := os.Getenv(crashVariable)
	if text == "" {
		return
	}
	var o crashOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	v := o.volume(t)
	switch o.Do {
	case "make":
		v.mkfs()
	case "load":
		if v.system.fewLocks {
			loadJFS(t, fewLocks)
		}
		v.mount()
		if err := os.Mkdir(o.dir(v), 0o755); err != nil {
			t.Fatal(err)
		}
		if o.Round%2 == 0 && !v.system.jfs {
			go checkpoints(v)
		}
		err := crash.Run(o.dir(v), o.script(), crashThreads, 0, func(thread, count int) { fmt.Printf("told %d %d\n", thread, count) })
		t.Fatalf("the load ended: %v", err)
	case "check":
		o.check(t, v)
		o.clear(t, v)
	case "recover":
		o.recover(t, v)
	case "record":
		o.record(t, v)
	case "replay":
		o.replay(t)
	default:
		t.Fatalf("cannot %s", o.Do)
	}
}

// checkpoints makes the volume write its journal home repeatedly, so that kills hit
// checkpoints, too.
func checkpoints(v *volume) {
	const pause = 10 * time.Millisecond
	for flags := uint32(0); ; time.Sleep(pause) {
		if err := v.ioctl(ext4Checkpoint, unsafe.Pointer(&flags)); err != nil {
			fmt.Println("checkpoint:", err)
			return
		}
	}
}

// check recovers a volume and checks its content.
func (o crashOrder) check(t *testing.T, v *volume) {
	if o.Again && !v.needsRecovery() {
		o.look(t, v, false)
		return
	}
	if v.system.ours() {
		if err := unix.Mount(v.disk, v.dir, v.stockType(), 0, ""); !errors.Is(err, unix.EINVAL) {
			_ = unix.Unmount(v.dir, 0)
			t.Fatalf("stock %s mounts an unclean disk, or: %v", v.stockType(), err)
		}
	}
	if v.system.jfs {
		o.refusedByFsckJFS(t, v)
	} else if v.system.ours() {
		if out, err := run("e2fsck", "-fp", v.disk); err == nil || !strings.Contains(out, "unsupported feature") {
			t.Fatalf("e2fsck takes an unclean disk: %v\n%s", err, out)
		}
	}
	if v.system.ours() && !v.system.jfs {
		mark, tail := v.tails()
		if mark > tail {
			t.Fatalf("the disk's mark names tail %d, and the region is at %d", mark, tail)
		}
		t.Logf("mark %d, tail %d", mark, tail)
	}
	o.look(t, v, v.system.ours() && o.Command)
}

// look recovers a volume, by nvj or by mounting, and looks at its content.
func (o crashOrder) look(t *testing.T, v *volume, command bool) {
	trees := ""
	look := func(dir string) {
		for thread := range crashThreads {
			found, err := crash.Check(filepath.Join(dir, fmt.Sprintf("round%d", o.Round)), o.script(), thread, o.Told[thread], false)
			if err != nil {
				t.Error(err)
			}
			trees += fmt.Sprintf(" %+v", found)
		}
	}
	if command {
		must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
		// Stock ext4 removes files without a name, as after its own recovery;
		// e2fsck would report them as errors.
		v.sameInStock(nil, look)
		v.fsck()
	} else {
		v.mount()
		look(v.dir)
		v.end(look)
	}
	t.Logf("found%s", trees)
}

// clear frees the space for the next round.
func (o crashOrder) clear(t *testing.T, v *volume) {
	v.mount()
	if err := os.RemoveAll(o.dir(v)); err != nil {
		t.Fatal(err)
	}
	v.unmount()
}

// guestSide runs TestGuestSide in a guest.
func guestSide(o crashOrder, out *told) vm.Command {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers and strings
	}
	return vm.Command{
		Args:   []string{vm.Self, "-test.run=^TestGuestSide$", "-test.v"},
		Env:    []string{crashVariable + "=" + string(text), "DAYBOOK_REQUIRE_ALL=1"},
		Stdout: out, Stderr: out,
	}
}

// told receives the messages of the guest's side.
type told struct {
	mu    sync.Mutex
	rest  []byte
	count [crashThreads]int
	lines []string          // called with each message that is not a count; may be nil
	other func(line string) // is called with each of them; nil: not
	began chan struct{}
	once  sync.Once
}

func newTold() *told { return &told{began: make(chan struct{})} }

func (h *told) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rest = append(h.rest, b...)
	for {
		line, rest, whole := bytes.Cut(h.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		var thread, count int
		if n, _ := fmt.Sscanf(string(line), "told %d %d", &thread, &count); n == 2 {
			h.count[thread] = count
			h.once.Do(func() { close(h.began) })
		} else {
			h.lines = append(h.lines, string(line))
			if h.other != nil {
				h.other(string(line))
			}
		}
		h.rest = rest
	}
}

func (h *told) counts() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]int(nil), h.count[:]...)
}

func (h *told) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n") + string(h.rest)
}

// do runs the guest's side to its end.
func do(t *testing.T, m *vm.Machine, o crashOrder) string {
	t.Helper()
	out := newTold()
	if err := m.Do(t.Context(), guestSide(o, out)); err != nil {
		t.Fatalf("%s of round %d on %s: %v:\n%s\nconsole:\n%s", o.Do, o.Round, o.System, err, out.said(), m.Console())
	}
	return out.said()
}

// The power fails at any moment while scripts run whose states are known. What was
// synced exists; no operation is half done, and none before it is missing. What the
// disks had in their caches is lost. One guest has a volume of each system, so that
// each kill counts for all. The mark of the tail on the disk is never ahead of the
// region; a mount would refuse such a disk.
func TestKilled(t *testing.T) {
	onModuleKernels(t)
	these := systems(ours...)
	if len(these) == 0 {
		if these = systems(stock); len(these) == 0 {
			t.Skipf("%s leaves no system for this test", systemsVariable)
		}
	}
	killed(t, these, crashes(t, 5, 100), driven)
}

// killed kills guests of these systems so many times; boot makes a guest with so many
// volumes.
func killed(t *testing.T, these []system, rounds int, boot func(t *testing.T, kernel string, volumes int) *vm.Machine) {
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m, orders, random := bootVolumes(t, kernel, these, boot)
		for round := range rounds {
			killUnderLoad(t, m, orders, round, random)
			checkAll(t, m, orders, round)
		}
	})
}

// bootVolumes boots a guest and makes a volume of each system in it.
func bootVolumes(t *testing.T, kernel string, these []system, boot func(t *testing.T, kernel string, volumes int) *vm.Machine) (*vm.Machine, []crashOrder, *rand.Rand) {
	t.Helper()
	m := boot(t, kernel, len(these))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	orders := make([]crashOrder, len(these))
	for n, s := range these {
		// Small enough to be full sometimes.
		orders[n] = crashOrder{System: s.name, Number: n, Size: s.smallestJournal(), Do: "make"}
		do(t, m, orders[n])
	}
	return m, orders, rand.New(rand.NewPCG(seed, 0))
}

// beginPatience is the maximum time until a load has begun.
const beginPatience = 5 * time.Minute

// killUnderLoad kills a guest while the load runs on all its volumes, and boots it
// again.
func killUnderLoad(t *testing.T, m *vm.Machine, orders []crashOrder, round int, random *rand.Rand) {
	t.Helper()
	heard := make([]*told, len(orders))
	for n := range orders {
		o := &orders[n]
		o.Do, o.Round, o.Seed, o.Told = "load", round, random.Uint64(), nil
		heard[n] = newTold()
		if _, err := m.Start(guestSide(*o, heard[n])); err != nil {
			t.Fatal(err)
		}
	}
	for n := range heard {
		select {
		case <-heard[n].began:
		case <-time.After(beginPatience):
			t.Fatalf("the load does not begin: %s\nconsole:\n%s", heard[n].said(), m.Console())
		}
	}
	time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
	killAndBoot(t, m)
	for n := range orders {
		orders[n].Told = heard[n].counts()
	}
}

func killAndBoot(t *testing.T, m *vm.Machine) {
	t.Helper()
	// A guest that the emulator broke is ended by that.
	if !parallel || !strings.Contains(m.Console(), "Oops: int3") {
		faults(t, m)
	}
	m.Kill()
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// checkAll recovers all volumes, half of them by each way, and checks them.
func checkAll(t *testing.T, m *vm.Machine, orders []crashOrder, round int) {
	t.Helper()
	for n := range orders {
		o := &orders[n]
		o.Do, o.Command = "check", (round+n)%2 == 1
		how := "mounting"
		if o.Command {
			how = "nvj recover"
		}
		said := do(t, m, *o)
		t.Logf("round %d, %s, by %s: %s", round, o.System, how, found(said))
	}
	faults(t, m)
}

// interrupted kills guests under load, and again during the recovery of all volumes, up
// to three times.
func interrupted(t *testing.T, these []system, rounds int, boot func(t *testing.T, kernel string, volumes int) *vm.Machine) {
	vmtest.EachKernel(t, func(t *testing.T, kernel string) {
		m, orders, random := bootVolumes(t, kernel, these, boot)
		began := 0
		for round := range rounds {
			for n := range orders {
				orders[n].Again = false
			}
			killUnderLoad(t, m, orders, round, random)
			for try := range 1 + random.IntN(3) {
				var heard []*told
				for n := range orders {
					o := orders[n]
					o.Do, o.Command = "recover", (round+n+try)%2 == 1
					heard = append(heard, newTold())
					if _, err := m.Start(guestSide(o, heard[n])); err != nil {
						t.Fatal(err)
					}
				}
				// The program starts first, which takes most of the time.
				for _, h := range heard {
					for wait := 0; wait < 600 && !strings.Contains(h.said(), recovers); wait++ {
						time.Sleep(50 * time.Millisecond)
					}
				}
				time.Sleep(time.Duration(random.Int64N(int64(400 * time.Millisecond))))
				for _, h := range heard {
					if said := h.said(); strings.Contains(said, recovers) && !strings.Contains(said, hasRecovered) {
						began++
					}
				}
				killAndBoot(t, m)
			}
			for n := range orders {
				orders[n].Again = true
			}
			t.Logf("round %d: %d recoveries were interrupted by now", round, began)
			checkAll(t, m, orders, round)
		}
		if began < rounds/2 {
			t.Errorf("only %d recoveries were interrupted in %d rounds", began, rounds)
		}
	})
}

// What the guest's side says before and after a recovery.
const (
	recovers     = "it recovers"
	hasRecovered = "it has recovered"
)

// recover recovers a volume, and does nothing else.
func (o crashOrder) recover(t *testing.T, v *volume) {
	if !v.needsRecovery() { // an earlier one has ended
		fmt.Println(recovers, hasRecovered)
		return
	}
	fmt.Println(recovers)
	if o.Command {
		must(t, "nvj", "recover", v.pmem, "--offset", fmt.Sprint(v.offset), "--target", v.disk)
	} else {
		v.mount()
	}
	fmt.Println(hasRecovered)
}

// driven boots a guest that a test controls from outside.
func driven(t *testing.T, kernel string, volumes int) *vm.Machine {
	t.Helper()
	config := vm.Config{Kernel: kernel}
	for range volumes {
		config.Disks = append(config.Disks, vm.Disk{SizeBytes: 128 << 20, Volatile: true})
		config.Pmem = append(config.Pmem, vm.Pmem{SizeBytes: 80 << 20})
	}
	return bootDriven(t, config)
}

// bootDriven boots such a guest, with these devices and what volumes need.
func bootDriven(t *testing.T, config vm.Config) *vm.Machine {
	t.Helper()
	vmtest.Need(t, config.Kernel)
	config.Parallel = parallel
	config.Modules = append(strings.Split(loaded, ","), config.Modules...)
	for _, tool := range tools {
		config.Give = append(config.Give, vm.Give{Host: needs.Tool(t, tool)})
	}
	if len(systems(ours...)) > 0 {
		config.Modules = append(config.Modules, module(t, config.Kernel))
		config.Give = append(config.Give, vm.Give{Host: built(t, "../../build/nvj", "nvjournal"), Guest: "/usr/bin/nvj"})
	}
	return boot(t, config)
}

// boot boots a guest. While its processors run at the same time, the emulator itself breaks
// guests, so only [faults] looks for faults then.
func boot(t *testing.T, config vm.Config) *vm.Machine {
	t.Helper()
	if config.Parallel {
		return vmtest.BootWithKernelProblems(t, config)
	}
	return vmtest.Boot(t, config)
}

// faults fails the test if the kernel has reported its own faults since the latest boot.
func faults(t *testing.T, m *vm.Machine) {
	t.Helper()
	if problems := vm.KernelProblems(m.Console()); len(problems) > 0 {
		t.Fatalf("the guest's kernel reported faults: %s\nconsole:\n%s", strings.Join(problems, "\n"), m.Console())
	}
}

// found is the guest's log of what it found.
func found(said string) string {
	_, text, _ := strings.Cut(said, "found")
	text, _, _ = strings.Cut(text, "\n")
	return text
}
