package posix

import (
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

func TestTheTableIsOne(t *testing.T) {
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, c := range cases {
		steps += len(c.Steps)
	}
	if len(cases) < 10 || steps < 300 {
		t.Errorf("%d cases with %d steps", len(cases), steps)
	}
}

func TestWhatIsNoStepIsRefused(t *testing.T) {
	for _, text := range []string{"mkdir d 0755 = ok", "== c\nmkdir d", "== c\nmkdir d = ok", "== c\nfly d = ok", "== c\nuser = ok"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// The steps are right on a real file system in a guest; here, that other answers
// are told.
func TestOtherAnswersAreReported(t *testing.T) {
	needs.Root(t)
	cases, err := parse("== c\nmkdir d 0755 = ok\nmkdir d 0755 = ok\nstat d = dir 0700 2\nuser mkdir d/e 0700 = EACCES\n")
	if err != nil {
		t.Fatal(err)
	}
	_, wrong, err := cases[0].run(t.TempDir() + "/case")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(wrong, "\n")
	if len(wrong) < 2 || !strings.Contains(got, "line 3: mkdir d 0755: EEXIST, not ok") || !strings.Contains(got, "line 4: stat d: dir 0755 2, not dir 0700 2") {
		t.Errorf("%s", got)
	}
}
