package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
)

func TestTheAdviceNamesTheSettingThatIsWrong(t *testing.T) {
	for _, test := range []struct {
		tunables map[string]string
		want     string
	}{
		{map[string]string{"slice_idle": "0", "low_latency": "1"}, "echo 8 > /sys/block/loop0/queue/iosched/slice_idle"},
		{map[string]string{"slice_idle": "8", "low_latency": "1", "strict_guarantees": "0"}, "tunables: {low_latency: 0}"},
		{map[string]string{"slice_idle": "8", "low_latency": "1", "nr_requests": "64"}, "echo 256 > /sys/block/loop0/queue/nr_requests"},
		{map[string]string{"slice_idle": "8", "low_latency": "1", "nr_requests": "256"}, "tunables: {low_latency: 0}"},
		{map[string]string{"low_latency": "0", "strict_guarantees": "0"}, "tunables: {strict_guarantees: 1}"},
		{map[string]string{"low_latency": "0", "strict_guarantees": "1"}, "echo none > scheduler && echo bfq > scheduler"},
	} {
		f := newFakeHost("/ca")
		f.tunables = test.tunables
		c := &Controller{host: f.host(), disk: Disk{Device: "loop0"}}
		if got := c.advice(""); !strings.Contains(got, test.want) {
			t.Errorf("%v: %q; want %q", test.tunables, got, test.want)
		}
	}
}

// To choose BFQ again helps no container that waits for each of its requests.
func TestTheAdviceForAContainerOfFewRequestsIsNotToChooseBFQAgain(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "33"}
	always := func(int) [2]float64 { return [2]float64{1e6, 14e6} }
	options := fakeOptions(t, f, "actuator: weights\n"+twoEqual, slowSyncer(f, 60, always, always)...)
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "keeps few requests outstanding") || strings.Contains(log.String(), "echo bfq > scheduler") {
		t.Errorf("want a warning that /ca keeps few requests outstanding:\n%s", log.String())
	}
}

// Nor does it help if containers that wait for each request lack in turn what another has too much.
func TestTheAdviceNamesThoseWhoLackWhatAnotherHasTooMuch(t *testing.T) {
	for _, test := range []struct {
		requests     float64 // of each of /ca and /cb
		want, unsaid string
	}{
		{1, "those that lack it keep few requests outstanding", "echo bfq > scheduler"},
		{8, "choose it again", "few requests outstanding"},
	} {
		f := newFakeHost("/ca", "/cb", "/cc")
		f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "1", "timeout_sync": "40", "nr_requests": "256", "slice_idle": "33"}
		var log bytes.Buffer
		options := fakeOptions(t, f, threeEqual, repeat(12, func() account.Sample {
			ca, cb, cc := did("/ca", 30e6, 0), did("/cb", 30e6, 0), did("/cc", 40e6, 0)
			ca.BusySeconds, cb.BusySeconds, cc.BusySeconds = 5, 5, 5
			ca.RequestSeconds, cb.RequestSeconds, cc.RequestSeconds = 5*test.requests, 5*test.requests, 40
			return sampleOf(ca, cb, cc)
		})...)
		options.Log = slog.New(slog.NewTextHandler(&log, nil))
		if err := Run(context.Background(), options); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "/cc has had more than 5 %") || !strings.Contains(log.String(), test.want) || strings.Contains(log.String(), test.unsaid) {
			t.Errorf("%.0f requests: want %q, not %q:\n%s", test.requests, test.want, test.unsaid, log.String())
		}
	}
}

// What control found to cost too much is no advice.
func TestTheAdviceDoesNotNameWhatCostsTooMuch(t *testing.T) {
	f := newFakeHost("/ca")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0"}
	c := &Controller{host: f.host(), disk: Disk{Device: "loop0"}, tuning: tuning{refused: topLevel}}
	if got := c.advice(""); !strings.Contains(got, "cost too much throughput") || strings.Contains(got, "echo 1 >") {
		t.Errorf("%q; want that tunables cost too much", got)
	}
}

// Limits do not need the tunables that control set for weights, and restore them. The advice is
// about those that were in force while weights did not hold the shares.
func TestTheAdviceDoesNotNameWhatControlHadSet(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.tunables = map[string]string{"low_latency": "0", "strict_guarantees": "0", "timeout_sync": "124", "slice_idle": "8", "nr_requests": "256"}
	var log bytes.Buffer
	options := fakeOptions(t, f, twoEqual, deepReaders(f, 12, func(int) bool { return false })...)
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "weights have not held the shares") || !strings.Contains(log.String(), "tunable=strict_guarantees value=1") ||
		strings.Contains(log.String(), "strict_guarantees = 0") {
		t.Errorf("want a warning whose advice is not to set strict_guarantees, which control had set:\n%s", log.String())
	}
}

// A state directory that a shell would take for two words.
func TestAdvisedCommandsQuoteTheStateDirectory(t *testing.T) {
	f := newFakeHost("/ca", "/cb")
	f.before = func(what string) error {
		if strings.Contains(what, "restore") {
			return errors.New("no")
		}
		return nil
	}
	options := fakeOptions(t, f, twoEqual, journalling, journalling)
	options.Config.StateDir, options.RunDir = filepath.Join(t.TempDir(), "my state"), "/dev/null/run"
	var log bytes.Buffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	want := "--state-dir '" + options.Config.StateDir + "'"
	if err := Run(context.Background(), options); err == nil || !strings.HasSuffix(err.Error(), "daybook restore "+want) {
		t.Errorf("%v; want the end %s", err, want)
	}
	if said := log.String(); !strings.Contains(said, "daybook restore will want "+want) {
		t.Errorf("want %s in:\n%s", want, said)
	}
}
