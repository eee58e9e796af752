package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/daybook-project/daybook/internal/ext4test"
)

// A bio of a journal on a mapped device is noted, and its note stays when it has ended,
// because its clones are recognised by it. Then a journal on a disk without layers gets
// the memory for its own bio.
func TestAJournalWriteInTheMemoryOfAnotherJournalsIsItsOwn(t *testing.T) {
	for name, load := range compilations {
		for what, bio := range map[string]uint64{"bio": 0, "only the vector of pages": 4711} {
			t.Run(name+"/"+what, func(t *testing.T) {
				ext4test.Compare(t, func(t *testing.T) bool { return keepsItsBytes(t, load, bio) })
			})
		}
	}
}

// keepsItsBytes leaves notes of another journal on a mapped device: of the same bios, or of this one.
func keepsItsBytes(t *testing.T, load func() (*ebpf.CollectionSpec, error), bio uint64) (void bool) {
	t.Helper()
	fs := ext4test.New(t, ext4test.Options{ExternalJournal: true})
	syncFS(t, fs.Dir)
	p, err := open(load)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.mu.Lock()
	err = p.attachSubmissions()
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	leaveNotes(t, p, fs.Dir, func(note *attributionNoted) {
		const another = 4711
		note.Class, note.Layered = uint64(KindJournal)<<56|another, 1
		if bio != 0 {
			note.Bio = bio
		}
	})
	collect(t, p)
	seen := ext4test.NewSeenWrites(t, fs.Journal)
	before := stat(t, fs.Journal)
	commitSome(t, fs.Dir)
	after := stat(t, fs.Journal)
	var counted uint64
	for _, c := range collect(t, p).Commits {
		if c.Dev == fs.Dev() {
			counted += c.JournalBytes
		}
	}
	if seen.Missed(t) != 0 {
		return true
	}
	if truth := after.WriteBytes - before.WriteBytes; counted != truth {
		t.Errorf("%d bytes counted, the device wrote %d", counted, truth)
	}
	return false
}

// The modules with a journal in memory note a bio before they submit it. Where submitted bios are
// observed, that is not taken for one whose memory is used again.
func TestABioThatIsNotedBeforeItIsSubmittedStaysNoted(t *testing.T) {
	for name, load := range compilations {
		t.Run(name, func(t *testing.T) {
			fs := ext4test.New(t, ext4test.Options{})
			syncFS(t, fs.Dir)
			p, err := open(load)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			findLogs(p, false)
			p.mu.Lock()
			err = p.attachSubmissions()
			p.mu.Unlock()
			if err := errors.Join(err, p.Observe([]uint32{fs.Dev()})); err != nil {
				t.Fatal(err)
			}
			const another = 4711
			leaveNotes(t, p, fs.Dir, func(note *attributionNoted) {
				note.Class, note.Early = uint64(KindMetadata)<<56|another, 1
			})
			collect(t, p)
			commitSome(t, fs.Dir)
			var noted uint64
			for _, w := range collect(t, p).Writes {
				if w.Kind == KindMetadata && w.Of == another {
					noted += w.Bytes
				}
			}
			if noted == 0 {
				t.Error("nothing was written as it was noted")
			}
		})
	}
}

// leaveNotes makes commits whose bios are noted, and changes the notes.
func leaveNotes(t *testing.T, p *Probe, dir string, change func(note *attributionNoted)) {
	t.Helper()
	o := &p.objects
	var ends uint64
	if err := errors.Join(o.CommitEnds.Get(&ends), o.CommitEnds.Set(uint64(0))); err != nil {
		t.Fatal(err)
	}
	commitSome(t, dir)
	var vectors uint64
	var note attributionNoted
	notes := make(map[uint64]attributionNoted)
	all := o.NotedBios.Iterate()
	for all.Next(&vectors, &note) {
		notes[vectors] = note
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	for vectors, note := range notes {
		change(&note)
		if err := o.NotedBios.Put(vectors, note); err != nil {
			t.Fatal(err)
		}
	}
	if len(notes) == 0 {
		t.Fatal("no bio of a journal was noted")
	}
	if err := errors.Join(o.Layers.Set(uint32(1)), o.Notes.Set(uint32(1)), o.CommitEnds.Set(ends)); err != nil {
		t.Fatal(err)
	}
}

func commitSome(t *testing.T, dir string) {
	t.Helper()
	for range 30 {
		one := filepath.Join(dir, "one")
		if err := os.Mkdir(one, 0o755); err != nil {
			t.Fatal(err)
		}
		syncFS(t, dir)
		if err := os.Remove(one); err != nil {
			t.Fatal(err)
		}
		syncFS(t, dir)
	}
}
