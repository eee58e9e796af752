package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page must list each mutant of nvjournal with the description in its file.
func TestThePageOfTheMutantsHasTheirDescriptions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sourceTree, "docs/nvjournal-correctness.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(sourceTree, "nvjournal/test/mutants/*.mutant"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d mutants, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		description, _, _ := strings.Cut(string(text), "\n@ ")
		row := "| `" + strings.TrimSuffix(filepath.Base(file), ".mutant") + "` | " + strings.ReplaceAll(description, "\n", " ") + " | "
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/nvjournal-correctness.md lacks the row %s", row)
		}
	}
}
