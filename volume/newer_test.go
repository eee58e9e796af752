package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/store"
	"github.com/daybook-project/daybook/volume/records"
)

// golden reads a record as some version of Daybook wrote it, or a later one may
// write it.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("records", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wantNewer fails the test unless an error names a newer Daybook, and does not
// suggest to delete something.
func wantNewer(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "written by a newer Daybook: upgrade") {
		t.Errorf("%s: %v", what, err)
	}
	for _, word := range []string{"damaged", "remove", "delete it"} {
		if err != nil && strings.Contains(err.Error(), word) {
			t.Errorf("%s: the message says %q: %v", what, word, err)
		}
	}
}

func TestNewerRecordsAreReportedAsSuch(t *testing.T) {
	_, err := records.ParseVolume("db", golden(t, "volume-5.json"))
	wantNewer(t, "volume", err)
	_, err = records.ParseSnapshot("snap", golden(t, "snapshot-3.json"))
	wantNewer(t, "snapshot", cause.Public(cause.Unreadable("the record", err)))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, store.PoolFile), golden(t, "pool-2.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), dir, PoolOptions{Create: true})
	wantNewer(t, "pool", err)
	registry := Registry{StateDir: dir}
	if err := os.WriteFile(registry.file(), []byte("# pools, version 2\n/srv/a thin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = registry.Dirs()
	wantNewer(t, "registry", err)
	wantNewer(t, "registry, noting", registry.Note(t.Context(), &Pool{dir: "/srv/b"}))

}

func TestANewerVolumeIsLeftAlone(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	name, other := r.name("newer"), r.name("other")
	r.keep(name, CreateOptions{})
	r.keep(other, CreateOptions{})
	path := filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile)
	own, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(golden(t, "volume-5.json"), []byte(`"db"`), []byte(`"`+name+`"`), 1)
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	files := r.files()
	_, err = r.pool.Attach(ctx, name, AttachOptions{Target: r.target(name)})
	wantNewer(t, "attach", err)
	wantNewer(t, "detach", r.pool.Detach(ctx, name))
	wantNewer(t, "delete", r.pool.Delete(ctx, name, DeleteOptions{Damaged: true}))
	_, err = r.pool.Inspect(r.t.Context(), name)
	wantNewer(t, "inspect", err)
	_, err = r.pool.Snapshot(ctx, name, "s", SnapshotOptions{})
	wantNewer(t, "snapshot", err)
	_, err = r.pool.Clone(ctx, name, "", r.name("clone"), CloneOptions{})
	wantNewer(t, "clone", err)
	done, err := r.pool.Repair(ctx)
	wantNewer(t, "repair", err)
	if len(done.Damaged) != 0 || !strings.Contains(done.Newer[name], "upgrade") {
		t.Errorf("repair: %+v", done)
	}
	all, err := r.pool.List(r.t.Context())
	if err != nil || len(all) != 2 || !strings.Contains(all[0].Problem, "upgrade") || all[1].Problem != "" {
		t.Errorf("list: %+v, %v", all, err)
	}
	r.wantSame("files", r.files(), files)
	if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, newer) {
		t.Errorf("the record is %s, %v", text, err)
	}
	// After the upgrade.
	if err := os.WriteFile(path, own, 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantKept(name)
	r.wantKept(other)
}

func TestUnknownFieldsOutliveOperations(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	name := r.name("v")
	r.create(name, CreateOptions{})
	path := filepath.Join(r.pool.files.VolumeDir(name), store.RecordFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte("{"), []byte(`{"sealed_with":{"key":[1,2]},`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	r.attach(name, AttachOptions{})
	r.detach(name)
	if _, err := r.pool.Resize(ctx, name, 2*testBytes, ResizeOptions{}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte(`"sealed_with"`)) {
		t.Errorf("%s, %v", text, err)
	}
	pool := filepath.Join(r.pool.dir, store.PoolFile)
	if err := os.WriteFile(pool, golden(t, "pool-1-with-more.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.pool.SetQuota(ctx, 2<<30); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(pool)
	if err != nil || !bytes.Contains(text, []byte(`"team-a"`)) || !bytes.Contains(text, []byte("2147483648")) {
		t.Errorf("%s, %v", text, err)
	}
}
