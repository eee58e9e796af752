package blockstream

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func randomStream(random *rand.Rand, operations int) Stream {
	var s Stream
	for range operations {
		o := Operation{Kind: Kind(random.IntN(int(kinds)))}
		for range random.IntN(4) {
			u := Update{Block: random.Uint64N(20), Mask: random.Uint64() & random.Uint64()}
			u.Lines = make([]byte, LineBytes*bits.OnesCount64(u.Mask))
			for n := range u.Lines {
				u.Lines[n] = byte(random.Uint32())
			}
			o.Updates = append(o.Updates, u)
		}
		s = append(s, o)
	}
	return s
}

func TestARecordingIsReadAsItWasWritten(t *testing.T) {
	want := randomStream(rand.New(rand.NewPCG(1, 1)), 50)
	for _, name := range []string{"plain", "packed.gz"} {
		path := filepath.Join(t.TempDir(), name)
		if err := want.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: another stream came back", name)
		}
	}
}

func TestADamagedRecordingIsRefused(t *testing.T) {
	var whole bytes.Buffer
	if err := randomStream(rand.New(rand.NewPCG(2, 2)), 20).Write(&whole); err != nil {
		t.Fatal(err)
	}
	for cut := range whole.Len() {
		if _, err := Parse(bytes.NewReader(whole.Bytes()[:cut])); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted as a recording", cut, whole.Len())
		}
	}
	if _, err := Parse(strings.NewReader(whole.String() + "x")); err == nil {
		t.Error("a recording with text after its end was accepted")
	}
	if _, err := Parse(strings.NewReader(string(magic[:]) + "\xff\xff\xff\xff\x00\x00\x00\x00")); err == nil {
		t.Error("four billion operations were accepted")
	}
}

func TestDifferencesAreTheLinesThatChanged(t *testing.T) {
	before := make([]byte, BlockBytes)
	now := bytes.Clone(before)
	now[0], now[LineBytes*63+5], now[LineBytes*7+63] = 1, 2, 3
	u := difference(9, before, now)
	if want := uint64(1 | 1<<7 | 1<<63); u.Mask != want {
		t.Errorf("mask %#x, want %#x", u.Mask, want)
	}
	image := Stream{{Updates: []Update{u}}}.Replay()[9]
	if !bytes.Equal(image, now) {
		t.Error("the lines do not make the block again")
	}
}
