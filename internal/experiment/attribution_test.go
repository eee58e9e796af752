package experiment

import (
	"encoding/json"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
)

// testLab tells what it does in the test's log.
func testLab(t *testing.T) Lab {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	tree, err := cgroup.Find()
	needs.That(t, err == nil, "a cgroup hierarchy with block I/O")
	return Lab{Tree: tree, Progress: func(_, what string, _ *account.Sample) { t.Log(what) }}
}

func TestAttributionIsWithinItsBounds(t *testing.T) {
	lab := testLab(t)
	needs.Tool(t, "tar")
	a, err := lab.RunAttribution(t.Context(), QuickAttribution)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.MarshalIndent(a, "", " ")
	t.Logf("%s", text)
	if err := a.Check(); err != nil {
		t.Error(err)
	}
}
