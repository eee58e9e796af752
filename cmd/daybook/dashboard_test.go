package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/workload"
)

// shown is the value that the query of a panel must show, according to top --json.
// One of its functions is set.
type shown struct {
	// Bytes or counts of an interval: the query shows their rate or their increase.
	ofContainer func(account.Container) uint64
	ofDevice    func(account.Device) uint64
	// Values of the last interval.
	containerGauge func(account.Container) float64
	deviceGauge    func(account.Device) float64
	gauge          func(account.Sample) float64
	// A value over all intervals together.
	ofAll func([]account.Sample) float64
	// slack is the allowed difference from the value between the first scrape and the
	// last, because the value also changes while the disk is quiet.
	slack float64
}

// panels lists the expected values of each query that top also reports, by panel
// title.
var panels = map[string][]shown{
	"Share of the disk": {
		{containerGauge: func(c account.Container) float64 { return c.Share }},
		{containerGauge: func(c account.Container) float64 { return c.TargetShare }},
	},
	"I/O weight in force":              {{containerGauge: func(c account.Container) float64 { return float64(c.Weight) }}},
	"Journal by container":             {{ofContainer: func(c account.Container) uint64 { return c.JournalBytes }}},
	"Hidden I/O by container":          {{ofContainer: account.Container.Hidden}},
	"Charged I/O by container":         {{ofContainer: account.Container.Charged}},
	"Returned to its owners":           {{ofContainer: func(c account.Container) uint64 { return c.ReturnedBytes }}},
	"Commits forced by container":      {{ofContainer: func(c account.Container) uint64 { return c.ForcedCommits }}},
	"Unaccounted in the last interval": {{deviceGauge: func(d account.Device) float64 { return float64(d.UnaccountedBytes) }}},
	"Disk and journal": {
		{ofDevice: func(d account.Device) uint64 { return d.DiskBytes }},
		{ofDevice: func(d account.Device) uint64 { return d.JournalBytes }},
		{ofDevice: func(d account.Device) uint64 { return d.JournalElsewhereBytes }},
		{ofDevice: func(d account.Device) uint64 { return d.MetadataBytes }},
	},
	"Mean commit time": {{ofAll: func(samples []account.Sample) float64 {
		var seconds, count float64
		for _, s := range samples {
			for _, d := range s.Devices {
				seconds += d.CommitSeconds * float64(d.Transactions)
				count += float64(d.Transactions)
			}
		}
		return seconds / count
	}}},
	"Transactions": {{ofDevice: func(d account.Device) uint64 { return d.Transactions }}},
	"Lost events": {
		{ofDevice: func(d account.Device) uint64 { return d.LostEvents }},
		{ofAll: func(samples []account.Sample) (forgotten float64) {
			for _, s := range samples {
				forgotten += float64(s.OwnersForgotten)
			}
			return forgotten
		}},
	},
	"Interval and samples": {
		{gauge: func(s account.Sample) float64 { return s.IntervalSeconds }},
		{ofAll: func(samples []account.Sample) float64 { return float64(len(samples)) }, slack: 3},
	},
}

// unknownToTop are the panels of journals in memory, which this disk does not have,
// of waits, which are not measured here, of control, which does not run, of pools, of
// the agent (see TestTheDashboardShowsTheJournalsOfPods), and of the daemon itself.
var unknownToTop = []string{
	"Logged in memory by container", "Operations in memory by container", "Logged in memory by file system", "Operations and commits in memory",
	"Time of a call", "Waiting by container", "p99 of a call by container", "Who made whom wait",
	"What enforces the shares", "Used part of pools", "Bytes that a pool promised and lacks", "Used part of volumes", "What needs a look",
	"Journals in the cgroup that they belong to", "Weight of the journal of a volume", "Journal of a volume", "What the agent does",
	"Age of the last round of the agent", "Agents that attribute I/O to containers",
	"Age of the last sample", "Containers", "Version",
}

type grafanaDashboard struct {
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		Type, Title string
		Targets     []struct{ Expr string }
	}
}

// dashboardRun is a run of top --json that Prometheus scraped under the names of
// two hosts, between two times at which the disk was quiet.
type dashboardRun struct {
	prometheus prometheusServer
	instances  []string
	disk       string
	from, to   time.Time
	// quiet is when top had seen that the disk was quiet, after from.
	quiet time.Time
	// scraped are the times between from and to at which Prometheus scraped an instance.
	scraped map[string][]time.Time
	samples []account.Sample
}

// filled replaces the variables of the dashboard, as Grafana does.
func (r dashboardRun) filled(expression, instance string) string {
	window := fmt.Sprintf("%dms", r.window().Milliseconds())
	return strings.NewReplacer("$__rate_interval", window, "$__range", window, "$instance", instance, "$device", r.disk, "$container", ".*").Replace(expression)
}

// problems lists the differences between the panels and top.
func (r dashboardRun) problems(t *testing.T, dashboard grafanaDashboard, groups [2]string) (problems []string) {
	t.Helper()
	fail := func(format string, values ...any) { problems = append(problems, fmt.Sprintf(format, values...)) }
	for _, group := range groups {
		if !slices.ContainsFunc(r.samples, func(s account.Sample) bool { return s.Container(group).JournalBytes > 0 }) {
			fail("%s did nothing", group)
		}
	}
	for _, panel := range dashboard.Panels {
		known := panels[panel.Title]
		switch {
		case panel.Type == "row":
		case slices.Contains(unknownToTop, panel.Title):
			for _, target := range panel.Targets {
				r.prometheus.at(t, r.filled(target.Expr, ".*"), r.to)
			}
		case len(known) != len(panel.Targets):
			fail("panel %q has %d queries, and %d values of top are known for it: name them in panels, or the panel in unknownToTop", panel.Title, len(panel.Targets), len(known))
		default:
			for k, target := range panel.Targets {
				r.compare(t, target.Expr, known[k], func(format string, values ...any) {
					fail("%s, query %d: %s", panel.Title, k+1, fmt.Sprintf(format, values...))
				})
			}
		}
	}
	return problems
}

func (r dashboardRun) window() time.Duration { return r.to.Sub(r.from) }

func TestTheDashboardShowsWhatTopShows(t *testing.T) {
	dashboard := readDashboard(t)
	d := newDashboardRig(t)
	// On a busy host Prometheus may miss the intervals with I/O.
	var r dashboardRun
	problems := []string{"not measured"}
	for tries := 0; len(problems) > 0 && tries < 5; tries++ {
		if tries > 0 {
			t.Logf("again, after:\n%s", strings.Join(problems, "\n"))
		}
		r = d.run(t, 5*time.Second<<tries)
		problems = r.problems(t, dashboard, d.groups)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	values := make(map[string][]string)
	for _, variable := range dashboard.Templating.List {
		query := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(variable.Definition)
		if query != nil {
			values[variable.Name] = r.prometheus.labelValues(t, r.filled(query[1], ".*"), query[2])
		}
	}
	if !slices.Equal(values["instance"], r.instances) {
		t.Errorf("the hosts to choose from are %q, want %q", values["instance"], r.instances)
	}
	if !slices.Contains(values["device"], r.disk) || !slices.Contains(values["container"], "/") {
		t.Errorf("the disks to choose from are %q, the containers %q", values["device"], values["container"])
	}
}

// compare compares the values of Prometheus with those of top. With all hosts chosen,
// each host has its own series; with one chosen, the other has none.
func (r dashboardRun) compare(t *testing.T, expression string, want shown, fail func(string, ...any)) {
	t.Helper()
	if one := r.prometheus.at(t, r.filled(expression, strings.ReplaceAll(regexp.QuoteMeta(r.instances[0]), `\`, `\\`)), r.to); slices.ContainsFunc(one, func(s result) bool { return s.Metric["instance"] != r.instances[0] }) {
		fail("with %s chosen there are series of others, or of all hosts together: %v", r.instances[0], one)
	}
	for _, instance := range r.instances {
		if want.containerGauge != nil || want.deviceGauge != nil || want.gauge != nil {
			r.compareGauge(t, expression, instance, want, fail)
			continue
		}
		got := make(map[string]float64)
		for _, series := range r.prometheus.at(t, r.filled(expression, ".*"), r.to) {
			if series.Metric["instance"] == instance {
				got[series.Metric["container"]] += number(t, series.Value)
			}
		}
		r.compareSums(expression, instance, got, want, fail)
	}
}

func (r dashboardRun) compareSums(expression, instance string, got map[string]float64, want shown, fail func(string, ...any)) {
	all := make(map[string]float64)
	first, last := r.scraped[instance][0], r.scraped[instance][len(r.scraped[instance])-1]
	samples := r.samples
	if want.slack > 0 {
		samples = between(samples, first, last)
	}
	for _, s := range samples {
		for _, d := range s.Devices {
			if want.ofDevice != nil {
				all[""] += float64(want.ofDevice(d))
			}
			for _, c := range d.Containers {
				if want.ofContainer != nil {
					all[c.Name] += float64(want.ofContainer(c))
				}
			}
		}
	}
	if want.ofAll != nil {
		all[""] = want.ofAll(samples)
	}
	var most float64
	for _, value := range all {
		most = max(most, value)
	}
	if want.ofAll == nil && strings.Contains(expression, "rate(") {
		for name := range got {
			got[name] *= r.window().Seconds()
		}
	}
	if len(got) == 0 {
		fail("%s: no value is shown for %s", expression, instance)
	}
	// Prometheus extends what it scraped at most to the ends of the window.
	extended := r.window().Seconds() / last.Sub(first).Seconds()
	for name, value := range got {
		if target := all[name]; value < 0.97*target-0.01*most-want.slack || value > 1.03*extended*target+0.01*most+want.slack {
			fail("%s of %s: %s shows %.6g, top %.6g", name, instance, expression, value, target)
		}
	}
	for name, value := range all {
		if _, there := got[name]; !there && value > 0.01*most {
			fail("%s of %s: %s shows nothing, top %.6g", name, instance, expression, value)
		}
	}
}

// compareGauge accepts the value of any interval of the run, because Prometheus
// scraped at arbitrary times.
func (r dashboardRun) compareGauge(t *testing.T, expression, instance string, want shown, fail func(string, ...any)) {
	t.Helper()
	values := make(map[string][]float64)
	for _, s := range r.samples {
		if want.gauge != nil {
			values[""] = append(values[""], want.gauge(s))
			continue
		}
		for _, d := range s.Devices {
			if want.deviceGauge != nil {
				values[""] = append(values[""], want.deviceGauge(d))
				continue
			}
			for _, c := range d.Containers {
				values[c.Name] = append(values[c.Name], want.containerGauge(c))
			}
		}
	}
	seen := make(map[string]bool)
	// Before, an interval may still be shown that ended before from.
	begin := slices.DeleteFunc(slices.Clone(r.scraped[instance]), func(at time.Time) bool { return !at.After(r.quiet) })[0]
	for _, series := range r.prometheus.during(t, r.filled(expression, ".*"), begin, r.to) {
		if series.Metric["instance"] != instance {
			continue
		}
		name := series.Metric["container"]
		for _, value := range series.Values {
			x := number(t, value)
			seen[name] = seen[name] || x != 0
			if !slices.ContainsFunc(values[name], func(y float64) bool { return math.Abs(x-y) <= 1e-9*math.Abs(y) }) {
				fail("%s of %s: %s shows %g, which top never reported: %v", name, instance, expression, x, values[name])
				break
			}
		}
	}
	for name, all := range values {
		busy := slices.DeleteFunc(slices.Clone(all), func(x float64) bool { return x == 0 })
		if len(busy) > 2 && !seen[name] {
			fail("%s of %s: %s shows nothing, top %v", name, instance, expression, busy)
		}
	}
}

// dashboardRig is top --json, which Prometheus scrapes, and two cgroups.
type dashboardRig struct {
	dashboardRun // without times and samples
	fs           ext4test.FileSystem
	tree         *cgroup.Tree
	groups       [2]string
	watched      watchedTop
}

func newDashboardRig(t *testing.T) dashboardRig {
	t.Helper()
	d := dashboardRig{fs: ext4test.New(t, ext4test.Options{})}
	d.tree = cgrouptest.Tree(t)
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	needs.That(t, err == nil, "a kernel with BTF")
	for n := range d.groups {
		d.groups[n] = cgrouptest.New(t, d.tree, fmt.Sprintf("dashboard-%c", 'a'+n))
	}
	port := freePort(t)
	d.disk, d.instances = d.fs.Disk.Name, []string{"127.0.0.1:" + port, "localhost:" + port}
	d.prometheus = startPrometheus(t, d.instances...)
	d.watched = startTop(t, d.disk, port)
	// A counter that starts within the window has no rate, so all start before it.
	loadForDashboard(t, d.tree, d.groups, d.fs, 100*time.Millisecond)
	return d
}

// run lets the cgroups write for some time.
func (d dashboardRig) run(t *testing.T, length time.Duration) dashboardRun {
	t.Helper()
	r := d.dashboardRun
	r.from, r.quiet = d.watched.quiet(t)
	r.from = r.from.Truncate(time.Millisecond) // as unixTime
	r.awaitScrapes(t, r.quiet)
	loadForDashboard(t, d.tree, d.groups, d.fs, length)
	_, quiet := d.watched.quiet(t)
	r.awaitScrapes(t, quiet)
	r.to = time.Now().Truncate(time.Millisecond)
	awaittest.Until(t, awaittest.Patience, "top prints a later sample", func() bool {
		time.Sleep(100 * time.Millisecond)
		all := d.watched.samples(t)
		r.samples = between(all, r.from, r.to)
		return all[len(all)-1].Time.After(r.to)
	})
	r.scraped = make(map[string][]time.Time)
	for _, instance := range r.instances {
		r.scraped[instance] = r.prometheus.scrapes(t, instance, r.from, r.to)
	}
	return r
}

// awaitScrapes waits until Prometheus has scraped each instance twice after a time.
func (r dashboardRun) awaitScrapes(t *testing.T, after time.Time) {
	t.Helper()
	for _, instance := range r.instances {
		awaittest.Until(t, awaittest.Patience, "Prometheus scrapes "+instance, func() bool {
			time.Sleep(100 * time.Millisecond)
			return len(r.prometheus.scrapes(t, instance, after, time.Now())) >= 2
		})
	}
}

// between selects the samples of a time.
func between(samples []account.Sample, from, to time.Time) []account.Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s account.Sample) bool { return s.Time.Before(from) || s.Time.After(to) })
}

// loadForDashboard runs two loads: one makes directories; the other appends with fsync
// and reads 8 MiB. Then all data is written back, also in place.
func loadForDashboard(t *testing.T, tree *cgroup.Tree, groups [2]string, fs ext4test.FileSystem, last time.Duration) {
	t.Helper()
	var children []*workload.Child
	for n, spec := range []workload.Spec{
		{MkdirIn: filepath.Join(fs.Dir, fmt.Sprint("made", time.Now().UnixNano())), MkdirPerSecond: 500},
		{AppendIn: filepath.Join(fs.Dir, "log"), AppendPerSecond: 30, AppendSync: true},
	} {
		if spec.MkdirIn != "" {
			if err := os.MkdirAll(spec.MkdirIn, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		child, err := workload.Start(spec, tree.Root()+groups[n])
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, child)
	}
	for _, child := range children {
		if err := child.Go(); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(last)
	read := exec.Command("sh", "-c", `echo $$ >"$1/cgroup.procs" && exec dd if="$2" of=/dev/null bs=64k count=128 iflag=direct status=none`, "sh", tree.Root()+groups[1], fs.Disk.Node())
	if text, err := read.CombinedOutput(); err != nil {
		t.Errorf("cannot read the disk: %v, %s", err, text)
	}
	for _, child := range children {
		if _, err := child.Stop(); err != nil {
			t.Error(err)
		}
	}
	for _, sync := range []struct {
		path string
		call func(int) error
	}{{fs.Dir, unix.Syncfs}, {fs.Disk.Node(), unix.Fsync}} {
		opened, err := os.Open(sync.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sync.call(int(opened.Fd())), opened.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// watchedTop is a running top --json that also serves its samples as metrics.
type watchedTop struct{ path string }

func startTop(t *testing.T, disk, port string) watchedTop {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "top"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	saved := os.Stdout
	os.Stdout = file
	root := newRootCommand()
	root.SetArgs([]string{"top", "--json", "--interval", "1s", "--device", disk, "--metrics", "127.0.0.1:" + port})
	go func() { ended <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		err := <-ended
		os.Stdout = saved
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		if err := errors.Join(err, file.Close()); err != nil {
			t.Error(err)
		}
	})
	w := watchedTop{file.Name()}
	for deadline := time.Now().Add(awaittest.Patience); len(w.samples(t)) == 0; time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("top ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("top prints nothing")
		}
	}
	return w
}

func (w watchedTop) samples(t *testing.T) (all []account.Sample) {
	t.Helper()
	text, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		var s account.Sample
		if bytes.HasSuffix(line, []byte("\n")) {
			if err := json.Unmarshal(line, &s); err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
	}
	return all
}

// quiet waits for three intervals in which the disk did nothing, and returns the ends of the
// first and the last.
func (w watchedTop) quiet(t *testing.T) (first, last time.Time) {
	t.Helper()
	began := time.Now()
	for deadline := began.Add(awaittest.Patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		all, still := w.samples(t), 0
		for _, s := range all {
			still++
			for _, d := range s.Devices {
				if d.DiskBytes > 0 || s.Time.Before(began) {
					still = 0
				}
			}
		}
		if still >= 3 {
			return all[len(all)-still].Time, all[len(all)-1].Time
		}
	}
	t.Fatal("the disk does not become idle")
	return first, last
}
