package adopt

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/versioned"
	"github.com/daybook-project/daybook/volume/placement"
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

// earlierRecord is of another boot, so there is nothing to undo.
func earlierRecord(name string) Record {
	return Record{Format: recordFormat, Name: name, Device: "7:77", BootID: "earlier", Placed: placement.Placed{Placement: placement.None}}
}

func twoRecords(t *testing.T) Store {
	t.Helper()
	store, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"loop76", "loop77"} {
		if err := store.write(earlierRecord(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Read(name); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// Its content says which cgroups root changes.
func TestARecordThatOthersCouldWriteIsRefusedAndTheOthersAreNot(t *testing.T) {
	store := twoRecords(t)
	path := store.recordPath("loop77")
	filetest.EachRefused(t, path, maxRecordBytes, func(way, reason string) {
		wanted := func(by string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), path+" is not used: "+reason) {
				t.Errorf("%s, %s: %v; want %q", way, by, err, reason)
			}
		}
		_, err := store.Read("loop77")
		wanted("read", err)
		if remedy := strings.Contains(err.Error(), "chown root: "+path+" && chmod go= "+path); remedy == strings.HasPrefix(reason, "it is ") {
			t.Errorf("%s: %v", way, err)
		}
		all, err := store.List()
		if err != nil || len(all) != 2 || strings.Contains(all[0].Problem, "not used") {
			t.Fatalf("%s: listed %+v, %v; want two", way, all, err)
		}
		wanted("listed", errors.New(all[1].Problem))
		// The other one is undone, and this one stays.
		outcomes, err := store.UndoAbandoned(t.Context(), false, slog.New(slog.DiscardHandler))
		wanted("undone", err)
		if len(outcomes) != 1 || outcomes[0].Name != "loop76" || !outcomes[0].Rebooted {
			t.Errorf("%s: undone are %+v", way, outcomes)
		}
		if err := store.write(earlierRecord("loop76")); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := store.Read("loop77"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestADirectoryOfRecordsThatOthersCouldWriteIsRefused(t *testing.T) {
	needs.Root(t)
	store := twoRecords(t)
	for name, way := range map[string]struct {
		spoil, restore func() error
		want           string
	}{
		"group may write": {
			func() error { return os.Chmod(store.dir, 0o720) }, func() error { return os.Chmod(store.dir, 0o700) },
			"others may write to it (mode 0720), and it says which cgroups root changes; if you have checked its content: chown root: " + store.dir,
		},
		"another user's": {
			func() error { return os.Chown(store.dir, 65534, -1) }, func() error { return os.Chown(store.dir, 0, -1) },
			"it belongs to user 65534",
		},
		"link": {
			func() error {
				return errors.Join(os.Rename(store.dir, store.dir+"-aside"), os.Symlink(store.dir+"-aside", store.dir))
			},
			func() error { return errors.Join(os.Remove(store.dir), os.Rename(store.dir+"-aside", store.dir)) },
			"it is a symbolic link",
		},
	} {
		if err := way.spoil(); err != nil {
			t.Fatal(err)
		}
		_, named := store.Names()
		_, opened := Open(filepath.Dir(store.dir))
		for by, err := range map[string]error{"listing": named, "opening": opened} {
			if err == nil || !strings.Contains(err.Error(), store.dir+" is not used: "+way.want) {
				t.Errorf("%s, %s: %v; want %q", name, by, err, way.want)
			}
		}
		if err := way.restore(); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := store.Names(); err != nil || len(names) != 2 {
		t.Errorf("afterwards: %v, %v", names, err)
	}
}

// The name of a disk can have a "!", which a shell takes for its history, and a path a space.
func TestPrintedCommandsAreForAShell(t *testing.T) {
	needs.Root(t)
	store, err := Open(t.TempDir() + "/a b")
	if err != nil {
		t.Fatal(err)
	}
	path := store.recordPath("cciss!c0d0")
	if err := errors.Join(store.write(earlierRecord("cciss!c0d0")), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Read("cciss!c0d0"); err == nil || !strings.Contains(err.Error(), "chown root: '"+path+"' && chmod go= '"+path+"'") {
		t.Error(err)
	}
	if _, err := At("/nonexistent/a b"); err == nil || !strings.HasSuffix(err.Error(), "findmnt --target '/nonexistent/a b'") {
		t.Error(err)
	}
}
