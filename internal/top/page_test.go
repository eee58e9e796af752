package top

import (
	"os"
	"strings"
	"testing"
)

// docs/top.md explains each column of the screen, in the screen's order.
func TestThePageExplainsEachColumn(t *testing.T) {
	page, err := os.ReadFile("../../docs/top.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(page)
	for _, c := range Columns {
		_, after, found := strings.Cut(rest, "\n| "+c.title+" | ")
		if !found {
			t.Errorf("docs/top.md has no row of %s after that of the column before", c.title)
			continue
		}
		rest = after
	}
}
