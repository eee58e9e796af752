package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/agent"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/serve"
)

// As on a host whose root is XFS, until something mounts an ext4.
func TestADaemonWaitsForTheFirstMountOfAnExt4(t *testing.T) {
	var log bytes.Buffer
	looks, tries := 0, 0
	watch := moduleWatch{pause: time.Millisecond, loaded: func() []string {
		if looks++; looks < 10 {
			return nil
		}
		return []string{"ext4", "jbd2"}
	}}
	try := func(end error) func() error {
		return func() error {
			if tries++; looks < 10 {
				return unsupportedError{fmt.Errorf("%w: no tracepoint", journal.ErrNotLoaded)}
			}
			return end
		}
	}
	if err := watch.whenLoaded(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), try(nil)); err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
	if strings.Count(log.String(), "waiting for the first mount") != 1 {
		t.Errorf("logged: %s", log.String())
	}
	// What does not come with a module is not awaited.
	if err := watch.whenLoaded(t.Context(), slog.New(slog.DiscardHandler), try(journal.ErrUnsupported)); !errors.Is(err, journal.ErrUnsupported) {
		t.Error(err)
	}
	looks = 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watch.whenLoaded(ctx, slog.New(slog.DiscardHandler), try(nil)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAPauseEndsTheWaitForAModule(t *testing.T) {
	watch := moduleWatch{pause: time.Hour, loaded: func() []string { return nil }}
	if err := watch.await(t.Context(), nil, time.After(time.Millisecond)); err != nil {
		t.Error(err)
	}
}

// A mistyped disk is corrected by a reload, and a late one comes.
func TestControlWaitsForTheDisksOfItsConfiguration(t *testing.T) {
	loop, late := attachedDisk(t), filepath.Join(t.TempDir(), "late")
	config := control.DefaultConfig()
	config.Devices = []string{loop.Name, "daybook-none"}
	reloads := make(chan os.Signal, 2)
	reloads <- unix.SIGHUP
	reloads <- unix.SIGHUP
	loads := 0
	load := func() (control.Config, error) {
		next := config
		if loads++; loads == 1 {
			return next, errors.New("line 1 is wrong")
		}
		next.Devices = []string{loop.Name, late}
		return next, nil
	}
	var log bytes.Buffer
	ended := make(chan control.Config, 1)
	go func() {
		got, err := awaitDisks(t.Context(), config, reloads, load, 20*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Error(err)
		}
		ended <- got
	}()
	select {
	case got := <-ended:
		t.Fatalf("it waits for no disk: %q", got.Devices)
	case <-time.After(500 * time.Millisecond):
	}
	if err := os.Symlink(loop.Node(), late); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-ended:
		if len(got.Devices) != 2 || got.Devices[1] != late {
			t.Errorf("%q", got.Devices)
		}
	case <-time.After(awaittest.Patience):
		t.Fatal("the late disk is not noticed")
	}
	if text := log.String(); strings.Count(text, "waiting for disks") != 2 || strings.Count(text, "keeping the old") != 1 {
		t.Errorf("logged: %s", text)
	}
}

// systemd starts a unit that ends again only some times. A name on the command line is refused.
func TestControlStartsWithADiskThatComesLate(t *testing.T) {
	r := newCgroups(t)
	r.makeDisk(t, 0, blockdev.BFQ)
	late, config, address := filepath.Join(r.dir, "late"), filepath.Join(r.dir, "control.yaml"), "127.0.0.1:"+freePort(t)
	if err := os.WriteFile(config, fmt.Appendf(nil, "devices: [%s]\nstate_dir: %s\ntunables: none\n", late, filepath.Join(r.dir, "state")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, code, err := runControl("control", "--config", config, "--device", late); code != exitUsage {
		t.Errorf("%d, %v", code, err)
	}
	daemon := startDaybook(t, "control", "--config", config, "--metrics", address)
	await(t, daemon, "it waits for the disk", func() bool { return strings.Contains(daemon.said(t), "waiting for disks to control") })
	answer, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("while it waits: %s", answer.Status)
	}
	if err := os.Symlink(r.disks[0].Device.Node(), late); err != nil {
		t.Fatal(err)
	}
	await(t, daemon, "it controls the disk", func() bool {
		states, err := filepath.Glob(filepath.Join(r.dir, "state", "*"))
		return err == nil && len(states) > 0
	})
	if err := daemon.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, daemon.said(t))
	}
}

// endedSource is a source whose samples have ended.
type endedSource struct{}

func (endedSource) Next(context.Context) (account.Sample, error) { return account.Sample{}, io.EOF }
func (endedSource) Close() error                                 { return nil }

// Programs that cannot be loaded, as without memory or before an ext4 is mounted, can be later.
func TestAgentTriesAgainToLoadItsPrograms(t *testing.T) {
	var log bytes.Buffer
	answers := []error{
		unsupportedError{errors.New("no jbd2")}, unsupportedError{errors.New("no jbd2")}, errors.New("no memory"), errors.New("no memory"), nil,
	}
	metrics, opened := serve.NewMetrics(1), 0
	n := &nodeObserver{
		agent: &agent.Agent{}, observers: &observers{metrics: metrics}, log: slog.New(slog.NewTextHandler(&log, nil)), firstPause: time.Millisecond,
		openSource: func(context.Context, sourceOptions) (account.Source, error) {
			opened++
			return endedSource{}, answers[min(opened, len(answers))-1]
		},
	}
	if err := n.run(t.Context()); err != nil {
		t.Error(err)
	}
	// Once more, because a disk is changed only after the programs were loaded.
	if opened != len(answers)+1 {
		t.Errorf("opened %d times", opened)
	}
	for text, want := range map[string]int{"no jbd2": 1, "no memory": 1, "attributes I/O to containers now": 1} {
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("%q is in the log %d times:\n%s", text, got, log.String())
		}
	}
	// With nothing to load, it waits until it is to end.
	ctx, cancel := context.WithCancel(t.Context())
	answers = answers[:1]
	n.firstPause = time.Hour
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := n.run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
