package control

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAStateIsReadOnceUntilItChanges(t *testing.T) {
	dir, known := t.TempDir(), knownStates{}
	var last *State
	load := func(when string, wantSame bool) {
		t.Helper()
		state, err := known.load(dir, "loop0")
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if (state == last) != wantSame {
			t.Errorf("%s: the same as before: %v, want %v", when, state == last, wantSame)
		}
		last = state
	}
	save := func(weight uint64) {
		t.Helper()
		state := sampleState()
		state.Cgroups[0].Weight.Device = weight
		if err := state.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	save(300)
	load("first", false)
	load("second", true)
	save(400) // the file has the same size
	load("replaced", false)
	if got := last.Cgroups[0].Weight.Device; got != 400 {
		t.Errorf("the weight is %d, want 400", got)
	}
	load("after that", true)
	path := StatePath(dir, "loop0")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := known.load(dir, "loop0"); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("others may write it: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	load("trusted again", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := known.load(dir, "loop0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	save(300)
	load("made again", false)
}

// Two changes within a tick of the kernel's clock can look the same.
func TestAStateThatHasJustChangedIsReadAgain(t *testing.T) {
	dir, known := t.TempDir(), knownStates{rest: time.Hour}
	if err := sampleState().Save(dir); err != nil {
		t.Fatal(err)
	}
	first, err := known.load(dir, "loop0")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := known.load(dir, "loop0"); err != nil || second == first {
		t.Errorf("the same as before (%v), though it is younger than %v", err, known.rest)
	}
}

// Where inodes have 128 bytes, the time of a change is a whole second: a state that seems to be a
// second old can be replaced once more in that second, and look the same.
func TestAStateOfTheLastSecondIsReadAgain(t *testing.T) {
	dir, known := t.TempDir(), knownStates{rest: restingTime}
	if err := sampleState().Save(dir); err != nil {
		t.Fatal(err)
	}
	saved := time.Now()
	time.Sleep(1100 * time.Millisecond)
	first, err := known.load(dir, "loop0")
	if err != nil {
		t.Fatal(err)
	}
	second, err := known.load(dir, "loop0")
	if age := time.Since(saved); err != nil || second == first && age < 2*time.Second {
		t.Errorf("after %v: the same as before (%v)", age, err)
	}
}

func TestKnownStatesAreBounded(t *testing.T) {
	dir, known := t.TempDir(), knownStates{}
	for n := range maxKnownStates + 10 {
		state := sampleState()
		state.Device = "loop" + strings.Repeat("1", n%60) + string(rune('a'+n/60))
		if err := state.Save(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := known.load(dir, state.Device); err != nil {
			t.Fatal(err)
		}
		if len(known.states) > maxKnownStates {
			t.Fatalf("%d states are kept", len(known.states))
		}
	}
}
