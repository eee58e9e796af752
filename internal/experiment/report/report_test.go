package report

import (
	"slices"
	"testing"
)

func TestTablesWithoutRowsAreLeftOut(t *testing.T) {
	row := [][]string{{"a load", "1"}}
	page := Report{Tables: []Table{{Title: "targets"}}}
	page.Add(Table{Title: "times", Rows: row}, Table{Title: "locks"})
	page.Add()
	page.Add(Table{Title: "counts", Rows: row})
	var titles []string
	for _, table := range page.Tables {
		titles = append(titles, table.Title)
	}
	if want := []string{"targets", "times", "counts"}; !slices.Equal(titles, want) {
		t.Errorf("%q, want %q", titles, want)
	}
}
