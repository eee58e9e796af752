package systemd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/daybook-project/daybook/internal/awaittest"
)

// bus is a system bus with a systemd that answers each call with an object, or none.
type bus struct {
	answers atomic.Bool
	calls   atomic.Int64
	// mute makes the bus say nothing to new connections. deaf makes it read nothing from
	// those that it has said hello to.
	mute, deaf atomic.Bool
	done       <-chan struct{}
}

// startBus makes it the system bus of this process.
func startBus(t *testing.T) *bus {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bus")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+socket)
	b := &bus{done: t.Context().Done()}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(connection)
		}
	}()
	return b
}

func (b *bus) serve(connection net.Conn) {
	defer connection.Close()
	in := bufio.NewReader(connection)
	if _, err := in.ReadByte(); err != nil { // it is zero
		return
	}
	if b.mute.Load() {
		_, _ = io.Copy(io.Discard, in) // until the other end closes it
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		answer := "ERROR\r\n"
		switch words := strings.Fields(line); {
		case words[0] == "BEGIN":
			b.answer(in, connection)
			return
		case words[0] == "AUTH" && len(words) == 1:
			answer = "REJECTED EXTERNAL\r\n"
		case words[0] == "AUTH":
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		case words[0] == "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD\r\n"
		}
		if _, err := connection.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// answer answers the calls of a connection.
func (b *bus) answer(in *bufio.Reader, connection net.Conn) {
	for {
		message, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		var body any = ":1.1"
		if message.Headers[dbus.FieldMember].Value() != "Hello" {
			b.calls.Add(1)
			if !b.answers.Load() {
				continue
			}
			body = dbus.ObjectPath("/unit")
		}
		reply := dbus.Message{Type: dbus.TypeMethodReply, Body: []any{body}, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(message.Serial()), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body)),
		}}
		if err := reply.EncodeTo(connection, binary.LittleEndian); err != nil {
			return
		}
		if b.deaf.Load() {
			<-b.done
			return
		}
	}
}

// One call waits for a systemd that hangs. The next ones do not reach it, until a pause is
// over, and none waits once it answers.
func TestASilentSystemdIsAskedSeldom(t *testing.T) {
	b := startBus(t)
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
	asked := b.calls.Load()
	for range 100 {
		m.patience.silent = time.Now() // however slow this test is
		if err := ask(); !errors.Is(err, ErrSilent) {
			t.Fatalf("while it is silent: %v", err)
		}
	}
	if now := b.calls.Load(); now != asked {
		t.Errorf("%d more calls reached it", now-asked)
	}
	b.answers.Store(true)
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
	b := startBus(t)
	b.answers.Store(true)
	b.mute.Store(true)
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
	b.mute.Store(false)
	m.patience.silent = time.Now().Add(-askPause)
	m.patience.until = time.Now().Add(awaittest.Patience)
	if err := within(t, ask); err != nil {
		t.Errorf("once the bus answers: %v", err)
	}
}

// A message that is larger than what the socket holds stays until the bus reads it.
func TestABusThatReadsNothingBlocksNoCall(t *testing.T) {
	b := startBus(t)
	b.answers.Store(true)
	b.deaf.Store(true)
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
	b.deaf.Store(false)
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
