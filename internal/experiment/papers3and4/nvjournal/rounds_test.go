package nvjournal

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/experiment/report"
	"github.com/daybook-project/daybook/internal/experiment/verdict"
)

// set replaces the rounds of an engine with two threads.
func (n *Result) set(engine string, rounds []Round) {
	for k, r := range n.Rows {
		if r.Engine == engine && r.Threads == 2 {
			n.Rows[k].Rounds = rounds
		}
	}
	n.evaluate()
}

func verdictOn(t *testing.T, n Result, name string) verdict.Verdict {
	t.Helper()
	for _, v := range n.Verdicts() {
		if strings.Contains(v.Name(), name) {
			return v
		}
	}
	t.Fatalf("there is no target %q", name)
	return verdict.Verdict{}
}

const (
	lockNear  = "over one lock with one fence, varmail, processors near"
	lockApart = "over one lock with one fence, varmail, processors apart"
	pmemNear  = "over libpmemobj, varmail, processors near"
	pmemApart = "over libpmemobj, varmail, processors apart"
)

func TestNearOverApartIsNoVerdict(t *testing.T) {
	n := measured()
	n.set(byProcessor, roundsOf(5.164e6, near, near, near, near, near))
	n.set("one-lock-one-fence", roundsOf(1e6, apart, apart, apart, apart, apart))
	n.set("libpmemobj", roundsOf(1e6, apart, apart, apart, apart, apart))
	for _, name := range []string{lockNear, lockApart, pmemNear, pmemApart} {
		if v := verdictOn(t, n, name); !v.None || v.Met || v.Value != 0 {
			t.Errorf("%s: %+v, want no verdict", name, v)
		}
	}
	for _, r := range n.Ratios {
		if r.Threads == 2 && (r.Baseline == "one-lock-one-fence" || r.Baseline == "libpmemobj") {
			t.Errorf("a ratio of rounds in two states: %+v", r)
		}
	}
	// In no state there is a verdict: that is not passed over.
	if err := n.Check(); err == nil || !strings.Contains(err.Error(), "no verdict") {
		t.Errorf("a target without any verdict is passed over: %v", err)
	}
	page, err := n.Report()
	if err != nil {
		t.Fatal(err)
	}
	if top := page.Lead[0]; !strings.Contains(top, "**No verdict,**") || !strings.Contains(top, lockNear) || !strings.Contains(top, pmemApart) {
		t.Errorf("the page does not begin with what has no verdict: %s", top)
	}
}

func TestLikeIsDividedByLike(t *testing.T) {
	n := measured()
	n.set(byProcessor, roundsOf(2.025e6, near, apart, apart, apart, moved))
	n.set("one-lock", roundsOf(1.265e6, apart, apart, apart, apart, apart))
	n.set("one-lock-one-fence", roundsOf(3.182e6, apart, apart, apart, apart, apart))
	n.set("libpmemobj", roundsOf(4.282e6, apart, apart, apart, apart, apart))
	for baseline, want := range map[string]float64{"one-lock": 1.601, "one-lock-one-fence": 0.636, "libpmemobj": 0.473} {
		r := n.ratio("varmail", baseline, 2, Apart)
		if r == nil || r.Pairs != 3 || math.Abs(r.Ratio.Median-want) > 0.001 {
			t.Errorf("over %s: %+v, want %g of 3 pairs", baseline, r, want)
		}
		if r := n.ratio("varmail", baseline, 2, NVJNear); r != nil {
			t.Errorf("over %s, near: %+v, and there was no near round of it", baseline, r)
		}
	}
	for _, v := range n.Verdicts() {
		if strings.Contains(v.Name(), " over one lock") && !strings.HasPrefix(v.Name(), "nvjournal, by processor, P = 16, over ") {
			t.Errorf("%s does not name the form of nvjournal", v.Name())
		}
	}
	// The best form of one lock is what counts, not the one with a fence for each record.
	if v := verdictOn(t, n, lockApart); v.None || v.Met || math.Abs(v.Value-0.636) > 0.001 || v.Measured != "0.64× (2 threads, 3 pairs of rounds)" {
		t.Errorf("over one lock: %+v", v)
	}
	if v := verdictOn(t, n, pmemApart); v.None || v.Met || math.Abs(v.Value-0.473) > 0.001 {
		t.Errorf("over libpmemobj: %+v", v)
	}
	if v := verdictOn(t, n, lockNear); !v.None {
		t.Errorf("near: %+v", v)
	}
	page, err := n.Report()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page.Lead[0], "**Targets missed.** nvjournal, by processor, P = 16, "+lockApart) {
		t.Errorf("the page does not begin with what is missed: %s", page.Lead[0])
	}
	if row := page.Tables[0].Rows[0]; row[3] != "no" {
		t.Errorf("the first target of the table is %v, want one that is missed", row)
	}
}

// The form of nvjournal is chosen before the measurement, and not for each cell after it.
func TestAllRatiosAreOfOneForm(t *testing.T) {
	n := measured()
	n.set("nvjournal", both(2, 9e6, 9e6))
	if r := n.ratio("varmail", "one-lock-one-fence", 2, NVJNear); r == nil || r.Ours != "nvjournal, by processor, P = 16" || math.Abs(r.Ratio.Median-3.1/1.2) > 0.001 {
		t.Errorf("%+v, want 2.58 of nvjournal, by processor", r)
	}
	n.Floor[2].Rounds = updateRounds(10, 10, 10)
	n.evaluate()
	if ratios := n.overOneLockUpdates(NVJNear); len(ratios) != leastPairs || ratios[0] != 3 {
		t.Errorf("updates: %v, want 450/150", ratios)
	}
}

func TestTwoPairsAreNoVerdict(t *testing.T) {
	n := measured()
	n.set("libpmemobj", roundsOf(1e6, near, apart, near, apart))
	if r := n.ratio("varmail", "libpmemobj", 2, NVJNear); r == nil || r.Pairs != 2 {
		t.Fatalf("want two pairs: %+v", r)
	}
	if v := verdictOn(t, n, pmemNear); !v.None {
		t.Errorf("%+v, want no verdict", v)
	}
}

func TestARunWithOneStateAloneDoesNotCallItNear(t *testing.T) {
	n := measured()
	n.NearestNanoseconds = 190
	n.set("one-lock", roundsOf(1e6, apart, apart))
	if rates := n.row("varmail", "one-lock", 1, 2).Rates; len(rates) != 1 || rates[0].State != Apart {
		t.Errorf("%+v, want the rounds of 190 ns to be apart", rates)
	}
}

func TestEachStateHasItsTablesAndRows(t *testing.T) {
	n := measured()
	n.set("libpmemobj", roundsOf(1.5e6, near, near, near, moved))
	page, err := n.Report()
	if err != nil {
		t.Fatal(err)
	}
	tables := make(map[string]report.Table)
	for _, table := range page.Tables {
		tables[table.Title] = table
	}
	for title, want := range map[string]string{
		"Updates a second, thousands: varmail, processors near":  "libpmemobj|1500 (1500; 6)|1500 (1500; 3)",
		"Updates a second, thousands: varmail, processors apart": "libpmemobj|1500 (1500; 6)|–",
	} {
		rows := tables[title].Rows
		if len(rows) != 8 || strings.Join(rows[7], "|") != want {
			t.Errorf("%s: %v, want %q at its end", title, rows, want)
		}
	}
	near, apart := tables["nvjournal over the others, processors near"].Rows, tables["nvjournal over the others, processors apart"].Rows
	if len(near) != 5 || strings.Join(near[3], "|") != "varmail, one-lock-one-fence|2.58× (6)|2.58× (3)" || strings.Join(apart[3], "|") != "varmail, one-lock-one-fence|2.58× (6)|2.50× (3)" {
		t.Errorf("ratios, near: %v, apart: %v", near, apart)
	}
	if got, want := strings.Join(n.floorTable().Rows[2][1:], "|"), "140 (140 to 140)|1.40×|146 (146 to 146)|1.92× (3 rounds)|152 (152 to 152)|1.84× (3 rounds)"; got != want {
		t.Errorf("the floor's row is %q, want %q", got, want)
	}
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var kept struct {
		Rows []struct {
			Engine  string
			Threads int
			Rounds  []struct{ State string }
			Rates   []struct {
				State  string
				Rounds int
			}
		}
		Ratios []struct {
			State string
			Pairs int
		}
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	last := kept.Rows[len(kept.Rows)-1]
	if last.Engine != "libpmemobj" || len(last.Rates) != 1 || last.Rates[0].State != "near" || last.Rates[0].Rounds != 3 || last.Rounds[3].State != "changed" {
		t.Errorf("JSON of libpmemobj with two threads: %+v", last)
	}
	states := make(map[string]int)
	for _, r := range kept.Ratios {
		states[r.State]++
	}
	if states["near"] != 5 || states["apart"] != 4 || states[""] != 5 {
		t.Errorf("ratios in JSON by state: %v", states)
	}
}
