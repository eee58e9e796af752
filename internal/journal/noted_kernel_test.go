package journal

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/ext4test"
)

// While a handle is noted, every other handle takes a longer way.
func TestAHandleThatFreesBlocksIsNotedUntilItEnds(t *testing.T) {
	counting, err := CountPrograms()
	if err != nil {
		t.Fatal(err)
	}
	defer counting.Close()
	fs := ext4test.New(t, ext4test.Options{})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	path := filepath.Join(fs.Dir, "file")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	syncFS(t, fs.Dir)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	programs, err := p.Statistics()
	if err != nil {
		t.Fatal(err)
	}
	var runs uint64
	for _, program := range programs {
		if program.Program == "note_remove_blocks" {
			runs = program.Runs
		}
	}
	if runs == 0 {
		t.Fatal("no handle was noted: the test shows nothing")
	}
	// Other file systems of the host can have one, too.
	awaittest.Until(t, time.Minute, "no handle is noted", func() bool {
		var noted uint32
		if err := p.objects.HandlesNoted.Get(&noted); err != nil {
			t.Fatal(err)
		}
		return noted == 0
	})
}
