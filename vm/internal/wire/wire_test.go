package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"
)

func TestFramesAreReadAsWritten(t *testing.T) {
	var b bytes.Buffer
	frames := []Frame{{Hello, 0, []byte{}}, {Stdout, 7, []byte("text\n")}, {Exit, 1<<32 - 1, bytes.Repeat([]byte{0xff}, MaxPayload)}}
	for _, f := range frames {
		if err := Write(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range frames {
		got, err := Read(&b)
		if err != nil || got.Kind != want.Kind || got.Process != want.Process || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := Read(&b); err != io.EOF {
		t.Errorf("after the last frame: %v", err)
	}
	if err := Write(&b, Frame{Stdout, 1, make([]byte, MaxPayload+1)}); err == nil || b.Len() > 0 {
		t.Errorf("a frame that is too long: %v", err)
	}
}

func TestARequestKeepsAllBytes(t *testing.T) {
	want := Request{Args: []string{"printf", "\xff\u00e9\ufffd\n", ""}, Env: []string{"A=\x80"}, Dir: "/\xfe", Archive: "/\xfd"}
	var b bytes.Buffer
	if err := WriteJSON(&b, Start, 1, want); err != nil {
		t.Fatal(err)
	}
	frame, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	var got Request
	if err := json.Unmarshal(frame.Payload, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{byte(Stdout), 1, 0, 0, 0, 2, 0, 0, 0, 'a', 'b'})
	f.Add([]byte{byte(Stdout), 1, 0, 0, 0, 9, 0, 0, 0, 'a'})
	f.Add([]byte{byte(lastKind) + 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{byte(Exit), 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.NewReader(b)
		frame, err := Read(in)
		if err != nil {
			if len(b) > 0 && errors.Is(err, io.EOF) && err != io.ErrUnexpectedEOF && len(b) >= headerBytes {
				t.Error("a truncated frame is read as the end")
			}
			return
		}
		var again bytes.Buffer
		if err := Write(&again, frame); err != nil || !bytes.HasPrefix(b, again.Bytes()) {
			t.Errorf("%v: another frame is read", err)
		}
	})
}
