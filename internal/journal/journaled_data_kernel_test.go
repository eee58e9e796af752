package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/ext4test"
)

// With data=journal, file data in a commit is the journal's, and its blocks are those of who
// wrote it. The reference is the counter of a journal's own device.
func TestDataThatPassesThroughTheJournalIsTheJournals(t *testing.T) {
	for name, load := range compilations {
		t.Run(name, func(t *testing.T) {
			ext4test.Compare(t, func(t *testing.T) (void bool) {
				fs := ext4test.New(t, ext4test.Options{ExternalJournal: true, Mount: "data=journal"})
				syncFS(t, fs.Dir)
				p, err := open(load)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				seen := ext4test.NewSeenWrites(t, fs.Journal)
				before := stat(t, fs.Journal)
				const blocks = 512
				f, err := os.Create(filepath.Join(fs.Dir, "file"))
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.Write(make([]byte, blocks<<12))
				if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
					t.Fatal(err)
				}
				after := stat(t, fs.Journal)
				var counted uint64
				var dirtied int64
				for _, c := range collect(t, p).Commits {
					if c.Dev == fs.Dev() {
						counted += c.JournalBytes
						for _, n := range c.Dirtied {
							dirtied += n
						}
					}
				}
				if seen.Missed(t) != 0 {
					return true
				}
				truth := after.WriteBytes - before.WriteBytes
				if counted != truth || truth < blocks<<12 {
					t.Errorf("%d bytes counted, the device wrote %d; want at least %d", counted, truth, blocks<<12)
				}
				if dirtied < blocks {
					t.Errorf("%d blocks were dirtied, want at least %d", dirtied, blocks)
				}
				return false
			})
		})
	}
}
