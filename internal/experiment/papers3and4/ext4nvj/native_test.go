package ext4nvj

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/statistics"
)

// nativeResult has ext4nvj twice as fast as stock ext4, with 2 of its processors.
func nativeResult(slowdown float64) Result {
	n := Result{CPUs: 2, Native: &NativeResult{Sanity: []Sanity{{
		Load: Varmail, HostOperationsPerSecond: statistics.Spread{Median: 1000 * slowdown}, OperationsPerSecond: statistics.Spread{Median: 1000},
	}}}}
	for _, threads := range []int{1, 4, 8, 16} {
		for arrangement, rate := range map[string]float64{StockDisk: 100, StockPmem: 200, NVJFine: 100, NVJOne: 300, NVJEight: 50, NVJSmall: 400} {
			n.Runs = append(n.Runs, Run{Disk: "10us", Load: Varmail, Threads: threads, Arrangement: arrangement, OperationsPerSecond: statistics.Spread{Median: rate}})
		}
	}
	return n
}

func TestNativeVerdictsNeedASaneKernelAndProcessors(t *testing.T) {
	for _, slowdown := range []float64{1.4, 1.6} {
		compared := 0
		for _, v := range nativeResult(slowdown).Verdicts() {
			switch {
			case strings.HasPrefix(v.Target, "sanity"):
				if v.Met != (slowdown < MaxSlowdown) {
					t.Errorf("slowdown %g: %+v", slowdown, v)
				}
			case strings.Contains(v.Target, "8 threads"):
				t.Errorf("8 threads on 2 processors: %+v", v)
			case strings.Contains(v.Target, "16 threads"):
				if !v.None {
					t.Errorf("with 2 processors: %+v", v)
				}
			default:
				compared++
				// Over the faster stock ext4.
				if sane := slowdown < MaxSlowdown; v.None == sane || v.Met != sane || v.Value != 2 {
					t.Errorf("slowdown %g: %+v", slowdown, v)
				}
			}
		}
		if compared != 2 {
			t.Errorf("slowdown %g: %d comparisons", slowdown, compared)
		}
	}
	if (NativeResult{}).isSane() {
		t.Error("a result without a sanity check is sane")
	}
}

func TestTheNativePartIsReplacedAndTheRestKept(t *testing.T) {
	page := "# Title\n\nlead\n\n## Targets\n\ntable\n"
	first := WithNativePart(page, "\nfirst\n\n")
	if at := strings.Index(first, "first"); at < 0 || at > strings.Index(first, "lead") {
		t.Errorf("%q", first)
	}
	part, rest := NativePart(first)
	if part != "\nfirst\n\n" || rest != page {
		t.Errorf("%q, %q", part, rest)
	}
	if second := WithNativePart(first, "\nsecond\n\n"); strings.Contains(second, "first") || !strings.Contains(second, "second") || strings.Count(second, emulated) != 1 {
		t.Errorf("%q", second)
	}
	if alone := WithNativePart("", "\nfirst\n\n"); !strings.HasPrefix(alone, "# "+title+"\n\n"+nativeBegin+"\n\nfirst\n") || !strings.Contains(alone, emulated+"\n\nNot measured.\n") {
		t.Errorf("without a page: %q", alone)
	}
	if WithNativePart(first, "") != page {
		t.Error("an empty part leaves something")
	}
}

func TestTheNativeReportSaysThatTheSanityCheckFailed(t *testing.T) {
	for slowdown, want := range map[float64]bool{1.2: false, 3: true} {
		text, err := nativeResult(slowdown).NativeMarkdown()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "The sanity check failed") != want || !strings.Contains(text, NativeCommand) {
			t.Errorf("slowdown %g: %s", slowdown, text)
		}
	}
}

func TestARunIsTheSameForTheKernelAndTheProgram(t *testing.T) {
	for _, c := range []struct {
		run             loadRun
		line, arguments string
	}{
		{loadRun{load: Varmail, directory: "/tmp/mail", files: 1000, threads: 2, milliseconds: 400, seed: 3},
			"varmail /tmp/mail 1000 2 400 3\n", "varmail /tmp/mail --files 1000 --threads 2 --seed 3 --milliseconds 400"},
		{loadRun{load: Create, directory: "/tmp/made1", files: 2048, threads: 16, seed: 1},
			"create /tmp/made1 2048 16 0 1\n", "create /tmp/made1 --files 2048 --threads 16 --seed 1"},
		{loadRun{load: Create, directory: "/tmp/made1", files: 98304, threads: 2, milliseconds: 500, seed: 1},
			"create /tmp/made1 98304 2 500 1\n", "create /tmp/made1 --files 98304 --threads 2 --seed 1 --milliseconds 500"},
	} {
		if got := c.run.line(); got != c.line {
			t.Errorf("%q; want %q", got, c.line)
		}
		if got := strings.Join(c.run.arguments(), " "); got != c.arguments {
			t.Errorf("%q; want %q", got, c.arguments)
		}
	}
}

// Under KVM there is no sanity check, and 16 threads have a verdict with 16 processors.
func TestVerdictsUnderKVMNeedProcessors(t *testing.T) {
	for _, cpus := range []int{2, 16} {
		n := nativeResult(1)
		n.CPUs, n.KVM, n.Native = cpus, true, nil
		judged := 0
		for _, v := range n.Verdicts() {
			if v.None != (strings.Contains(v.Target, "16 threads") && cpus < 16) {
				t.Errorf("%d processors: %+v", cpus, v)
			}
			if !v.None {
				judged++
			}
		}
		// Over stock ext4 with 1 and 4 threads; with 16 processors also with 8 and 16, and two targets of the papers.
		if want := map[int]int{2: 2, 16: 6}[cpus]; judged != want {
			t.Errorf("%d processors: %d verdicts; want %d", cpus, judged, want)
		}
		page, err := n.Report()
		if err != nil {
			t.Fatal(err)
		}
		if text := string(page.Markdown("command", "")); strings.Contains(text, "What emulation hides") || !strings.Contains(text, "(KVM)") {
			t.Errorf("%s", text)
		}
	}
}
