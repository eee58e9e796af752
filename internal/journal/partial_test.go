package journal

import "testing"

// The record of a commit can be lost. Its bytes are then in the record of the next one, and so
// are those that were returned while it ran.
func TestBytesOfACommitWhoseRecordIsLostAreReturnedOnce(t *testing.T) {
	const last = 1<<32 - 1 // transaction numbers wrap around
	this, other := Filesystem{Dev: 7}, Filesystem{Dev: 8}
	p := &Probe{partial: map[transaction]uint64{{this, last}: 100, {this, 0}: 20, {this, 1}: 3, {other, 0}: 5}}
	if got := p.returned(this, 0); got != 120 {
		t.Errorf("%d bytes were returned of the commits up to one, want 120", got)
	}
	commit := Commit{Dev: 7, Tid: 0, JournalBytes: 1000}
	p.deductPartial(&commit)
	if commit.JournalBytes != 880 {
		t.Errorf("%d bytes are left, want 880", commit.JournalBytes)
	}
	if len(p.partial) != 2 || p.partial[transaction{this, 1}] != 3 || p.partial[transaction{other, 0}] != 5 {
		t.Errorf("kept: %v", p.partial)
	}
}
