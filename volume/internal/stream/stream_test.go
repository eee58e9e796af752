package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/records"
)

func testHeader() Header {
	return Header{
		Format: Format, Name: "db", ID: records.NewID(), Created: time.Unix(1, 0).UTC(), SizeBytes: 16 << 20, Provision: records.Thin, SectorBytes: 512,
		Weight: 700, Labels: map[string]string{"a": "b"}, MountOptions: "data=ordered", NoAtime: true,
		Snapshot: &Snapshot{Name: "s", ID: records.NewID(), Created: time.Unix(2, 0).UTC()},
		Base:     &Base{Name: "b", ID: records.NewID(), SizeBytes: 16 << 20},
	}
}

// testStream makes a stream with frames of each kind.
func testStream(t testing.TB, header Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, header)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		w.Data(0, bytes.Repeat([]byte{1}, 4096)), w.Zero(4096, 2<<20), w.Data(8<<20, bytes.Repeat([]byte{2}, chunk.Bytes)),
		w.Zero(16<<20-4096, 4096), w.End(chunk.Sum{1}, chunk.Sum{2}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readStream reads all of a stream, and fails the test if it gives anything
// that is not in order and within the image.
func readStream(t testing.TB, r io.Reader) (header Header, frames []Frame, err error) {
	t.Helper()
	s, err := NewReader(r)
	if err != nil {
		return header, nil, err
	}
	next := uint64(0)
	for {
		f, err := s.Frame()
		if err != nil {
			return s.Header, frames, err
		}
		if f.End {
			return s.Header, append(frames, f), nil
		}
		if f.Offset < next || f.Length == 0 || f.Offset+f.Length > s.Header.SizeBytes || (f.Offset|f.Length)%chunk.UnitBytes != 0 ||
			f.Data != nil && uint64(len(f.Data)) != f.Length || len(f.Data) > chunk.Bytes {
			t.Fatalf("a frame of %d bytes at %d, after %d, of %d", f.Length, f.Offset, next, s.Header.SizeBytes)
		}
		next = f.Offset + f.Length
		f.Data = slices.Clone(f.Data)
		frames = append(frames, f)
	}
}

func TestAStreamIsReadAsItWasWritten(t *testing.T) {
	header := testHeader()
	got, frames, err := readStream(t, bytes.NewReader(testStream(t, header)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "db" || got.ID != header.ID || got.SizeBytes != 16<<20 || got.Labels["a"] != "b" || *got.Base != *header.Base || got.Snapshot.ID != header.Snapshot.ID {
		t.Errorf("%+v", got)
	}
	if record := got.Record("other"); record.Origin != "db@s" || record.Name != "other" || record.Check() != nil {
		t.Errorf("%+v", record)
	}
	if len(frames) != 5 || frames[0].Data[4095] != 1 || frames[1].Data != nil || frames[1].Length != 2<<20 || frames[2].Length != chunk.Bytes ||
		frames[2].Data[chunk.Bytes-1] != 2 || !frames[4].End || frames[4].Base != (chunk.Sum{1}) || frames[4].Image != (chunk.Sum{2}) {
		t.Errorf("%d frames", len(frames))
	}
}

func TestAStreamThatIsCutOffOrDamagedIsRefused(t *testing.T) {
	whole := testStream(t, testHeader())
	random := []int{0, 1, 7, 8, 9, 12, 16, 19, 20, 21, 100, len(whole) - 1, len(whole) - 32, len(whole) - 97, len(whole) - 108, len(whole) - 109}
	for at := 0; at < len(whole); at += len(whole) / 97 {
		random = append(random, at)
	}
	for _, at := range random {
		if _, _, err := readStream(t, bytes.NewReader(whole[:at])); !errors.Is(err, cause.ErrCorrupt) || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("cut off at %d: %v", at, err)
		}
		damaged := slices.Clone(whole)
		damaged[at] ^= 0x10
		if _, _, err := readStream(t, bytes.NewReader(damaged)); !errors.Is(err, cause.ErrCorrupt) && !errors.Is(err, cause.ErrInvalid) {
			t.Errorf("damaged at %d: %v", at, err)
		}
	}
	// A frame less, with all others whole.
	first := len(magicText) + framePrefixBytes + int(binary.LittleEndian.Uint32(whole[len(magicText)+4:]))
	without := append(slices.Clone(whole[:first]), whole[first+framePrefixBytes+offsetBytes+4096:]...)
	if _, _, err := readStream(t, bytes.NewReader(without)); !errors.Is(err, cause.ErrCorrupt) || !strings.Contains(err.Error(), "sum") {
		t.Errorf("a frame is missing: %v", err)
	}
}

func TestWhatFollowsAStreamIsRefused(t *testing.T) {
	whole := testStream(t, testHeader())
	for what, more := range map[string][]byte{"a byte": {0}, "another stream": whole} {
		_, _, err := readStream(t, bytes.NewReader(append(slices.Clone(whole), more...)))
		if !errors.Is(err, cause.ErrInvalid) || !strings.Contains(err.Error(), "more follows") {
			t.Errorf("%s: %v", what, err)
		}
	}
	lost := errors.New("connection lost")
	if _, _, err := readStream(t, io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(lost))); !errors.Is(err, lost) {
		t.Errorf("an error at the end: %v", err)
	}
}

// rawFrame makes a frame with a checksum that is right.
func rawFrame(kind byte, payload []byte) []byte {
	b := []byte{kind, 0, 0, 0}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, payload))
	return append(b, payload...)
}

func at(numbers ...uint64) (b []byte) {
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func TestAHostileStreamIsRefused(t *testing.T) {
	block := make([]byte, 4096)
	for what, frames := range map[string][][]byte{
		"beyond the image":    {rawFrame(frameData, append(at(16<<20), block...))},
		"over the end":        {rawFrame(frameData, append(at(16<<20-4096), append(block, block...)...))},
		"offset overflows":    {rawFrame(frameZero, at(1<<64-4096, 8192))},
		"length overflows":    {rawFrame(frameZero, at(4096, 1<<64-4096))},
		"not whole blocks":    {rawFrame(frameData, append(at(4096), 1))},
		"between blocks":      {rawFrame(frameData, append(at(1), block...))},
		"backwards":           {rawFrame(frameData, append(at(8192), block...)), rawFrame(frameData, append(at(0), block...))},
		"twice":               {rawFrame(frameData, append(at(8192), block...)), rawFrame(frameData, append(at(8192), block...))},
		"empty":               {rawFrame(frameData, at(0))},
		"empty zero":          {rawFrame(frameZero, at(0, 0))},
		"short":               {rawFrame(frameZero, at(0))},
		"too long":            {rawFrame(frameData, make([]byte, offsetBytes+chunk.Bytes+4096))},
		"no such type":        {rawFrame(9, nil)},
		"a second header":     {rawFrame(frameHeader, []byte("{}"))},
		"an end without sums": {rawFrame(frameEnd, nil)},
		"an end of another":   {rawFrame(frameEnd, make([]byte, endBytes))},
	} {
		var out bytes.Buffer
		if _, err := NewWriter(&out, testHeader()); err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			out.Write(f)
		}
		if _, _, err := readStream(t, &out); !errors.Is(err, cause.ErrCorrupt) || strings.Contains(err.Error(), "cut off") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range map[string]func(h *Header){
		"format":        func(h *Header) { h.Format-- },
		"name":          func(h *Header) { h.Name = "../x" },
		"identity":      func(h *Header) { h.ID = strings.Repeat("x", 36) },
		"size":          func(h *Header) { h.SizeBytes = 1 << 62 },
		"no size":       func(h *Header) { h.SizeBytes = 0 },
		"provision":     func(h *Header) { h.Provision = "half" },
		"sectors":       func(h *Header) { h.SectorBytes = 3 },
		"weight":        func(h *Header) { h.Weight = 1001 },
		"labels":        func(h *Header) { h.Labels = map[string]string{"a": strings.Repeat("x", records.MaxLabelBytes)} },
		"journal":       func(h *Header) { h.MountOptions = "data=ordered,journal_path=/dev/sda" },
		"journal dev":   func(h *Header) { h.MountOptions = "journal_dev=0x800" },
		"long options":  func(h *Header) { h.MountOptions = strings.Repeat("x", 5000) },
		"NUL":           func(h *Header) { h.MountOptions = "a\x00b" },
		"snapshot name": func(h *Header) { h.Snapshot.Name = "a/b" },
		"base identity": func(h *Header) { h.Base.ID = "" },
		"base size":     func(h *Header) { h.Base.SizeBytes = 1 },
	} {
		header := testHeader()
		change(&header)
		if _, err := NewWriter(io.Discard, header); err == nil {
			t.Errorf("%s: it was written", what)
		}
		text := mustJSON(t, header)
		if _, err := NewReader(bytes.NewReader(append([]byte(magicText), rawFrame(frameHeader, text)...))); !errors.Is(err, cause.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, text := range []string{"", "{}", "null", "[]", `{"format":1}{}`, `{"more":1}`, strings.Repeat("[", 100000)} {
		if _, err := NewReader(bytes.NewReader(append([]byte(magicText), rawFrame(frameHeader, []byte(text))...))); !errors.Is(err, cause.ErrCorrupt) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

func mustJSON(t *testing.T, header Header) []byte {
	t.Helper()
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func FuzzStreamReader(f *testing.F) {
	whole := testStream(f, testHeader())
	f.Add(whole[:4096], uint8(0))
	f.Add(append([]byte(magicText), rawFrame(frameEnd, make([]byte, endBytes))...), uint8(1))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, uint8(2))
	f.Add([]byte{}, uint8(3))
	var begin bytes.Buffer
	if _, err := NewWriter(&begin, testHeader()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte, how uint8) {
		var in []byte
		switch how % 3 {
		case 0: // as it is
			in = text
		case 1: // frames after a header that is right
			in = append(slices.Clone(begin.Bytes()), text...)
		case 2: // the payload of frames with checksums that are right
			in = slices.Clone(begin.Bytes())
			for len(text) > 1 {
				n := min(len(text), 1+int(text[1]))
				in = append(in, rawFrame(text[0]%5, text[1:n])...)
				text = text[n:]
			}
		}
		if _, frames, err := readStream(t, bytes.NewReader(in)); err == nil && (len(frames) == 0 || !frames[len(frames)-1].End) {
			t.Fatal("a stream without an end was read")
		}
	})
}

func TestAStreamOfANewerDaybookIsReportedAsSuch(t *testing.T) {
	for _, header := range []string{`{"format":2,"parts":[]}`, strings.Replace(string(mustJSON(t, testHeader())), "{", `{"parts":[],`, 1)} {
		_, err := NewReader(bytes.NewReader(append([]byte(magicText), rawFrame(frameHeader, []byte(header))...)))
		if !errors.Is(err, cause.ErrUnsupported) || errors.Is(err, cause.ErrCorrupt) || !strings.Contains(err.Error(), "written by a newer Daybook: upgrade") {
			t.Errorf("%v", err)
		}
	}
}
