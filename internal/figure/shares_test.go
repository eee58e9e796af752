package figure

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

var allPanels = []Panel{Throughput, Frequency, Composition, Weights}

// steady is a phase of n intervals of one second in which each container reads
// the given number of bytes.
func steady(name string, n int, bytesOf map[string]uint64) Phase {
	p := Phase{Name: name}
	for range n {
		d := account.Device{Device: "loop0"}
		for _, cgroup := range []string{"/", "/a", "/b"} {
			if bytes, ok := bytesOf[cgroup]; ok {
				d.Containers = append(d.Containers, account.Container{Cgroup: cgroup, ChargedReadBytes: bytes})
			}
		}
		p.Samples = append(p.Samples, account.Sample{IntervalSeconds: 1, Devices: []account.Device{d}})
	}
	return p
}

func pair(phases ...Phase) Shares {
	return Shares{
		Device:     "loop0",
		Containers: []Container{{Cgroup: "/a", Name: "A"}, {Cgroup: "/b", Name: "B"}},
		Phases:     phases,
	}
}

func TestTheSameSamplesGiveTheSameBytesAtAnyTime(t *testing.T) {
	first := must(t)(paperRun().SVG(allPanels...))
	later := paperRun()
	for _, p := range later.Phases {
		for k := range p.Samples {
			p.Samples[k].Time = time.Date(2031, 5, 6, 7, 8, 9, k, time.UTC)
		}
	}
	if second := must(t)(later.SVG(allPanels...)); !bytes.Equal(first, second) {
		t.Error("two pictures of the same run differ")
	}
}

func TestEveryPictureIsLegible(t *testing.T) {
	pictures := map[string]SVG{"paper": must(t)(paperRun().SVG(allPanels...))}
	for n := 1; n <= maxContainers; n++ {
		for _, phases := range []int{1, 2, 3, 4, maxPhases} {
			pictures[fmt.Sprintf("%d containers, %d phases", n, phases)] = must(t)(crowd(n, phases).SVG(allPanels...))
		}
	}
	one := paperRun()
	one.Phases[0].Samples = one.Phases[0].Samples[:1]
	one.Phases[1].Samples = nil
	pictures["one sample and none"] = must(t)(one.SVG(allPanels...))
	zero := pair(steady("zero bytes", 5, map[string]uint64{"/a": 0, "/b": 0}))
	pictures["zero bytes"] = must(t)(zero.SVG(allPanels...))
	huge := pair(steady("huge", 3, map[string]uint64{"/a": 1 << 53, "/b": 1}))
	huge.Phases[0].Samples[0].IntervalSeconds = leastInterval
	pictures["huge"] = must(t)(huge.SVG(allPanels...))
	small := pair(steady("small", 3, map[string]uint64{"/a": 3, "/b": 1}))
	small.Phases[0].Samples[0].IntervalSeconds = 1e6
	pictures["small"] = must(t)(small.SVG(allPanels...))
	for name, svg := range pictures {
		t.Run(name, func(t *testing.T) { checkLegible(t, svg) })
	}
}

// Set DAYBOOK_FIGURES to a directory to see the figures that the tests draw.
func TestEveryPictureCanBeWritten(t *testing.T) {
	dir := os.Getenv("DAYBOOK_FIGURES")
	if dir == "" {
		dir = t.TempDir()
	}
	page, err := reportRun().HTML()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"paper.svg":    must(t)(paperRun().SVG()),
		"panels.svg":   must(t)(paperRun().SVG(allPanels...)),
		"crowd4.svg":   must(t)(crowd(4, 2).SVG(allPanels...)),
		"crowd8.svg":   must(t)(crowd(8, 4).SVG(allPanels...)),
		"hostile.svg":  must(t)(hostile().SVG(allPanels...)),
		"accuracy.svg": must(t)(accuracyRun().SVG()),
		"overhead.svg": must(t)(overheadRun().SVG()),
		"report.html":  page,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPanelIsTitledWithTheMeanSharesByBytes(t *testing.T) {
	// 3 intervals at 1:3 and one, three times as busy, at 2:1. The root cgroup
	// is not a container and does not count.
	run := steady("run", 3, map[string]uint64{"/": 1e9, "/a": 1e6, "/b": 3e6})
	run.Samples = append(run.Samples, steady("", 1, map[string]uint64{"/": 5, "/a": 8e6, "/b": 4e6}).Samples...)
	d := parse(t, must(t)(pair(run).SVG()))
	for _, want := range []string{"A 45.8 %", "B 54.2 %"} { // 11:13
		if !d.has(want) {
			t.Errorf("%q is not written in %v", want, d.texts)
		}
	}
}

func TestAllPhasesShareOneAxisOfThroughput(t *testing.T) {
	d := parse(t, must(t)(pair(
		steady("slow", 4, map[string]uint64{"/a": 2e6, "/b": 4e6}),
		steady("fast", 4, map[string]uint64{"/a": 10e6, "/b": 8e6}),
	).SVG(Throughput)))
	a := d.lines(0)
	b := d.lines(1)
	if len(a) != 2 || len(b) != 2 {
		t.Fatalf("%d and %d lines; want one for each phase", len(a), len(b))
	}
	// With one axis, equal steps of rate are equal distances.
	perMB := (a[0].points[0][1] - b[0].points[0][1]) / 2
	if got := (a[0].points[0][1] - a[1].points[0][1]) / 8; perMB <= 0 || math.Abs(got-perMB) > 0.1 {
		t.Errorf("1 MB/s is %g high in the first phase, %g between the phases", perMB, got)
	}
}

func TestAnIntervalWithoutTheDiskLeavesAGap(t *testing.T) {
	run := steady("run", 9, map[string]uint64{"/a": 1e6, "/b": 2e6})
	run.Samples[4].Devices[0].Device = "loop1"
	d := parse(t, must(t)(pair(run).SVG(Throughput)))
	if got := len(d.lines(0)); got != 2 {
		t.Errorf("%d pieces of line; want 2", got)
	}
	if shares := pair(run).reduce().phases[0].sharesOf(0); len(shares) != 8 {
		t.Errorf("%d shares; want 8", len(shares))
	}
}

func TestAContainerThatIsMissingHasNoShare(t *testing.T) {
	run := steady("run", 3, map[string]uint64{"/a": 1e6, "/b": 1e6})
	run.Samples[1].Devices[0].Containers = run.Samples[1].Devices[0].Containers[1:]
	d := pair(run).reduce().phases[0]
	if got := d.sharesOf(0); !slices.Equal(got, []float64{0.5, 0, 0.5}) {
		t.Errorf("A has the shares %v", got)
	}
	if got := d.sharesOf(1); !slices.Equal(got, []float64{0.5, 1, 0.5}) {
		t.Errorf("B has the shares %v", got)
	}
}

func TestAnIdleIntervalHasNoShareAtAll(t *testing.T) {
	run := steady("run", 2, map[string]uint64{"/a": 1e6, "/b": 3e6})
	run.Samples = append(run.Samples, steady("", 3, map[string]uint64{"/": 9e6}).Samples...)
	if got := pair(run).reduce().phases[0].sharesOf(0); !slices.Equal(got, []float64{0.25, 0.25}) {
		t.Errorf("A has the shares %v", got)
	}
}

func TestTheCumulativeFrequencyStepsUpAtEachShare(t *testing.T) {
	points := cumulative([]float64{0.6, 0.4, 0.5, 0.5})
	want := [][2]float64{{40, 0}, {40, 25}, {50, 25}, {50, 50}, {50, 50}, {50, 75}, {60, 75}, {60, 100}}
	for i, p := range points {
		if len(points) != len(want) || p.X != want[i][0] || p.Y != want[i][1] {
			t.Fatalf("got %v; want %v", points, want)
		}
	}
}

func TestTargetsAreDashedLinesAtTheirShare(t *testing.T) {
	s := pair(steady("run", 4, map[string]uint64{"/a": 1e6, "/b": 3e6}))
	s.Containers[0].Target, s.Containers[1].Target = 0.3, 0.7
	d := parse(t, must(t)(s.SVG(Frequency)))
	at := map[bool][]float64{}
	for i := range 2 {
		for _, line := range d.lines(i) {
			at[line.dashed] = append(at[line.dashed], line.points[0][0])
		}
	}
	if len(at[true]) != 2 || len(at[false]) != 2 {
		t.Fatalf("dashed lines at %v, others at %v; want two and two", at[true], at[false])
	}
	// Shares are 25 and 75, targets 30 and 70: the same scale for both.
	perPoint := (at[false][1] - at[false][0]) / 50
	if got := (at[true][1] - at[true][0]) / 40; math.Abs(got-perPoint) > 0.05 {
		t.Errorf("a point is %g wide for shares, %g for targets", perPoint, got)
	}
	if got := (at[true][0] - at[false][0]) / 5; math.Abs(got-perPoint) > 0.05 {
		t.Errorf("the target 30 %% is drawn %g points from the share 25 %%", 5*got/perPoint)
	}
}

func TestATargetOfSeveralIsDrawnOnceInANeutralColour(t *testing.T) {
	d := paperRun().reduce().phases[0]
	var n int
	for target, color := range d.targets() {
		n++
		if target != 0.5 || color != soft {
			t.Errorf("target %g has colour %v", target, color)
		}
	}
	if n != 1 {
		t.Errorf("%d targets; want 1", n)
	}
}

func TestTheTargetComesFromTheSamplesUnlessGiven(t *testing.T) {
	s := paperRun()
	s.Containers[1].Target = 0.6
	for k := range s.Phases[0].Samples {
		for i := range s.Phases[0].Samples[k].Devices[0].Containers {
			s.Phases[0].Samples[k].Devices[0].Containers[i].TargetShare = 0
		}
	}
	for _, d := range s.reduce().phases {
		if a, b := d.tracks[0].target, d.tracks[1].target; a != 0.5 || b != 0.6 {
			t.Errorf("%s: targets %g and %g", d.name, a, b)
		}
	}
}

func TestTheBarsOfAContainerAreAsLongAsItsKindsOfBytes(t *testing.T) {
	p := Phase{Name: "run", Samples: []account.Sample{{IntervalSeconds: 2, Devices: []account.Device{{
		Device: "loop0", Containers: []account.Container{
			{Cgroup: "/a", ChargedReadBytes: 4e6, ReturnedBytes: 1e6, JournalBytes: 3e6, MetadataBytes: 2e6, UnchargedBytes: 1e6},
		}}}}}}
	s := pair(p)
	s.Containers = s.Containers[:1]
	d := parse(t, must(t)(s.SVG(Composition)))
	var widths []float64
	for _, kind := range kindStyles {
		r, g, b, _ := kind.color.RGBA()
		for _, p := range d.paths {
			if p.fill == fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8) && p.points[1][0]-p.points[0][0] != 10 {
				widths = append(widths, p.points[1][0]-p.points[0][0])
			}
		}
	}
	if len(widths) != 4 {
		t.Fatalf("%d parts; want 4", len(widths))
	}
	for i, want := range []float64{4, 3, 2, 1} {
		if got := widths[i] / widths[3]; math.Abs(got-want) > 0.02 {
			t.Errorf("%s is %g times the uncharged data; want %g", kindStyles[i].name, got, want)
		}
	}
	if !d.has("5.0 MB/s") || !d.has("60.0 % not charged to its container") {
		t.Errorf("the rate or the hidden part is missing in %v", d.texts)
	}
}

func TestEqualWeightsAreDrawnSideBySide(t *testing.T) {
	s := paperRun()
	s.Phases = s.Phases[:1]
	d := parse(t, must(t)(s.SVG(Weights)))
	a, b := d.lines(0), d.lines(1)
	if len(a) != 1 || len(b) != 1 {
		t.Fatalf("%d and %d lines; want one each", len(a), len(b))
	}
	if apart := b[0].points[0][1] - a[0].points[0][1]; math.Abs(apart-2.2) > 0.05 {
		t.Errorf("two lines 2.2 wide are %g apart", apart)
	}
}

// hostile has names that attack markup, terminals, readers and layout.
func hostile() Shares {
	names := []string{
		`</text><script>alert(1)</script>`,
		"\x1b[31mred\x00\x7f\r\n\t\"quoted\" 'too' style=\"font-family:Liberation Sans;",
		"\u202egnp.txe\u2066\ufeff \xff\xfe]]>&amp;&#x41;<!--",
		"容器データベース" + strings.Repeat("一", 40),
		"z" + strings.Repeat("\u0334", 60) + "algo 🐳",
		strings.Repeat("W", 5000),
	}
	s := Shares{Device: "loop0\"><svg onload=x>"}
	var mixes []mix
	for i, name := range names {
		cgroup := fmt.Sprintf("/%d", i)
		mixes = append(mixes, mix{cgroup: cgroup, name: name, share: 1 / float64(len(names)), target: 1 / float64(len(names)),
			journal: 0.1, weight: func(int) uint64 { return 10_000 }})
		s.Containers = append(s.Containers, Container{Cgroup: cgroup})
	}
	for _, name := range []string{"</g></svg>", strings.Repeat("phase ", 50), "\x00"} {
		p := synthesize(name, 6, 5, 30e6, 0.01, mixes)
		for k := range p.Samples {
			p.Samples[k].Devices[0].Device = s.Device
		}
		s.Phases = append(s.Phases, p)
	}
	return s
}

func TestHostileNamesStayText(t *testing.T) {
	svg := must(t)(hostile().SVG(allPanels...))
	checkLegible(t, svg)
	for _, bad := range []string{"<script", "onload=x>", "\x1b", "\x00", "\u202e", "\xff", "<!--"} {
		if bytes.Contains(svg, []byte(bad)) {
			t.Errorf("%q reached the picture", bad)
		}
	}
}

func TestInvalidSharesAreRejected(t *testing.T) {
	for want, spoil := range map[string]func(*Shares){
		"no device":       func(s *Shares) { s.Device = "" },
		"0 containers":    func(s *Shares) { s.Containers = nil },
		"9 containers":    func(s *Shares) { s.Containers = make([]Container, 9) },
		"0 phases":        func(s *Shares) { s.Phases = nil },
		"10 phases":       func(s *Shares) { s.Phases = make([]Phase, maxPhases+1) },
		"named twice":     func(s *Shares) { s.Containers[1].Cgroup = s.Containers[0].Cgroup },
		"target of \"/da": func(s *Shares) { s.Containers[0].Target = math.NaN() },
	} {
		s := paperRun()
		spoil(&s)
		if _, err := s.SVG(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		if _, err := (Report{Shares: s}).HTML(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("report: want an error with %q, got %v", want, err)
		}
	}
	if _, err := paperRun().SVG(Panel(panelKinds)); err == nil {
		t.Error("an unknown panel was drawn")
	}
}

func TestSamplesOfNoLengthAreSkipped(t *testing.T) {
	run := steady("run", 6, map[string]uint64{"/a": 1e6, "/b": 1e6})
	for k, seconds := range []float64{0, -1, math.NaN(), math.Inf(1), 1e-300} {
		run.Samples[k].IntervalSeconds = seconds
	}
	if d := pair(run).reduce().phases[0]; len(d.end) != 1 || d.length() != 1 {
		t.Errorf("%d intervals of %g s; want one of 1 s", len(d.end), d.length())
	}
	checkLegible(t, must(t)(pair(run).SVG(allPanels...)))
}
