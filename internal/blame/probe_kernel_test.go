package blame

import (
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

func TestProgramsLoadIntoThisKernel(t *testing.T) {
	needs.Root(t)
	probe, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d programs; missing: %q", len(probe.links), probe.Missing())
	// Without ext4nvj its tracepoints are missing, but the programs load.
	if missing, err := probe.FollowNVJournal(true); err != nil || (!hasMemory() && !slices.Contains(missing, "jbd2nvj_request_commit")) {
		t.Errorf("%v; missing %q", err, missing)
	}
	if _, err := probe.FollowNVJournal(false); err != nil {
		t.Error(err)
	}
	if _, err := probe.Collect(); err != nil {
		t.Error(err)
	}
	if err := probe.Close(); err != nil {
		t.Error(err)
	}
}
