package figure

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func page(t *testing.T, r Report) string {
	t.Helper()
	text, err := r.HTML()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheReportHoldsTheExactBytesOfEachContainer(t *testing.T) {
	r := reportRun()
	text := page(t, r)
	for _, p := range r.Shares.Phases {
		var b usage
		for _, s := range p.Samples {
			b.add(s.Devices[0].Containers[1])
		}
		for _, want := range []uint64{b.bytes(), b.charged, b.journal, b.metadata, b.uncharged} {
			if !strings.Contains(text, fmt.Sprintf(`title="%d bytes"`, want)) {
				t.Errorf("%s: %d bytes are not in the page", p.Name, want)
			}
		}
	}
}

func TestTheLinesOfATableAddUpToTheDisk(t *testing.T) {
	for _, d := range paperRun().reduce().phases {
		if got := int64(d.bytes()+d.others.bytes()) + d.unaccounted; got != int64(d.disk+d.elsewhere) {
			t.Errorf("%s: %d, the disk did %d", d.name, got, d.disk+d.elsewhere)
		}
	}
}

func TestTheReportListsHowToRepeatTheExperiment(t *testing.T) {
	text := page(t, reportRun())
	for _, want := range []string{"<dt>command</dt><dd>make bench-shares</dd>", "Linux 6.18", "bfq, low_latency=0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

func TestTheReportLoadsAndRunsNothing(t *testing.T) {
	text := page(t, reportRun())
	if !strings.Contains(text, `content="default-src 'none'; style-src 'unsafe-inline'"`) {
		t.Error("the page has no policy")
	}
	text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
	if found := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|\bsrc=|\bhref=|url\(|@import|//|\bon[a-z]+=`).FindString(text); found != "" {
		t.Errorf("the page holds %q", found)
	}
	if n := strings.Count(text, "<svg "); n != 2 {
		t.Errorf("%d pictures; want the shares and the accuracy", n)
	}
}

func TestHostileNamesStayTextInTheReport(t *testing.T) {
	evil := "<script>alert(1)</script>\x1b\u202e"
	r := Report{Title: evil, Lead: evil, Shares: hostile(), Figures: []Figure{{Title: evil, Text: evil}}, Made: []Fact{{evil, evil}}}
	text := page(t, r)
	for _, bad := range []string{"<script", "<svg onload", "\x1b", "\u202e", "\xff", "\x00"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q reached the page", bad)
		}
	}
}

func TestTheReportIsTheSameEachTime(t *testing.T) {
	a, b := page(t, reportRun()), page(t, reportRun())
	if !bytes.Equal([]byte(a), []byte(b)) {
		t.Error("two reports of the same run differ")
	}
}

func TestTheReportHasWeightsOnlyWhereSomeAreKnown(t *testing.T) {
	r := reportRun()
	if !strings.Contains(page(t, r), "Weight in force") {
		t.Error("the weights are missing")
	}
	r.Shares = pair(steady("run", 3, map[string]uint64{"/a": 1, "/b": 1}))
	if strings.Contains(page(t, r), "Weight in force") {
		t.Error("there is a panel of weights without any")
	}
}

func TestAReportOfNoSamplesSaysSo(t *testing.T) {
	text := page(t, Report{Shares: pair(Phase{Name: "nothing"})})
	for _, want := range []string{"0 intervals", "no samples", "–"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}
