// Package node has the figures of a real Kubernetes node with the agent: shares and sync
// latencies of a database's pod beside a noisy one, the cost of the agent with many pods,
// and how long pods are in Terminating. The tests of package agent on a real node measure
// them ("make k8s-test", "make bench-k8s"); this package keeps them and makes the page.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/experiment/report"
)

// Load is what the pod of the StatefulSet does.
type Load string

// The loads.
const (
	// Database: MariaDB with eight clients. Each commit waits for its sync.
	Database Load = "MariaDB"
	// Writers: the noisy pod's own load, whose disk queue is never empty.
	Writers Load = "writers"
)

// Setting is what the agent does.
type Setting string

// The settings.
const (
	// Observed: the agent only observes (placement: none), and no weight is set.
	Observed Setting = "observed"
	// Placed: journals are in the pods' cgroups, and the weights are those of the pods.
	Placed Setting = "placed"
	// Controlled: the same, with control.
	Controlled Setting = "controlled"
	// Alone: as observed, without the noisy pod.
	Alone Setting = "alone"
)

// Phase is one load in one setting. All figures but DiskShare are answers of Prometheus.
type Phase struct {
	Load    Load    `json:"load"`
	Setting Setting `json:"setting"`
	// Measurement is when the run began of which the phase is a part.
	Measurement time.Time `json:"measurement"`
	Seconds     float64   `json:"seconds"`
	// Share is the pod's part of the bytes of both pods, 0 to 1; DiskShare the same by the
	// counters of the two partitions that the volumes are on.
	Share     float64 `json:"share"`
	DiskShare float64 `json:"disk_share"`
	// Of the pod's own syncs.
	SyncsPerSecond  float64 `json:"syncs_per_second"`
	MeanSyncSeconds float64 `json:"mean_sync_seconds"`
	// P99SyncSeconds is interpolated in buckets of which each is four times the one before.
	P99SyncSeconds float64 `json:"p99_sync_seconds"`
	// BytesPerSecond are those of both pods, by the counters of the partitions.
	BytesPerSecond float64 `json:"bytes_per_second"`
	// Transactions are those of the database in each second, as its clients count them.
	Transactions []float64 `json:"transactions,omitempty"`
	// Windows are the parts of the phase, one after the other; nil: it has only one.
	Windows []Window `json:"windows,omitempty"`
}

// Window is a part of a phase.
type Window struct {
	Seconds   float64 `json:"seconds"`
	Share     float64 `json:"share"`
	DiskShare float64 `json:"disk_share"`
}

// shares are those of the windows.
func (p Phase) shares() []float64 {
	var all []float64
	for _, w := range p.Windows {
		all = append(all, w.Share)
	}
	return all
}

// standardError is the standard error of the share, from how far those of the windows are apart; ok is
// false where there are too few of them.
func (p Phase) standardError() (off float64, ok bool) {
	off = standardError(p.shares())
	return off, !math.IsInf(off, 1)
}

// transactionSeconds is the length of the parts whose rates say how certain a mean is: longer than
// most stalls, so that one part says little of the next.
const transactionSeconds = 10

// TransactionRate is the mean of the transactions per second, with its standard error; infinite
// where too few seconds are known.
func (p Phase) TransactionRate() (rate, off float64) {
	var parts []float64
	for part := range slices.Chunk(p.Transactions, transactionSeconds) {
		if len(part) == transactionSeconds {
			parts = append(parts, mean(part))
		}
	}
	return mean(p.Transactions), standardError(parts)
}

func mean(of []float64) (m float64) {
	for _, x := range of {
		m += x / float64(len(of))
	}
	return m
}

// standardError is that of the mean; infinite where there are too few.
func standardError(of []float64) float64 {
	n := float64(len(of))
	if n < 2 {
		return math.Inf(1)
	}
	var squares float64
	for _, x := range of {
		squares += (x - mean(of)) * (x - mean(of))
	}
	return math.Sqrt(squares / (n - 1) / n)
}

// measured says how far the share is off, and how certain that is.
func (p Phase) measured(target float64) string {
	text := fmt.Sprintf("%+.3f points, in %.0f s", 100*(p.Share-target), p.Seconds)
	if off, ok := p.standardError(); ok {
		shares := p.shares()
		text += fmt.Sprintf(" (standard error %.3f; windows of %.0f s: %+.3f to %+.3f)", 100*off, p.Windows[0].Seconds, 100*(slices.Min(shares)-target), 100*(slices.Max(shares)-target))
	}
	return text
}

// Cost is what the agent and its guardian use while pods run, and none comes or goes.
type Cost struct {
	Measurement time.Time `json:"measurement"`
	Pods        int       `json:"pods"`
	Seconds     float64   `json:"seconds"`
	// Processor is their part of one processor, 0 to 1.
	Processor float64 `json:"processor"`
	// PeakBytes is the most memory that was resident, of both together.
	PeakBytes int64 `json:"peak_bytes"`
}

// Deletions are pods that were created and deleted.
type Deletions struct {
	Measurement time.Time `json:"measurement"`
	Count       int       `json:"count"`
	// Placed had the journal in their cgroup when they were deleted.
	Placed int `json:"placed"`
	// Parallel is how many came and went at a time.
	Parallel int     `json:"parallel"`
	Seconds  float64 `json:"seconds"`
	// MedianSeconds and LongestSeconds are from the deletion to the end of the pod.
	MedianSeconds  float64 `json:"median_seconds"`
	LongestSeconds float64 `json:"longest_seconds"`
	// Processor is the part of one processor that the agent and its guardian used.
	Processor float64 `json:"processor"`
}

// Result is all that was measured; a part that was not is nil.
type Result struct {
	Host report.Host `json:"host"`
	// Busy: other programs used the host's processors meanwhile.
	Busy bool `json:"busy,omitempty"`
	// Target is the share that the weights promise to the pod of the StatefulSet.
	Target    float64    `json:"target"`
	Phases    []Phase    `json:"phases,omitempty"`
	Cost      *Cost      `json:"cost,omitempty"`
	Deletions *Deletions `json:"deletions,omitempty"`
}

// The goals.
const (
	// MaxOff bounds how far the share is off the target, for writers under control.
	MaxOff = 0.005
	// MaxProcessor and MaxBytes bound the cost of the agent.
	MaxProcessor = 0.01
	MaxBytes     = 100 << 20
	// MaxTerminatingSeconds bounds the time that a pod takes to end.
	MaxTerminatingSeconds = 60
)

// Update changes the result in a file. It makes the file if there is none. Figures of another host
// are set aside, in FILE.old.
func Update(path string, change func(*Result)) error {
	r := Result{Host: report.ThisHost()}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the figures: %w", err)
	}
	now := report.ThisHost()
	if report.SameHost(r.Host, now) != nil {
		if err := os.Rename(path, path+".old"); err != nil {
			return fmt.Errorf("cannot set the figures of another host aside: %w", err)
		}
		r = Result{}
	}
	r.Host = now
	change(&r)
	if text, err = json.MarshalIndent(r, "", "  "); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.ReplaceReadable(path, append(text, '\n'))
}

// phase is that of a load in a setting; ok is false if it was not measured.
func (r Result) phase(load Load, setting Setting) (p Phase, ok bool) {
	at := slices.IndexFunc(r.Phases, func(p Phase) bool { return p.Load == load && p.Setting == setting })
	if at < 0 {
		return Phase{}, false
	}
	return r.Phases[at], true
}

// certain is how many standard errors a difference must be for it to be no chance.
const certain = 3

// maxChance is the part of the database's transactions up to which chance leaves a verdict: a load that
// varies more hides a loss of that much.
const maxChance = 0.05

// harm is what control costs the database against another setting.
type harm struct {
	than Setting
	// lost is how many transactions per second it made less under control, chance how many less
	// chance explains: infinitely many where too few seconds are known. before is how many it
	// made in the other setting.
	lost, chance, before float64
	// apart: the two phases are of different measurements, so they have no verdict.
	apart bool
}

// harm compares control with another setting; ok is false if one of the two was not measured.
func (r Result) harm(than Setting) (h harm, ok bool) {
	before, measured := r.phase(Database, than)
	now, controlled := r.phase(Database, Controlled)
	if !measured || !controlled {
		return h, false
	}
	rateBefore, offBefore := before.TransactionRate()
	rate, off := now.TransactionRate()
	return harm{than, rateBefore - rate, certain * math.Hypot(offBefore, off), rateBefore, before.Measurement.IsZero() || !before.Measurement.Equal(now.Measurement)}, true
}

// undecided is why there is no verdict; "": there is one.
func (h harm) undecided() string {
	switch {
	case h.apart:
		return "not measured in one run"
	case math.IsInf(h.chance, 1):
		return fmt.Sprintf("want its transactions in at least %d s of each", 2*transactionSeconds)
	case h.lost <= h.chance && h.chance > maxChance*h.before:
		return fmt.Sprintf("chance explains more than %.0f %% of %.1f transactions per second", 100*maxChance, h.before)
	default:
		return ""
	}
}

// harmed are the settings that the database is compared in: control must not make it slower
// than without weights, nor than with weights that nothing corrects.
var harmed = []Setting{Observed, Placed}

// CheckHarm reports if the database was slower under control than without it in one run, or if its
// transactions are not known.
func (r Result) CheckHarm() error {
	var missed []error
	for _, than := range harmed {
		h, ok := r.harm(than)
		switch {
		case !ok || h.apart:
		case math.IsInf(h.chance, 1):
			missed = append(missed, fmt.Errorf("%s under control cannot be compared with %s: %s", Database, than, h.undecided()))
		case h.lost > h.chance:
			missed = append(missed, fmt.Errorf("%s under control makes %.1f transactions per second less than %s; chance explains %.1f", Database, h.lost, than, h.chance))
		}
	}
	return errors.Join(missed...)
}

// Check reports which goals are missed, or have no verdict.
func (r Result) Check() error {
	missed := []error{r.CheckHarm()}
	for _, than := range harmed {
		if h, ok := r.harm(than); ok && h.undecided() != "" && (h.apart || !math.IsInf(h.chance, 1)) {
			missed = append(missed, fmt.Errorf("%s under control cannot be compared with %s: %s", Database, than, h.undecided()))
		}
	}
	for _, p := range r.Phases {
		if off := p.Share - r.Target; p.Load == Writers && p.Setting == Controlled && math.Abs(off) > MaxOff {
			missed = append(missed, fmt.Errorf("%s, %s: the share is %+.3f points off %.0f %%; %.1f are allowed", p.Load, p.Setting, 100*off, 100*r.Target, 100*MaxOff))
		}
	}
	if c := r.Cost; c != nil && (c.Processor > MaxProcessor || c.PeakBytes > MaxBytes) {
		missed = append(missed, fmt.Errorf("with %d pods the agent uses %.2f %% of a processor and %d MiB; %.0f %% and %d MiB are allowed",
			c.Pods, 100*c.Processor, c.PeakBytes>>20, 100*MaxProcessor, MaxBytes>>20))
	}
	if d := r.Deletions; d != nil && d.LongestSeconds > MaxTerminatingSeconds {
		missed = append(missed, fmt.Errorf("a pod was in Terminating for %.1f s; %d s are allowed", d.LongestSeconds, MaxTerminatingSeconds))
	}
	return errors.Join(missed...)
}

// windows are the tables of the phases that have several.
func (r Result) windows() (tables []report.Table) {
	for _, p := range r.Phases {
		if len(p.Windows) == 0 {
			continue
		}
		table := report.Table{
			Title:   fmt.Sprintf("%s, %s: one window after the other", p.Load, p.Setting),
			Columns: []string{"window", "seconds", "share, %", "off the target, points", "share by the disk's counters, %"},
			Note:    "All windows together are the phase in the table above. None is left out.",
		}
		for n, w := range p.Windows {
			table.Rows = append(table.Rows, []string{fmt.Sprint(n + 1), fmt.Sprintf("%.0f", w.Seconds), fmt.Sprintf("%.2f", 100*w.Share), fmt.Sprintf("%+.2f", 100*(w.Share-r.Target)), fmt.Sprintf("%.2f", 100*w.DiskShare)})
		}
		tables = append(tables, table)
	}
	return tables
}

// Report returns the result as a page.
func (r Result) Report() (report.Report, error) {
	if len(r.Phases) == 0 && r.Cost == nil && r.Deletions == nil {
		return report.Report{}, errors.New("nothing was measured on a node")
	}
	page := report.Report{
		Title: "The agent on a real Kubernetes node",
		Lead: []string{
			"A node of Kubernetes 1.34 with its control plane and the agent, as [make k8s-test](../kubernetes.md#test-it-on-a-real-node) makes it: cgroup v1, the cgroupfs driver, containerd. All of it, the disk's simulation and Prometheus share the host's processors.",
		},
		Host: r.Host,
	}
	page.Host.Measured = r.measured()
	if r.Busy {
		page.Lead = append(page.Lead, "**The host was busy**: other programs used its two processors all the time. So times, rates and the agent's cost are higher than on an idle host.")
	}
	if len(r.Phases) > 0 {
		page.Lead = append(page.Lead,
			fmt.Sprintf("**Shares and syncs.** A StatefulSet and a noisy Deployment have a local PersistentVolume each, on two partitions of one simulated hard disk under BFQ. Their weights, by annotation, give the StatefulSet %.0f %% of the disk. The noisy pod has 16 threads, each of which writes blocks of 1 MiB to its own file and syncs each. The StatefulSet runs MariaDB (InnoDB, binary log, 8 clients of sysbench oltp_insert; each commit is synced), or the same writers.", 100*r.Target),
			"**observed**: the agent only observes (`placement: none`), as if there were none; no weight is set. **placed**: each journal is in its pod's cgroup, under the weights. **controlled**: placed, and the agent corrects the weights. It has a minute before that, in which control chooses BFQ's tunables, measures what they cost, and finds the weights.",
			"Read with care: a weight divides a disk only among pods that always have a request waiting. MariaDB waits for each sync and has no queue to divide. A transaction writes a few KB, so it takes a small part of the bytes also when it is **alone** (without the noisy pod). Look at its transactions and syncs: control must not make them fewer or slower. The goal for the share is for the writers.")
		page.Tables = append([]report.Table{r.sharesTable()}, r.windows()...)
	}
	page.Add(r.goalsTable())
	if d := r.Deletions; d != nil {
		page.Lead = append(page.Lead, fmt.Sprintf("**Deletions.** %d pods with a volume each were created and deleted, %d at a time, in %.0f s; %d of them had the journal in their cgroup when they were deleted. The agent and its guardian used %.1f %% of a processor meanwhile.",
			d.Count, d.Parallel, d.Seconds, d.Placed, 100*d.Processor))
	}
	return page, nil
}

// measured are the days on which the parts were measured.
func (r Result) measured() string {
	days := map[string]bool{}
	add := func(at time.Time) {
		if !at.IsZero() {
			days[at.Format(time.DateOnly)] = true
		}
	}
	for _, p := range r.Phases {
		add(p.Measurement)
	}
	if r.Cost != nil {
		add(r.Cost.Measurement)
	}
	if r.Deletions != nil {
		add(r.Deletions.Measurement)
	}
	if len(days) == 0 {
		return r.Host.Measured
	}
	return strings.Join(slices.Sorted(maps.Keys(days)), " and, in part, on ")
}

// sharesTable is a database beside a noisy Deployment.
func (r Result) sharesTable() report.Table {
	table := report.Table{
		Title:   "A database beside a noisy Deployment",
		Columns: []string{"load, setting", "share, %", "off the target, points", "share by the disk's counters, %", "transactions/s", "syncs/s", "mean sync, ms", "p99 sync, ms", "MB/s of both"},
		Note:    "Share and syncs are answers of Prometheus to queries of the agent's metrics. The p99 is interpolated in wide buckets. Transactions are those that the clients count; ± is how certain their mean is.",
	}
	for _, p := range r.Phases {
		off, transactions := fmt.Sprintf("%+.1f", 100*(p.Share-r.Target)), ""
		if p.Setting == Alone {
			off = ""
		}
		if len(p.Transactions) > 0 {
			rate, off := p.TransactionRate()
			transactions = fmt.Sprintf("%.1f ± %.1f", rate, off)
		}
		table.Rows = append(table.Rows, []string{fmt.Sprintf("%s, %s", p.Load, p.Setting), fmt.Sprintf("%.1f", 100*p.Share), off, fmt.Sprintf("%.1f", 100*p.DiskShare),
			transactions, fmt.Sprintf("%.0f", p.SyncsPerSecond), fmt.Sprintf("%.1f", 1e3*p.MeanSyncSeconds), fmt.Sprintf("%.0f", 1e3*p.P99SyncSeconds), fmt.Sprintf("%.1f", p.BytesPerSecond/1e6)})
	}
	return table
}

// goalsTable lists the goals and whether they are met.
func (r Result) goalsTable() report.Table {
	goals := report.Table{Title: "Goals", Columns: []string{"goal", "wanted", "measured", "met"}}
	goal := func(what, wanted, measured string, met bool) {
		said := "**no**"
		if met {
			said = "yes"
		}
		goals.Rows = append(goals.Rows, []string{what, wanted, measured, said})
	}
	for _, p := range r.Phases {
		if off := p.Share - r.Target; p.Load == Writers && p.Setting == Controlled {
			goal("share of the writers under control", fmt.Sprintf("within %.1f points", 100*MaxOff), p.measured(r.Target), math.Abs(off) <= MaxOff)
		}
	}
	for _, than := range harmed {
		if h, ok := r.harm(than); ok {
			what, wanted := fmt.Sprintf("transactions of %s under control", Database), fmt.Sprintf("not fewer than %s", than)
			if why := h.undecided(); why != "" {
				goals.Rows = append(goals.Rows, []string{what, wanted, why, "no verdict"})
				continue
			}
			goal(what, wanted, fmt.Sprintf("%+.1f a second (chance explains %.1f)", -h.lost, h.chance), h.lost <= h.chance)
		}
	}
	if c := r.Cost; c != nil {
		goal(fmt.Sprintf("processor time of agent and guardian with %d pods", c.Pods), fmt.Sprintf("at most %.0f %% of one", 100*MaxProcessor), fmt.Sprintf("%.2f %%, in %.0f s", 100*c.Processor, c.Seconds), c.Processor <= MaxProcessor)
		goal(fmt.Sprintf("their resident memory with %d pods", c.Pods), fmt.Sprintf("at most %d MiB", MaxBytes>>20), fmt.Sprintf("%d MiB", c.PeakBytes>>20), c.PeakBytes <= MaxBytes)
	}
	if d := r.Deletions; d != nil {
		goal(fmt.Sprintf("longest time in Terminating, %d deletions", d.Count), fmt.Sprintf("at most %d s", MaxTerminatingSeconds), fmt.Sprintf("%.1f s (median %.1f s)", d.LongestSeconds, d.MedianSeconds), d.LongestSeconds <= MaxTerminatingSeconds)
	}
	return goals
}
