package blame

import (
	"slices"
	"testing"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/needs"
)

func TestProgramsLoadIntoThisKernel(t *testing.T) {
	needs.Root(t)
	probe, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("missing: %q", probe.Missing())
	// Without a module its tracepoints are missing, but the programs load.
	for module, tracepoint := range map[journal.NVModule]string{journal.Ext4NVJ: "jbd2nvj_request_commit", journal.JFSNVJ: "jfsnvj_page_waited"} {
		if missing, err := probe.FollowNVJournal(module, true); err != nil || (!journal.HasNVJournal() && !slices.Contains(missing, tracepoint)) {
			t.Errorf("%s: %v; missing %q", module, err, missing)
		}
		if _, err := probe.FollowNVJournal(module, false); err != nil {
			t.Error(err)
		}
	}
	if _, err := probe.Collect(); err != nil {
		t.Error(err)
	}
	if err := probe.Close(); err != nil {
		t.Error(err)
	}
}
