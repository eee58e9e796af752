package blame

import (
	"slices"
	"testing"
)

func TestTracepointsThatTheKernelHasByAnotherNameAreNotMissing(t *testing.T) {
	for _, c := range []struct {
		kernel        string
		missing, want []string
	}{
		{"5.15", []string{"ext4_journal_start_inode", "ext4_journal_start_sb", "folio_wait_writeback"}, nil},
		{"6.1", []string{"ext4_journal_start_inode", "ext4_journal_start_sb", "wait_on_page_writeback"}, nil},
		{"6.12", []string{"ext4_journal_start", "wait_on_page_writeback"}, nil},
		{"without any of them", []string{"ext4_journal_start", "ext4_journal_start_inode", "ext4_journal_start_sb", "jbd2_checkpoint"},
			[]string{"ext4_journal_start", "ext4_journal_start_inode", "ext4_journal_start_sb", "jbd2_checkpoint"}},
	} {
		if got := lacking(c.missing); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q; want %q", c.kernel, got, c.want)
		}
	}
}
