package systemd

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/systemdtest"
)

// One call waits for a systemd that hangs. The next ones do not reach it, until a pause is
// over, and none waits once it answers.
func TestASilentSystemdIsAskedSeldom(t *testing.T) {
	b := systemdtest.StartBus(t)
	m := &Manager{}
	ask := func() error {
		_, err := m.unit("a.service")
		return err
	}
	m.patience.until = time.Now().Add(100 * time.Millisecond) // and not callPatience
	if err := ask(); !errors.Is(err, ErrSilent) {
		t.Fatalf("without an answer: %v", err)
	}
	if m.patience.silent.IsZero() {
		t.Error("its silence is not remembered")
	}
	asked := b.Calls.Load()
	for range 100 {
		m.patience.silent = time.Now() // however slow this test is
		if err := ask(); !errors.Is(err, ErrSilent) {
			t.Fatalf("while it is silent: %v", err)
		}
	}
	if now := b.Calls.Load(); now != asked {
		t.Errorf("%d more calls reached it", now-asked)
	}
	b.Answers.Store(true)
	end := m.Await()
	if err := ask(); err != nil {
		t.Errorf("a call that waits, once it answers: %v", err)
	}
	end()
	if !m.patience.silent.IsZero() || !m.patience.until.IsZero() {
		t.Errorf("after an answer: %+v", m.patience)
	}
	if err := ask(); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}

// shortly bounds the next calls.
func (m *Manager) shortly() { m.patience = patience{until: time.Now().Add(100 * time.Millisecond)} }

// within calls f, which must end although the bus hangs.
func within(t *testing.T, f func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(awaittest.Patience):
		t.Fatal("a call to a bus that hangs has not ended")
		return nil
	}
}

// The first step of a connection is an answer of the bus.
func TestABusThatHangsBlocksNoCall(t *testing.T) {
	b := systemdtest.StartBus(t)
	b.Answers.Store(true)
	b.Mute.Store(true)
	m := &Manager{}
	ask := func() error {
		_, err := m.unit("a.service")
		return err
	}
	m.shortly()
	if err := within(t, ask); !errors.Is(err, ErrSilent) {
		t.Fatalf("the bus says nothing: %v", err)
	}
	m.patience.silent = time.Now() // however slow this test is
	if err := within(t, ask); !errors.Is(err, ErrSilent) || m.connection != nil {
		t.Errorf("the next call: %v, connection %v", err, m.connection)
	}
	b.Mute.Store(false)
	m.patience.silent = time.Now().Add(-askPause)
	m.patience.until = time.Now().Add(awaittest.Patience)
	if err := within(t, ask); err != nil {
		t.Errorf("once the bus answers: %v", err)
	}
}

// A message that is larger than what the socket holds stays until the bus reads it.
func TestABusThatReadsNothingBlocksNoCall(t *testing.T) {
	b := systemdtest.StartBus(t)
	b.Answers.Store(true)
	b.Deaf.Store(true)
	m := &Manager{}
	ask := func(unit string) func() error {
		return func() error {
			_, err := m.unit(unit)
			return err
		}
	}
	m.shortly()
	m.patience.until = time.Now().Add(time.Second) // for the connection
	if err := within(t, ask(strings.Repeat("a", 16<<20)+".service")); !errors.Is(err, ErrSilent) {
		t.Fatalf("the bus reads nothing: %v", err)
	}
	b.Deaf.Store(false)
	m.patience = patience{}
	if err := within(t, ask("a.service")); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

// A bus that refuses connections has answered, but not as systemd.
func TestALostBusIsNoSilenceOfSystemd(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "none"))
	m := &Manager{}
	for range 2 {
		if _, err := m.unit("a.service"); err == nil || errors.Is(err, ErrSilent) {
			t.Errorf("without a bus: %v", err)
		}
	}
	silent := time.Now().Add(-askPause)
	m.patience.silent = silent
	if _, err := m.unit("a.service"); err == nil || !m.patience.silent.Equal(silent) {
		t.Errorf("without a bus: %v, silent since %v, want %v", err, m.patience.silent, silent)
	}
}
