package control

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

func TestReloadTakesAGoodConfigurationAndKeepsTheOldOverABadOne(t *testing.T) {
	f := newFakeHost("/ca", "/cb", "/cc")
	reload := make(chan os.Signal)
	options := fakeOptions(t, f, twoEqual)
	next := make(chan string, 1)
	options.Reload = reload
	options.Load = func() (Config, error) {
		config, err := ReadConfig(strings.NewReader(<-next), "test")
		config.StateDir = options.Config.StateDir
		return config, err
	}
	opened := make(chan time.Duration, 9)
	source := &groupingSource{scriptedSource: scriptedSource{wait: true}}
	options.OpenSource = func(_ []string, interval time.Duration) (account.Source, error) {
		opened <- interval
		return source, nil
	}
	var accepted []Config
	options.Accept = func(c Config) { accepted = append(accepted, c) }
	var log syncBuffer
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Run(ctx, options) }()
	<-opened
	try := func(config string) {
		next <- config
		reload <- syscall.SIGHUP
		// The unbuffered channel takes a further signal only when the first
		// is answered; its configuration is the same.
		next <- config
		reload <- syscall.SIGHUP
	}
	try("containers: [{match: /ca, weight: 5000}]")
	try("law: nonsense")
	try("device: sdz")
	if len(accepted) != 0 || source.regrouped.Load() != 0 {
		t.Errorf("bad configurations had an effect: accepted %v, regrouped %d times", accepted, source.regrouped.Load())
	}
	if got := f.weight("/ca").Effective(); got != 500 {
		t.Errorf("after bad configurations /ca has %d", got)
	}
	if n := strings.Count(log.String(), "keeping the old configuration"); n < 3 {
		t.Errorf("log:\n%s", log.String())
	}
	try("interval: 10s\ncontainers: [{match: /ca, weight: 300}, {match: /cc, weight: 200}]")
	if got := <-opened; got != time.Second {
		t.Errorf("measuring every %v", got)
	}
	if a, b, c := f.weight("/ca").Effective(), f.weight("/cb"), f.weight("/cc").Effective(); a != 300 || b != (Setting{Default: 100}) || c != 200 {
		t.Errorf("weights %d %+v %d, want 300, restored, 200", a, b, c)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(accepted) < 1 || len(accepted[0].Containers) != 2 || int(source.regrouped.Load()) != len(accepted) {
		t.Errorf("accepted %v, regrouped %d times", accepted, source.regrouped.Load())
	}
	for _, cgroup := range []string{"/ca", "/cb", "/cc"} {
		if got := f.weight(cgroup); got != (Setting{Default: 100}) {
			t.Errorf("in the end %s has %+v", cgroup, got)
		}
	}
}

// groupingSource counts how often it is asked to regroup.
type groupingSource struct {
	scriptedSource
	regrouped atomic.Int32
}

func (s *groupingSource) Regroup() { s.regrouped.Add(1) }

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
