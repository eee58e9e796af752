package systemdtest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/godbus/dbus/v5"
)

// Bus is a system bus with a systemd that answers each call with an object, or none.
type Bus struct {
	Answers atomic.Bool
	// Calls is the number of calls to systemd.
	Calls atomic.Int64
	// Mute makes the bus say nothing to new connections. Deaf makes it read nothing from
	// those that it has said hello to.
	Mute, Deaf atomic.Bool
	done       <-chan struct{}
}

// StartBus makes it the system bus of this process. Its systemd does not answer.
func StartBus(t *testing.T) *Bus {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "bus")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+socket)
	b := &Bus{done: t.Context().Done()}
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

func (b *Bus) serve(connection net.Conn) {
	defer connection.Close()
	in := bufio.NewReader(connection)
	if _, err := in.ReadByte(); err != nil { // it is zero
		return
	}
	if b.Mute.Load() {
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
func (b *Bus) answer(in *bufio.Reader, connection net.Conn) {
	for {
		message, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		var body any = ":1.1"
		if message.Headers[dbus.FieldMember].Value() != "Hello" {
			b.Calls.Add(1)
			if !b.Answers.Load() {
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
		if b.Deaf.Load() {
			<-b.done
			return
		}
	}
}
