package volume

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
	"time"
)

func testHeader() streamHeader {
	return streamHeader{
		Format: streamFormat, Name: "db", ID: newID(), Created: time.Unix(1, 0).UTC(), SizeBytes: 16 << 20, Provision: Thin, SectorBytes: 512,
		Weight: 700, Labels: map[string]string{"a": "b"}, MountOptions: "data=ordered", NoAtime: true,
		Snapshot: &streamSnapshot{Name: "s", ID: newID(), Created: time.Unix(2, 0).UTC()},
		Base:     &streamBase{Name: "b", ID: newID(), SizeBytes: 16 << 20},
	}
}

// testStream makes a stream with frames of each kind.
func testStream(t testing.TB, header streamHeader) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := newStreamWriter(&out, header)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		w.data(0, bytes.Repeat([]byte{1}, 4096)), w.zero(4096, 2<<20), w.data(8<<20, bytes.Repeat([]byte{2}, chunkBytes)),
		w.zero(16<<20-4096, 4096), w.end(sum{1}, sum{2}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readStream reads all of a stream, and fails the test if it gives anything
// that is not in order and within the image.
func readStream(t testing.TB, r io.Reader) (header streamHeader, frames []frame, err error) {
	t.Helper()
	s, err := newStreamReader(r)
	if err != nil {
		return header, nil, err
	}
	next := uint64(0)
	for {
		f, err := s.frame()
		if err != nil {
			return s.header, frames, err
		}
		if f.end {
			return s.header, append(frames, f), nil
		}
		if f.offset < next || f.length == 0 || f.offset+f.length > s.header.SizeBytes || (f.offset|f.length)%sizeUnitBytes != 0 ||
			f.data != nil && uint64(len(f.data)) != f.length || len(f.data) > chunkBytes {
			t.Fatalf("a frame of %d bytes at %d, after %d, of %d", f.length, f.offset, next, s.header.SizeBytes)
		}
		next = f.offset + f.length
		f.data = slices.Clone(f.data)
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
	if record := got.record("other"); record.Origin != "db@s" || record.Name != "other" || record.check() != nil {
		t.Errorf("%+v", record)
	}
	if len(frames) != 5 || frames[0].data[4095] != 1 || frames[1].data != nil || frames[1].length != 2<<20 || frames[2].length != chunkBytes ||
		frames[2].data[chunkBytes-1] != 2 || !frames[4].end || frames[4].base != (sum{1}) || frames[4].image != (sum{2}) {
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
		if _, _, err := readStream(t, bytes.NewReader(whole[:at])); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("cut off at %d: %v", at, err)
		}
		damaged := slices.Clone(whole)
		damaged[at] ^= 0x10
		if _, _, err := readStream(t, bytes.NewReader(damaged)); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrInvalid) {
			t.Errorf("damaged at %d: %v", at, err)
		}
	}
	// A frame less, with all others whole.
	first := len(streamMagic) + framePrefixBytes + int(binary.LittleEndian.Uint32(whole[len(streamMagic)+4:]))
	without := append(slices.Clone(whole[:first]), whole[first+framePrefixBytes+offsetBytes+4096:]...)
	if _, _, err := readStream(t, bytes.NewReader(without)); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "sum") {
		t.Errorf("a frame is missing: %v", err)
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
		"too long":            {rawFrame(frameData, make([]byte, offsetBytes+chunkBytes+4096))},
		"no such type":        {rawFrame(9, nil)},
		"a second header":     {rawFrame(frameHeader, []byte("{}"))},
		"an end without sums": {rawFrame(frameEnd, nil)},
		"an end of another":   {rawFrame(frameEnd, make([]byte, endBytes))},
	} {
		var out bytes.Buffer
		if _, err := newStreamWriter(&out, testHeader()); err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			out.Write(f)
		}
		if _, _, err := readStream(t, &out); !errors.Is(err, ErrCorrupt) || strings.Contains(err.Error(), "cut off") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range map[string]func(h *streamHeader){
		"format":        func(h *streamHeader) { h.Format-- },
		"name":          func(h *streamHeader) { h.Name = "../x" },
		"identity":      func(h *streamHeader) { h.ID = strings.Repeat("x", 36) },
		"size":          func(h *streamHeader) { h.SizeBytes = 1 << 62 },
		"no size":       func(h *streamHeader) { h.SizeBytes = 0 },
		"provision":     func(h *streamHeader) { h.Provision = "half" },
		"sectors":       func(h *streamHeader) { h.SectorBytes = 3 },
		"weight":        func(h *streamHeader) { h.Weight = 1001 },
		"labels":        func(h *streamHeader) { h.Labels = map[string]string{"a": strings.Repeat("x", maxLabelBytes)} },
		"journal":       func(h *streamHeader) { h.MountOptions = "data=ordered,journal_path=/dev/sda" },
		"journal dev":   func(h *streamHeader) { h.MountOptions = "journal_dev=0x800" },
		"long options":  func(h *streamHeader) { h.MountOptions = strings.Repeat("x", 5000) },
		"NUL":           func(h *streamHeader) { h.MountOptions = "a\x00b" },
		"snapshot name": func(h *streamHeader) { h.Snapshot.Name = "a/b" },
		"base identity": func(h *streamHeader) { h.Base.ID = "" },
		"base size":     func(h *streamHeader) { h.Base.SizeBytes = 1 },
	} {
		header := testHeader()
		change(&header)
		if _, err := newStreamWriter(io.Discard, header); err == nil {
			t.Errorf("%s: it was written", what)
		}
		text := mustJSON(t, header)
		if _, err := newStreamReader(bytes.NewReader(append([]byte(streamMagic), rawFrame(frameHeader, text)...))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, text := range []string{"", "{}", "null", "[]", `{"format":1}{}`, `{"more":1}`, strings.Repeat("[", 100000)} {
		if _, err := newStreamReader(bytes.NewReader(append([]byte(streamMagic), rawFrame(frameHeader, []byte(text))...))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

func mustJSON(t *testing.T, header streamHeader) []byte {
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
	f.Add(append([]byte(streamMagic), rawFrame(frameEnd, make([]byte, endBytes))...), uint8(1))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, uint8(2))
	f.Add([]byte{}, uint8(3))
	var begin bytes.Buffer
	if _, err := newStreamWriter(&begin, testHeader()); err != nil {
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
		if _, frames, err := readStream(t, bytes.NewReader(in)); err == nil && (len(frames) == 0 || !frames[len(frames)-1].end) {
			t.Fatal("a stream without an end was read")
		}
	})
}
