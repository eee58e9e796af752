package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVolumesAreNamedByTheirPath(t *testing.T) {
	inSlice := Identify("/system.slice/docker-" + id + ".scope")
	inSlice.Root = "/daybook.slice/daybook-db1.slice/docker-" + id + ".scope"
	for path, want := range map[string]Identity{
		"/daybook/db1":                     {Name: "volume db1", Root: "/daybook/db1"},
		"/daybook/db1/journal":             {Runtime: Volume, ID: "db1", Name: "volume db1 (journal)", Root: "/daybook/db1/journal"},
		"/daybook/db1/" + id:               {Runtime: OCI, ID: id, Name: short, Root: "/daybook/db1/" + id},
		"/daybook/db1/" + id + "/x":        {Runtime: OCI, ID: id, Name: short, Root: "/daybook/db1/" + id},
		"/daybook/db1/lxc.payload.a":       {Runtime: LXC, ID: "a", Name: "a", Root: "/daybook/db1/lxc.payload.a"},
		"/daybook":                         {Name: "/daybook", Root: "/daybook"},
		"/daybook/db1/journal/x":           {Name: "/daybook/db1/journal/x", Root: "/daybook/db1/journal/x"},
		"/daybook.slice/daybook-db1.slice": {Name: "volume db1", Root: "/daybook.slice/daybook-db1.slice"},
		`/daybook.slice/daybook-a\x2db.slice/daybook-a\x2db-journal.slice`: {
			Runtime: Volume, ID: "a-b", Name: "volume a-b (journal)", Root: `/daybook.slice/daybook-a\x2db.slice/daybook-a\x2db-journal.slice`},
		inSlice.Root:                inSlice,
		"/daybook/db1/journals":     {Name: "/daybook/db1/journals", Root: "/daybook/db1/journals"},
		"/x/daybook/db1/journal":    {Name: "/x/daybook/db1/journal", Root: "/x/daybook/db1/journal"},
		"/daybook/a\x1b[2J/journal": {Runtime: Volume, ID: "a\x1b[2J", Name: "volume a\ufffd[2J (journal)", Root: "/daybook/a\x1b[2J/journal"},
	} {
		if got := Identify(path); got != want {
			t.Errorf("%q:\n got %+v\nwant %+v", path, got, want)
		}
	}
	if Identify("/daybook/db1/journal").IsContainer() {
		t.Error("a journal's cgroup is not a container")
	}
}

// volumePools is a host whose pools are listed in a file.
func volumePools(t *testing.T) (h *host, pool string) {
	t.Helper()
	h = newHost(t)
	h.sources.volumes.registry = filepath.Join(h.dir, "state", "pools")
	pool = filepath.Join(h.dir, "pool")
	h.put("state/pools", "relative\n"+h.dir+"/gone\n"+pool+"\n")
	return h, pool
}

func TestVolumesBelowOtherParentsAreNamedByTheirRecords(t *testing.T) {
	h, _ := volumePools(t)
	record := func(name, placement, journal string) {
		h.put("pool/volumes/"+name+"/volume.json", `{"format":1,"name":"`+name+`","attachment":{"placement":"`+placement+`","journal_cgroup":"`+journal+`"}}`)
	}
	record("db1", "parent", "/databases/journal-db1")
	record("db2", "container", "/docker/"+id)
	h.put("pool/volumes/db3/volume.json", `{"format":1,"name":"db3"}`)
	h.put("pool/volumes/db4/volume.json", `{"attachment":{"placement":"parent","journal_cgroup":"/databases/journal-db4"`)
	h.put("state/volumes/volumes/db5/volume.json", `{"attachment":{"placement":"parent","journal_cgroup":"/databases/journal-db5"}}`)
	h.later(1)
	named := func(path, name string) {
		t.Helper()
		want := Identity{Runtime: Volume, ID: name, Name: "volume " + name + " (journal)", Root: path}
		if name == "" {
			want = Identity{Name: path, Root: path}
		}
		h.wants(path, want)
	}
	named("/databases/journal-db1", "db1")
	named("/databases/journal-db4", "") // cut off
	named("/databases/journal-db5", "db5")
	h.wants("/docker/"+id, Identity{Runtime: Docker, ID: id, Name: short, Root: "/docker/" + id})

	// Attached elsewhere, and detached.
	record("db1", "parent", "/other/journal-db1")
	h.later(1)
	named("/other/journal-db1", "db1")
	named("/databases/journal-db1", "")
	if err := os.RemoveAll(filepath.Join(h.dir, "pool/volumes/db1")); err != nil {
		t.Fatal(err)
	}
	h.later(1)
	named("/other/journal-db1", "")
}

func TestListOfPoolsIsBounded(t *testing.T) {
	h, _ := volumePools(t)
	h.put("state/pools", strings.Repeat("/nowhere\n", 10*maxNotedPools))
	if n := len(notedPools(h.sources.volumes.registry)); n != maxNotedPools {
		t.Errorf("%d pools were read, at most %d", n, maxNotedPools)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(h.dir, "state", "link")); err != nil {
		t.Fatal(err)
	}
	if pools := notedPools(filepath.Join(h.dir, "state", "link")); pools != nil {
		t.Errorf("a link was followed: %v", pools)
	}
}
