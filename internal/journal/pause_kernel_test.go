package journal

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4test"
)

func TestAPausedProbeSeesNothingUntilItResumes(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	p, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	commits := func(name string) (n int) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(fs.Dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		unix.Sync()
		for _, c := range collect(t, p).Commits {
			if c.Dev == fs.Dev() && !c.Partial {
				n++
			}
		}
		return n
	}
	attached := len(p.programs.links)
	if commits("a") == 0 {
		t.Error("no commit while the programs are attached")
	}
	resume, err := p.Pause()
	if err != nil {
		t.Fatal(err)
	}
	if n := commits("b"); n != 0 {
		t.Errorf("%d commits while they are detached", n)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	if len(p.programs.links) != attached {
		t.Errorf("%d of %d programs are attached again", len(p.programs.links), attached)
	}
	if commits("c") == 0 {
		t.Error("no commit after they are attached again")
	}
}
