// Package wire is the protocol of host and guest over one virtio-serial port:
// frames, each of a kind and of one process that the host started.
//
//	host                                   guest
//	  │ ◀───────── Hello {release, error} ───── │   once, after setting up
//	  │ ── Start 1 {args, env, dir} ──────────▶ │
//	  │ ◀── Stdout 1 … Stderr 1 … ───────────── │
//	  │ ── Signal 1 {9} ──────────────────────▶ │
//	  │ ◀── Exit 1 {code | signal | error} ──── │   the last of process 1
//	  │ ── Mark {text} ───────────────────────▶ │   into the kernel's log
//	  │ ── Shutdown ──────────────────────────▶ │   power off
//
// A frame is
//
//	byte 0     kind
//	byte 1-4   process, little-endian; 0 if there is none
//	byte 5-8   length of the payload in bytes, little-endian, to MaxPayload
//	byte 9-    payload
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// MaxPayload is the maximum payload of a frame, in bytes. Arguments and
// environment of a process must fit in one, as base64; output is split into frames.
const MaxPayload = 2 << 20

// OutputPayload is the maximum output in one frame, in bytes.
const OutputPayload = 32 << 10

const headerBytes = 9

// Kind is the kind of a frame.
type Kind uint8

// The kinds. Their numbers may change between versions: both ends are one program.
const (
	Hello Kind = iota + 1
	Start
	Stdout
	Stderr
	Exit
	Signal
	Mark
	Shutdown
	lastKind = Shutdown
)

// Frame is one message.
type Frame struct {
	Kind    Kind
	Process uint32
	Payload []byte
}

// Greeting is the payload of Hello.
type Greeting struct {
	Release string `json:"release"` // uname -r
	Error   string `json:"error"`   // why the guest could not be set up; "" if it could
}

// Request is the payload of Start. Either Args or Archive is set.
type Request struct {
	Args []string
	Env  []string // NAME=VALUE, which override the guest's own
	Dir  string
	// Archive asks for a file or directory, as a tar on Stdout.
	Archive string
}

// requestJSON is a [Request] in JSON. Its strings have any bytes but zero, and those of JSON are
// UTF-8, so it has them as bytes.
type requestJSON struct {
	Args    [][]byte `json:"args"`
	Env     [][]byte `json:"env"`
	Dir     []byte   `json:"dir"`
	Archive []byte   `json:"archive"`
}

// MarshalJSON implements [json.Marshaler].
func (r Request) MarshalJSON() ([]byte, error) {
	return json.Marshal(requestJSON{convertEach[[]byte](r.Args), convertEach[[]byte](r.Env), []byte(r.Dir), []byte(r.Archive)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Request) UnmarshalJSON(text []byte) error {
	var raw requestJSON
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*r = Request{convertEach[string](raw.Args), convertEach[string](raw.Env), string(raw.Dir), string(raw.Archive)}
	return nil
}

func convertEach[To, From string | []byte](from []From) (to []To) {
	for _, one := range from {
		to = append(to, To(one))
	}
	return to
}

// Result is the payload of Exit. At most one of Signal and Error is set.
type Result struct {
	Code   int    `json:"code"`
	Signal int    `json:"signal"`
	Error  string `json:"error"`
}

// Write sends one frame with one write.
func Write(w io.Writer, f Frame) error {
	if len(f.Payload) > MaxPayload {
		return fmt.Errorf("a message of %d bytes is longer than %d", len(f.Payload), MaxPayload)
	}
	b := make([]byte, headerBytes, headerBytes+len(f.Payload))
	b[0] = byte(f.Kind)
	binary.LittleEndian.PutUint32(b[1:], f.Process)
	binary.LittleEndian.PutUint32(b[5:], uint32(len(f.Payload)))
	_, err := w.Write(append(b, f.Payload...))
	return err
}

// WriteJSON sends one frame whose payload is a value.
func WriteJSON(w io.Writer, kind Kind, process uint32, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return Write(w, Frame{kind, process, payload})
}

// Read receives one frame. io.EOF means that the other end closed between two.
func Read(r io.Reader) (Frame, error) {
	var b [headerBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(b[0]), Process: binary.LittleEndian.Uint32(b[1:])}
	length := binary.LittleEndian.Uint32(b[5:])
	if f.Kind == 0 || f.Kind > lastKind || length > MaxPayload {
		return Frame{}, fmt.Errorf("not a message: kind %d, %d bytes", f.Kind, length)
	}
	f.Payload = make([]byte, length)
	if _, err := io.ReadFull(r, f.Payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}
