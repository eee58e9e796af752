package adopt

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/versioned"
)

// The removal of the package fails with these errors: the user must know which file to look at.
func TestAnUnreadableRecordIsNamed(t *testing.T) {
	store, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := store.dir + "/loop77.json"
	for text, newer := range map[string]bool{
		"{":                                false,
		"{}":                               false,
		`{"daybook_adopt": 2}`:             true,
		`{"daybook_adopt": 1, "later": 1}`: true,
		strings.Repeat(" ", maxRecordBytes) + "{}": false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, once := range []bool{false, true} {
			_, err := store.UndoAbandoned(t.Context(), once, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), path) || errors.Is(err, versioned.ErrNewer) != newer {
				t.Errorf("%.40q: %v; want an error with %s, of a newer Daybook: %v", text, err, path, newer)
			}
		}
		all, err := store.List()
		if err != nil || len(all) != 1 || !strings.Contains(all[0].Problem, path) {
			t.Errorf("%.40q: %+v, %v; want a problem with %s", text, all, err, path)
		}
	}
}
