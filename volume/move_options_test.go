package volume

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A volume whose journal moves to the disk is mounted as ext4, which knows none of the options of the
// modules with their journal in memory. Those of the journal's place come from the record.
func TestNoOptionOfAJournalInMemoryStaysOnTheDisk(t *testing.T) {
	source, err := os.ReadFile("../nvjournal/kernel/mount/options.c")
	if err != nil {
		t.Fatal(err)
	}
	ofTheRecord := []string{"journal_path", "journal_offset", "journal_size"}
	var options []string
	for _, found := range regexp.MustCompile(`fsparam_(?:string|u32|enum)\("(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		if !slices.Contains(ofTheRecord, found[1]) {
			options = append(options, found[1]+"=x")
		}
	}
	if len(options) < 6 {
		t.Fatalf("options of the modules: %q; want all", options)
	}
	if left := withoutMemoryOptions("noatime," + strings.Join(options, ",") + ",commit=5"); left != "noatime,commit=5" {
		t.Errorf("%q; want noatime,commit=5", left)
	}
}
