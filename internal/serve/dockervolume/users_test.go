package dockervolume

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/filetest"
	"github.com/daybook-project/daybook/volume"
)

func TestUsersOutliveTheirDaemon(t *testing.T) {
	dir := t.TempDir()
	u, err := openUsers(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		ids  []string
	}{{"a", []string{"1"}}, {"a", []string{"1", "2"}}, {"b", []string{"3"}}, {"c", nil}, {"b", nil}} {
		if err := u.set(step.name, "/mnt/"+step.name, step.ids); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.forget("c"); err != nil {
		t.Fatal(err)
	}
	again, err := openUsers(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := again.all(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("volumes %q, want a and b", got)
	}
	if ids, known := again.get("a"); !known || !slices.Equal(ids, []string{"1", "2"}) {
		t.Errorf("users of a: %q, %v", ids, known)
	}
	if a, c := again.target("a"), again.target("c"); a != "/mnt/a" || c != "" {
		t.Errorf("a is attached at %q, c at %q", a, c)
	}
	if ids, known := again.get("b"); !known || len(ids) != 0 {
		t.Errorf("users of b: %q, %v; it must be detached", ids, known)
	}
	if _, known := again.get("c"); known {
		t.Error("c is still known")
	}
	if left, _ := filepath.Glob(dir + "/*.new"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A user that cannot be recorded does not count.
func TestAUserThatCannotBeRecordedDoesNotCount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	u, err := openUsers(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := u.set("a", "/mnt/a", []string{"1"}); err == nil {
		t.Error("a user was written into no directory")
	}
	if _, known := u.get("a"); known {
		t.Error("the user counts nevertheless")
	}
}

func TestADamagedUsersFileIsRefusedAsAWhole(t *testing.T) {
	var many []string
	for n := range maxUsers + 1 {
		many = append(many, fmt.Sprintf(`"%d"`, n))
	}
	for _, text := range []string{
		"", "null x", `{"format":0,"volumes":{}}`, `{"format":1,"volumes":{"a":["1"]}`, `{"format":1,"volumes":{"../a":[]}}`,
		`{"format":1,"volumes":{"a":[""]}}`, `{"format":1,"volumes":{}}{}`,
		`{"format":1,"volumes":{"a":["` + strings.Repeat("x", maxIDBytes+1) + `"]}}`,
		`{"format":1,"volumes":{"a":[` + strings.Join(many, ",") + `]}}`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, usersFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openUsers(dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), path+" is damaged") || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%.60q: %v", text, err)
		}
		if kept, err := os.ReadFile(path); err != nil || string(kept) != text {
			t.Errorf("%.60q was changed", text)
		}
	}
}

// Its content says which volumes are detached.
func TestAUsersFileThatOthersCouldWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	u, err := openUsers(dir, slog.New(slog.DiscardHandler))
	if err == nil {
		err = u.set("a", "/mnt/a", []string{"1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, usersFile)
	filetest.EachRefused(t, path, maxUsersBytes, func(way, reason string) {
		what, remedy := "damaged", "move it away"
		if strings.HasPrefix(reason, "others may write") || strings.HasPrefix(reason, "it belongs to") {
			what, remedy = "not to be trusted", "if you have checked its content: chown root: "+path+" && chmod go-w "+path
		}
		if _, err := openUsers(dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), path+" is "+what+": "+reason) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v; want %q", way, err, reason)
		}
	})
	if u, err := openUsers(dir, slog.New(slog.DiscardHandler)); err != nil || !slices.Equal(u.all(), []string{"a"}) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestAVolumeHasABoundedNumberOfUsers(t *testing.T) {
	u, err := openUsers(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for n := range maxUsers + 1 {
		ids = append(ids, fmt.Sprint(n))
	}
	slices.Sort(ids)
	if err := u.set("a", "/mnt/a", ids); !errors.Is(err, volume.ErrBusy) {
		t.Errorf("%d users: %v", len(ids), err)
	}
	if err := u.set("a", "/mnt/a", ids[1:]); err != nil {
		t.Error(err)
	}
}

func TestANewerUsersFileIsNotCalledDamaged(t *testing.T) {
	pool := t.TempDir()
	path := filepath.Join(pool, usersFile)
	newer := `{"format":2,"volumes":[{"name":"a","ids":{}}]}`
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openUsers(pool, slog.New(slog.DiscardHandler))
	if !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "written by a newer Daybook: upgrade") || strings.Contains(err.Error(), "move") {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != newer {
		t.Errorf("the file is %s, %v", text, err)
	}
	// A field of the same format is kept.
	if err := os.WriteFile(path, []byte(`{"format":1,"volumes":{"a":["1"]},"since":{"a":7}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := openUsers(pool, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.set("b", "/mnt/b", []string{"2"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"since"`) || !strings.Contains(string(text), `"b"`) {
		t.Errorf("%s, %v", text, err)
	}
}

func FuzzUsersFile(f *testing.F) {
	f.Add([]byte(`{"format":1,"volumes":{"a":["2","1","2"],"b":[]}}`))
	f.Add([]byte(`{"format":1,"volumes":{"..":["x"]}}`))
	f.Add([]byte(`{"format":1,"volumes":{"a":["1"]},"targets":{"a":"/mnt/a","b":"/mnt/b"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		of, _, err := parseUsers(text)
		if err != nil {
			return
		}
		for name, one := range of {
			ids := one.ids
			if err := volume.CheckName(name); err != nil {
				t.Error(err)
			}
			if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) || len(ids) > maxUsers {
				t.Errorf("users %q", ids)
			}
		}
	})
}
