package causes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blame"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/statistics"
	"github.com/daybook-project/daybook/internal/journal"
)

// Part is what blame says of the waiter's time.
type Part struct {
	Cause   string  `json:"cause"`
	Culprit string  `json:"culprit"`
	Seconds float64 `json:"seconds"`
}

// Round is one repetition of a case.
type Round struct {
	// Calls and MeasuredSeconds are the waiter's own figures.
	Calls           int     `json:"calls"`
	MeasuredSeconds float64 `json:"measured_seconds"`
	// BlamedCalls and BlamedSeconds are those of blame, the sum of all phases.
	BlamedCalls   uint64  `json:"blamed_calls"`
	BlamedSeconds float64 `json:"blamed_seconds"`
	// MeasuredMedian and BlamedMedian are those of a call.
	MeasuredMedian float64 `json:"measured_median_seconds"`
	BlamedMedian   float64 `json:"blamed_median_seconds"`
	Parts          []Part  `json:"parts"`
}

// Outcome is a case with its rounds.
type Outcome struct {
	Name    string   `json:"name"`
	Rounds  []Round  `json:"rounds"`
	Lost    uint64   `json:"lost"`
	Case    Case     `json:"-"`
	Missing []string `json:"missing_tracepoints"`
}

// Run measures a case.
func Run(ctx context.Context, l fixture.Lab, c Case, rounds int) (outcome Outcome, err error) {
	outcome = Outcome{Name: c.Name, Case: c}
	fs, err := fixture.MakeFileSystem(ctx, l.Tree, c.Fixture)
	if err != nil {
		return outcome, err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	restore, err := withoutThrottling(fs.Disk.Device.Name)
	if err != nil {
		return outcome, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	s := stage{fs: fs, c: c}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(); err != nil {
		return outcome, err
	}
	outcome.Missing = append(s.probe.Missing(), s.missing...)
	for n := range rounds {
		l.Say(fmt.Sprintf("%s: round %d of %d", c.Name, n+1, rounds))
		round, lost, err := s.round(ctx)
		if err != nil {
			return outcome, fmt.Errorf("%s: %w", c.Name, err)
		}
		outcome.Lost += lost
		outcome.Rounds = append(outcome.Rounds, round)
	}
	return outcome, nil
}

// withoutThrottling switches off the kernel's throttling of writeback on a disk.
// It holds back the log's writes while much of the neighbour's data is on its way,
// so that the commit waits in another phase.
func withoutThrottling(disk string) (restore func() error, err error) {
	file := "/sys/block/" + disk + "/queue/wbt_lat_usec"
	before, err := os.ReadFile(file)
	if text := strings.TrimSpace(string(before)); err != nil || text == "" || text == "0" {
		return func() error { return nil }, nil // this disk has none, or it is off
	}
	if err := os.WriteFile(file, []byte("0"), 0); err != nil {
		return nil, fmt.Errorf("cannot switch off the throttling of writeback: %w", err)
	}
	return func() error { return os.WriteFile(file, before, 0) }, nil
}

// stage is what a case needs.
type stage struct {
	fs                *fixture.FileSystem
	c                 Case
	waiter, neighbour *actor
	names             map[uint64]string // of cgroups
	waiterID          uint64
	neighbourAt       string   // its cgroup's directory
	missing           []string // tracepoints of a journal in memory
	probe             *blame.Probe
	journal           *journal.Probe
	ledger            blame.Ledger
}

func (s *stage) open() (err error) {
	s.names = make(map[uint64]string)
	start := func(name string) (*actor, uint64, error) {
		path, err := s.fs.Group.Add(name, s.fs.Disk.Device, 0)
		if err != nil {
			return nil, 0, err
		}
		var st unix.Stat_t
		if err := unix.Stat(s.fs.Group.Directory(path), &st); err != nil {
			return nil, 0, err
		}
		s.names[st.Ino] = name
		s.neighbourAt = s.fs.Group.Directory(path) // the last one
		a, err := startActor(s.fs.Group.Directory(path))
		return a, st.Ino, err
	}
	if s.waiter, s.waiterID, err = start(Waiter); err != nil {
		return err
	}
	if s.neighbour, _, err = start(Neighbour); err != nil {
		return err
	}
	if s.journal, err = journal.Open(); err != nil {
		return err
	}
	if s.probe, err = blame.Open(); err != nil {
		return err
	}
	return s.follow(true)
}

// follow starts or ends to follow a journal in memory, whose module cannot be unloaded
// meanwhile.
func (s *stage) follow(follow bool) error {
	if s.c.Fixture.Memory == nil {
		return nil
	}
	module := journal.NVModule(s.c.Fixture.Memory.Type)
	_, err := s.journal.FollowNVJournal(module, follow)
	if err != nil {
		return err
	}
	missing, err := s.probe.FollowNVJournal(module, follow)
	s.missing = append(s.missing, missing...)
	return err
}

// limitNeighbour limits the neighbour's reads during a round.
func (s *stage) limitNeighbour(reads string) error {
	if s.c.NeighbourReads == 0 {
		return nil
	}
	limit := fmt.Appendf(nil, "%s riops=%s\n", s.fs.Disk.Device.Dev, reads)
	if err := os.WriteFile(filepath.Join(s.neighbourAt, "io.max"), limit, 0); err != nil {
		return fmt.Errorf("cannot limit the neighbour's reads: %w", err)
	}
	return nil
}

func (s *stage) close() error {
	var errs []error
	for _, a := range []*actor{s.waiter, s.neighbour} {
		if a != nil {
			errs = append(errs, a.stop())
		}
	}
	if s.probe != nil {
		errs = append(errs, s.probe.Close())
	}
	if s.journal != nil {
		errs = append(errs, s.journal.Close())
	}
	return errors.Join(errs...)
}

// collect returns the waits since the last call.
func (s *stage) collect() ([]blame.Waiter, uint64, error) {
	events, err := s.probe.Collect()
	if err != nil {
		return nil, 0, err
	}
	commits, err := s.journal.Collect()
	if err != nil {
		return nil, 0, err
	}
	owner := func(dev uint32, ino uint64) (uint64, bool) {
		cgroup, ok, _ := s.journal.Owner(dev, ino) // an error is an unknown owner
		return cgroup, ok
	}
	s.ledger.Logged(commits.Logs)
	return s.ledger.Divide(events, commits.Commits, owner), events.Lost, nil
}

// prepare makes what a round needs, without delays.
func (s *stage) prepare(ctx context.Context) error {
	if s.c.Neighbour == Truncate {
		if _, err := s.neighbour.do(order{Do: Fragment, Path: s.fs.Path("fragments"), Count: extents}); err != nil {
			return err
		}
		if err := s.fs.Remount(ctx); err != nil { // so that the extent tree must be read
			return err
		}
	}
	if _, err := s.waiter.do(order{Do: AppendFsync, Path: s.fs.Path("waiter"), Count: 1}); err != nil {
		return err
	}
	if s.c.Waiter == Mkdir {
		if _, err := s.waiter.do(order{Do: Mkdir, Path: s.fs.Path("waiters"), Count: 1}); err != nil {
			return err
		}
	}
	return fixture.WriteOut(s.fs.Directory)
}

func (s *stage) round(ctx context.Context) (round Round, lost uint64, err error) {
	if err := s.fs.Disk.SetInstant(true); err != nil {
		return round, 0, err
	}
	if err := s.prepare(ctx); err != nil {
		return round, 0, err
	}
	if _, _, err := s.collect(); err != nil {
		return round, 0, err
	}
	if err := s.fs.Disk.SetInstant(false); err != nil {
		return round, 0, err
	}
	if err := s.limitNeighbour(strconv.Itoa(s.c.NeighbourReads)); err != nil {
		return round, 0, err
	}
	defer func() { err = errors.Join(err, s.limitNeighbour("max")) }()
	wait := nothingElse
	if s.c.Neighbour != "" {
		o := order{Do: s.c.Neighbour, Path: s.fs.Path("data"), Bytes: s.c.Bytes}
		switch s.c.Neighbour {
		case Truncate:
			o.Path = s.fs.Path("fragments")
		case Mkdir:
			o.Path, o.Count = s.fs.Path("neighbour"), neighbourMkdirs
		}
		if wait, err = s.neighbour.begin(o); err != nil {
			return round, 0, err
		}
		if s.c.Delay > 0 {
			err = fixture.Sleep(ctx, time.Duration(s.c.Delay*float64(time.Second)))
		} else {
			_, err = wait()
			wait = nothingElse
		}
		if err != nil {
			return round, 0, err
		}
	}
	o := order{Do: s.c.Waiter, Path: s.fs.Path("waiter"), Count: s.c.Calls}
	if s.c.Waiter == Mkdir {
		o.Path, o.PauseSeconds = s.fs.Path("waiters"), 0.001
	}
	seconds, err := s.waiter.do(o)
	if err != nil {
		return round, 0, err
	}
	if err := s.fs.Disk.SetInstant(true); err != nil {
		return round, 0, err
	}
	if _, err := wait(); err != nil {
		return round, 0, err
	}
	waiters, lost, err := s.collect()
	return s.compare(waiters, s.c.Operation, seconds), lost, err
}

// compare puts what blame says of the waiter's calls beside the times of the
// caller.
func (s *stage) compare(waiters []blame.Waiter, operation blame.Operation, seconds []float64) Round {
	round := Round{Calls: len(seconds), MeasuredMedian: statistics.Median(seconds)}
	for _, t := range seconds {
		round.MeasuredSeconds += t
	}
	for _, w := range waiters {
		if w.Cgroup != s.waiterID || w.Operation != operation || w.Dev != s.fs.Disk.Device.Dev.Kernel() {
			continue
		}
		round.BlamedCalls = w.Calls.Calls()
		round.BlamedSeconds = float64(w.Total()) / 1e9
		round.BlamedMedian = w.Calls.Quantile(0.5)
		for _, culprit := range w.Culprits {
			name := s.culprit(culprit)
			round.Parts = append(round.Parts, Part{Cause: culprit.Cause.String(), Culprit: name, Seconds: float64(culprit.Nanoseconds) / 1e9})
		}
	}
	return round
}

// culprit names who caused a part of a wait.
func (s *stage) culprit(c blame.Culprit) string {
	switch name, known := s.names[c.Cgroup]; {
	case known:
		return name
	case c.Cgroup != blame.Nobody:
		return Others
	case c.Cause == blame.Flush || c.Cause == blame.Rest:
		return None
	}
	return Unknown
}

// operations are those that a caller can measure, each with what a waiter does.
var operations = []struct {
	do        string
	operation blame.Operation
}{
	{AppendFsync, blame.Fsync},
	{AppendFdatasync, blame.Fdatasync},
	{AppendMsync, blame.Msync},
	{WriteSync, blame.Write},
}

// RunOperations measures each kind of synchronous call, without a neighbour.
func RunOperations(ctx context.Context, l fixture.Lab, o fixture.Options, calls int) (rounds map[blame.Operation]Round, err error) {
	fs, err := fixture.MakeFileSystem(ctx, l.Tree, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	s := stage{fs: fs}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(); err != nil {
		return nil, err
	}
	if err := fs.Disk.SetInstant(false); err != nil {
		return nil, err
	}
	rounds = make(map[blame.Operation]Round)
	for _, op := range operations {
		if err := fixture.WriteOut(fs.Directory); err != nil {
			return nil, err
		}
		if _, _, err := s.collect(); err != nil {
			return nil, err
		}
		seconds, err := s.waiter.do(order{Do: op.do, Path: fs.Path(op.operation.String()), Count: calls})
		if err != nil {
			return nil, err
		}
		waiters, lost, err := s.collect()
		if err != nil {
			return nil, err
		}
		if lost > 0 {
			return nil, fmt.Errorf("%d waits were lost", lost)
		}
		rounds[op.operation] = s.compare(waiters, op.operation, seconds)
	}
	return rounds, nil
}

func nothingElse() ([]float64, error) { return nil, nil }

// neighbourMkdirs fill the log of the case with a full journal several times.
const neighbourMkdirs = 4000

// Share is the part of the blamed time, 0 to 1, that is the case's cause and
// culprit's.
func (r Round) Share(cause blame.Phase, culprit string) float64 {
	var sum float64
	for _, p := range r.Parts {
		if p.Cause == cause.String() && p.Culprit == culprit {
			sum += p.Seconds
		}
	}
	if r.BlamedSeconds == 0 {
		return 0
	}
	return sum / r.BlamedSeconds
}
