package top

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

func TestALawAnswersOnlyForSiblingsWithWeights(t *testing.T) {
	const mib = 1 << 20
	sample := account.Sample{IntervalSeconds: 5, Devices: []account.Device{
		{Device: "sda", Containers: []account.Container{
			{Cgroup: "/g/a", Name: "a", TargetShare: 0.4, Weight: 100, ChargedReadBytes: 50 * mib},
			{Cgroup: "/g/b\x1b[2J", Name: "b\x1b[2J", TargetShare: 0.4, Weight: 100, ChargedReadBytes: 50 * mib, JournalBytes: 50 * mib},
			{Cgroup: "/alone", TargetShare: 0.2, Weight: 100, ChargedReadBytes: mib},
			{Cgroup: "/g/unweighed", TargetShare: 0.1, ChargedReadBytes: mib},
			{Cgroup: "/", Weight: 100, ChargedWriteBytes: mib},
		}},
		{Device: "sdb", Containers: []account.Container{{Cgroup: "/alone", TargetShare: 1, Weight: 100}}},
	}}
	w, err := NewWhatIf("paper")
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Next(sample)
	if err != nil || len(got) != 1 || got[0].Device != "sda" || len(got[0].Containers) != 2 {
		t.Fatalf("%v: %+v", err, got)
	}
	// 150 MiB in all, 75 each: a needs 75/50 of its weight, b 25/50.
	if a, b := got[0].Containers[0].LawWeight, got[0].Containers[1].LawWeight; a != 150 || b != 50 {
		t.Errorf("weights %d and %d, want 150 and 50", a, b)
	}
	for _, asJSON := range []bool{false, true} {
		var out strings.Builder
		if err := WriteProposal(&out, got[0], asJSON); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), "\n") != map[bool]int{false: 2, true: 1}[asJSON] {
			t.Errorf("JSON %v: %q", asJSON, out.String())
		}
	}
	if _, err := NewWhatIf("murphy"); err == nil {
		t.Error("there is a law called murphy")
	}
}
