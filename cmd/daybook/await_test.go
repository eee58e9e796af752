package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/agent"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/serve"
)

// lateModules are loaded after some looks. check fails until then.
func lateModules() moduleWatch {
	var looks atomic.Int32
	return moduleWatch{pause: time.Millisecond,
		loaded: func() []string {
			if looks.Add(1) < 10 {
				return nil
			}
			return []string{"ext4", "jbd2"}
		},
		check: func() error {
			if looks.Load() < 10 {
				return fmt.Errorf("%w: no tracepoint", journal.ErrNotLoaded)
			}
			return nil
		},
	}
}

// As on a host whose root is XFS, until something mounts an ext4.
func TestADaemonWaitsForTheFirstMountOfAnExt4(t *testing.T) {
	var log bytes.Buffer
	waits := 0
	watch := lateModules()
	for range 2 { // the second time they are there
		if err := watch.whenLoaded(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), func() { waits++ }); err != nil || waits != 1 {
			t.Errorf("%v; it waited %d times", err, waits)
		}
	}
	if strings.Count(log.String(), "waiting for the first mount") != 1 {
		t.Errorf("logged: %s", log.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	watch = lateModules()
	if err := watch.whenLoaded(ctx, slog.New(slog.DiscardHandler), func() {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAPauseEndsTheWaitForAModule(t *testing.T) {
	watch := moduleWatch{pause: time.Hour, loaded: func() []string { return nil }}
	if err := watch.await(t.Context(), nil, time.After(time.Millisecond)); err != nil {
		t.Error(err)
	}
}

// keeping is a keeper in a test, whose control ends when it should look again.
type keeping struct {
	*keeper
	log syncBuffer
	// controlled gets the disks of each call of control.
	controlled chan []string
	reloads    chan os.Signal
	ended      chan error
	restored   atomic.Int32
}

// syncBuffer is written by one goroutine and read by another.
type syncBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *syncBuffer) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(text)
}

func (b *syncBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

func newKeeping(devices ...string) *keeping {
	k := &keeping{controlled: make(chan []string, 10), reloads: make(chan os.Signal, 1), ended: make(chan error, 1)}
	log, o := slog.New(slog.NewTextHandler(&k.log, nil)), &observers{metrics: serve.NewMetrics(1)}
	k.keeper = &keeper{
		config: control.DefaultConfig(), reloads: k.reloads, observers: o, log: log,
		modules: moduleWatch{pause: 20 * time.Millisecond, loaded: func() []string { return nil }, check: func() error { return nil }},
		disks:   &diskWatch{observers: o, log: log, pause: 20 * time.Millisecond},
		restore: func(string) { k.restored.Add(1) },
		usable:  func(control.Config) error { return nil },
		control: func(ctx context.Context, config control.Config, load func() (control.Config, error), accept func()) error {
			k.controlled <- config.Devices
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-k.reloads:
					if next, err := load(); err == nil && slices.Equal(next.Devices, config.Devices) {
						accept()
					}
				}
			}
		},
	}
	k.config.Devices = devices
	return k
}

func (k *keeping) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { k.ended <- k.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-k.ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// controls expects that it controls these disks next.
func (k *keeping) controls(t *testing.T, want ...string) {
	t.Helper()
	select {
	case got := <-k.controlled:
		if !slices.Equal(got, want) {
			t.Fatalf("it controls %q, want %q", got, want)
		}
	case err := <-k.ended:
		k.ended <- err
		t.Fatalf("it ended: %v", err)
	case <-time.After(awaittest.Patience):
		t.Fatalf("it does not control %q: %s", want, k.log.String())
	}
}

func (k *keeping) missing(t *testing.T, want float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(k.observers.metrics)
	awaittest.Until(t, awaittest.Patience, fmt.Sprint(want, " disks are missing"), func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "daybook_control_missing_disks" {
				return family.GetMetric()[0].GetGauge().GetValue() == want
			}
		}
		return false
	})
}

// The others are without their shares for no reason, and keep what a killed run wrote.
func TestControlControlsTheDisksThatAreThereAndWaitsForTheOthers(t *testing.T) {
	loop, late := attachedDisk(t), filepath.Join(t.TempDir(), "late")
	k := newKeeping(loop.Name, late)
	k.start(t)
	k.controls(t, loop.Name)
	k.missing(t, 1)
	if err := os.Symlink(loop.Node(), late); err != nil {
		t.Fatal(err)
	}
	k.controls(t, loop.Name, late)
	k.missing(t, 0)
	if n := k.restored.Load(); n != 1 {
		t.Errorf("it restored %d times", n)
	}
	if text := k.log.String(); strings.Count(text, "lacks disks to control") != 1 || strings.Count(text, "has all disks to control") != 1 {
		t.Errorf("logged: %s", text)
	}
	if err := os.Remove(late); err != nil { // as one that is pulled out
		t.Fatal(err)
	}
	k.missing(t, 1)
}

// Without a disk and without jbd2, as after a boot.
func TestControlReadsItsConfigurationAgainWhileItWaits(t *testing.T) {
	loop := attachedDisk(t)
	for what, set := range map[string]func(*keeping){
		"without a disk": func(k *keeping) { k.config.Devices = []string{"daybook-none"} },
		"without a disk of several": func(k *keeping) {
			k.config.Devices = []string{loop.Name, "daybook-none"}
		},
		"without jbd2": func(k *keeping) {
			var read atomic.Bool
			load := k.load
			k.load = func() (control.Config, error) {
				next, err := load()
				read.Store(err == nil)
				return next, err
			}
			k.modules.check = func() error {
				if read.Load() {
					return nil
				}
				return journal.ErrNotLoaded
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			k := newKeeping(loop.Name)
			var loads atomic.Int32
			k.load = func() (control.Config, error) {
				next := control.DefaultConfig()
				if loads.Add(1) == 1 {
					return next, errors.New("line 1 is wrong")
				}
				next.Devices, next.Interval = []string{loop.Node()}, time.Hour
				return next, nil
			}
			set(k)
			k.start(t)
			if what == "without a disk of several" {
				k.controls(t, loop.Name)
			}
			for i := range int32(2) {
				k.reloads <- unix.SIGHUP
				awaittest.Until(t, awaittest.Patience, "it reads the configuration", func() bool { return loads.Load() > i })
			}
			k.controls(t, loop.Node())
		})
	}
}

// What a reload has changed is not lost when a disk comes.
func TestADiskThatComesIsControlledByTheNewestConfiguration(t *testing.T) {
	loop, late := attachedDisk(t), filepath.Join(t.TempDir(), "late")
	k := newKeeping(loop.Name, late)
	next, intervals := k.config, make(chan time.Duration, 10)
	next.Interval = time.Hour
	k.load = func() (control.Config, error) { return next, nil }
	do := k.control
	k.control = func(ctx context.Context, config control.Config, load func() (control.Config, error), accept func()) error {
		intervals <- config.Interval
		return do(ctx, config, load, func() {
			accept()
			if err := os.Symlink(loop.Node(), late); err != nil {
				t.Error(err)
			}
		})
	}
	k.start(t)
	k.controls(t, loop.Name)
	k.reloads <- unix.SIGHUP
	k.controls(t, loop.Name, late)
	if <-intervals; <-intervals != time.Hour {
		t.Error("the disk that came is controlled by the old configuration")
	}
}

// It can go between a look and its opening. One of the command line is no such case.
func TestControlLooksAgainIfADiskGoesMeanwhile(t *testing.T) {
	k := newKeeping(attachedDisk(t).Name)
	_, gone := openControlled(control.Config{Devices: []string{filepath.Join(t.TempDir(), "none")}})
	if !errors.Is(gone, blockdev.ErrGone) || exitCode(gone) != exitUsage {
		t.Fatalf("%v", gone)
	}
	calls := 0
	k.control = func(context.Context, control.Config, func() (control.Config, error), func()) error {
		if calls++; calls%2 == 1 {
			return gone
		}
		return nil
	}
	if err := k.run(t.Context()); err != nil || calls != 2 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if k.disks = nil; !errors.Is(k.run(t.Context()), blockdev.ErrGone) {
		t.Error("a disk of the command line is awaited")
	}
}

func TestControlThatLacksJbd2ReportsDisksThatItCannotControl(t *testing.T) {
	k := newKeeping(attachedDisk(t).Name)
	k.modules.check = func() error { return journal.ErrNotLoaded }
	k.usable = func(control.Config) error { return &control.BusyError{Device: "sda"} }
	if busy := (*control.BusyError)(nil); !errors.As(k.run(t.Context()), &busy) {
		t.Error("it waits for jbd2")
	}
}

// It would end control.
func TestAConfigurationWithDisksThatCannotBeControlledHasNoEffect(t *testing.T) {
	loop := attachedDisk(t)
	for what, devices := range map[string][]string{"while it controls": {loop.Name, "daybook-none"}, "while it waits": {"daybook-none"}} {
		t.Run(what, func(t *testing.T) {
			k := newKeeping(devices...)
			k.usable = func(config control.Config) error {
				if slices.Contains(config.Devices, "/etc/passwd") {
					return usageError{errors.New("a file")}
				}
				return nil
			}
			var loads atomic.Int32
			k.load = func() (control.Config, error) {
				next := control.DefaultConfig()
				next.Devices = [][]string{{"/etc/passwd"}, {loop.Node()}}[min(1, loads.Add(1)-1)]
				return next, nil
			}
			k.start(t)
			if len(devices) > 1 {
				k.controls(t, loop.Name)
			}
			k.reloads <- unix.SIGHUP
			awaittest.Until(t, awaittest.Patience, "the bad one is read", func() bool { return loads.Load() == 1 })
			k.reloads <- unix.SIGHUP
			k.controls(t, loop.Node())
		})
	}
}

func TestDisksThatAnotherProcessControlsAreNoFailureToRestore(t *testing.T) {
	busy, failure := fmt.Errorf("sdb: %w", &control.BusyError{Device: "sdb", PID: 1}), errors.New("failed")
	if err := withoutBusy(errors.Join(busy)); err != nil {
		t.Error(err)
	}
	if err := withoutBusy(errors.Join(busy, failure)); !errors.Is(err, failure) || strings.Contains(err.Error(), "sdb") {
		t.Error(err)
	}
	if withoutBusy(nil) != nil || withoutBusy(failure) == nil {
		t.Error("a single error is another")
	}
}

// What could not be restored must not stay changed while it waits, or be hidden.
func TestControlEndsIfItCannotRestoreWhenItIsToLookAgain(t *testing.T) {
	loop, late := attachedDisk(t), filepath.Join(t.TempDir(), "late")
	k := newKeeping(loop.Name, late)
	failure := errors.New("cannot restore")
	k.control = func(ctx context.Context, _ control.Config, _ func() (control.Config, error), _ func()) error {
		if err := os.Symlink(loop.Node(), late); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return failure
	}
	if err := k.run(t.Context()); !errors.Is(err, failure) {
		t.Error(err)
	}
}

// systemd starts a unit that ends again only some times. A name on the command line is refused.
func TestControlStartsWithADiskThatComesLate(t *testing.T) {
	r := newCgroups(t)
	r.makeDisk(t, 0, blockdev.BFQ)
	r.makeDisk(t, 1, blockdev.BFQ)
	late, config, address := filepath.Join(r.dir, "late"), filepath.Join(r.dir, "control.yaml"), "127.0.0.1:"+freePort(t)
	if err := os.WriteFile(config, fmt.Appendf(nil, "devices: [%s, %s]\nstate_dir: %s\ntunables: none\n", late, r.disks[0].Device.Name, filepath.Join(r.dir, "state")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, code, err := runControl("control", "--config", config, "--device", late); code != exitUsage {
		t.Errorf("%d, %v", code, err)
	}
	daemon := startDaybook(t, "control", "--config", config, "--metrics", address)
	get := func(path string) string {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return err.Error()
		}
		return answer.Status + "\n" + string(text)
	}
	controls := func(disk int) bool {
		return strings.Contains(get("/metrics"), `daybook_control_limits{device="`+r.disks[disk].Device.Name+`"}`)
	}
	await(t, daemon, "it controls the disk that is there", func() bool { return controls(0) })
	if metrics := get("/metrics"); !strings.Contains(metrics, "\ndaybook_control_missing_disks 1\n") || controls(1) {
		t.Errorf("one disk is missing: %s", metrics)
	}
	if health := get("/healthz"); !strings.HasPrefix(health, "200 ") {
		t.Errorf("while it waits: %s", health)
	}
	if err := os.Symlink(r.disks[1].Device.Node(), late); err != nil {
		t.Fatal(err)
	}
	await(t, daemon, "it controls the disk that came", func() bool { return controls(0) && controls(1) })
	if err := daemon.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, daemon.said(t))
	}
}

// A disk that never comes must not keep the weights of the others as they are.
func TestControlRestoresWhatAKilledRunLeftBeforeItWaits(t *testing.T) {
	r := newCgroups(t)
	r.makeDisk(t, 0, blockdev.BFQ)
	config, state := filepath.Join(r.dir, "control.yaml"), filepath.Join(r.dir, "state")
	start := func(disk string) *daybookProcess {
		if err := os.WriteFile(config, fmt.Appendf(nil, "devices: [%s]\nstate_dir: %s\n", disk, state), 0o600); err != nil {
			t.Fatal(err)
		}
		return startDaybook(t, "control", "--config", config)
	}
	states := func() int {
		found, err := filepath.Glob(filepath.Join(state, "control-*.json"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	killed := start(r.disks[0].Device.Name)
	await(t, killed, "it controls the disk", func() bool { return states() == 1 })
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.cmd.Wait()
	waiting := start("daybook-none")
	await(t, waiting, "it restores", func() bool { return states() == 0 })
	await(t, waiting, "it says so", func() bool {
		return strings.Contains(waiting.said(t), "restored what an earlier run had changed")
	})
}

// endedSource is a source whose samples have ended.
type endedSource struct{}

func (endedSource) Next(context.Context) (account.Sample, error) { return account.Sample{}, io.EOF }
func (endedSource) Close() error                                 { return nil }

// Programs that cannot be loaded, as without memory or before an ext4 is mounted, can be later.
func TestAgentTriesAgainToLoadItsPrograms(t *testing.T) {
	var log syncBuffer
	answers := []error{
		unsupportedError{fmt.Errorf("%w: no jbd2", journal.ErrNotLoaded)}, unsupportedError{fmt.Errorf("%w: no jbd2, either", journal.ErrNotLoaded)},
		errors.New("no memory for map a"), errors.New("no memory for map b"), nil,
	}
	metrics, opened := serve.NewMetrics(1), 0
	n := &nodeObserver{
		agent: &agent.Agent{}, observers: &observers{metrics: metrics}, log: slog.New(slog.NewTextHandler(&log, nil)), firstPause: time.Millisecond,
		openSource: func(context.Context, sourceOptions) (account.Source, error) {
			opened++
			return endedSource{}, answers[min(opened, len(answers))-1]
		},
	}
	if err := n.run(t.Context()); err != nil {
		t.Error(err)
	}
	if opened != len(answers) {
		t.Errorf("opened %d times", opened)
	}
	// The order of maps in a text is random: it is no news.
	for text, want := range map[string]int{"no jbd2": 1, "no memory": 1, "attributes I/O to containers now": 1} {
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("%q is in the log %d times:\n%s", text, got, log.String())
		}
	}
	if n.pause != 8*time.Millisecond {
		t.Errorf("after four failures in a row it waited for %v", n.pause)
	}
	// With nothing to load, it waits until it is to end.
	ctx, cancel := context.WithCancel(t.Context())
	answers, log.text = answers[:1], bytes.Buffer{}
	n.firstPause = time.Hour
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	awaittest.Until(t, awaittest.Patience, "it waits", func() bool { return strings.Contains(log.String(), "cannot attribute") })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// closed is a source that counts its ends, and may fail at one.
type closed struct {
	endedSource
	times *int
	err   error
}

func (c closed) Close() error { *c.times++; return c.err }

// Each attempt would change all weights, and restore them.
func TestATrialToLoadProgramsIsNoSuccess(t *testing.T) {
	var log bytes.Buffer
	closes := 0
	n := &nodeObserver{
		agent: &agent.Agent{}, observers: &observers{metrics: serve.NewMetrics(1)}, log: slog.New(slog.NewTextHandler(&log, nil)), firstPause: time.Second,
		openSource: func(context.Context, sourceOptions) (account.Source, error) {
			return closed{times: &closes, err: errors.New("busy map")}, nil
		},
	}
	for range 3 { // each time only the trial succeeds
		n.fails(errors.New("no memory"))
		if err := n.tryAgain(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if closes != 3 || n.pause != 4*time.Second || strings.Count(log.String(), "busy map") != 3 || strings.Contains(log.String(), "attributes I/O to containers now") {
		t.Errorf("%d closed, pause %v: %s", closes, n.pause, log.String())
	}
}

// An end is no reason to log, and to exit with an error.
func TestAgentThatEndsWhileItLoadsProgramsReportsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := &nodeObserver{agent: &agent.Agent{}, observers: &observers{},
		openSource: func(context.Context, sourceOptions) (account.Source, error) {
			cancel()
			return nil, errors.New("interrupted system call")
		},
	}
	if err := n.run(ctx); err != context.Canceled {
		t.Error(err)
	}
}
