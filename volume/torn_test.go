package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/store"
)

// trap kills a tool of e2fsprogs, and the process that started it, before one of
// its system calls. It precedes the tools on the PATH, and lets them pass until it
// is set.
type trap struct {
	t   testing.TB
	dir string
}

// trapScript counts the tools that are started while the trap is set. strace kills
// the chosen one by a signal.
const trapScript = `#!/bin/sh
[ -e %[1]s/set ] || exec %[2]s "$@"
read -r tool call number <%[1]s/set
echo "${0##*/}" >>%[1]s/started
[ "$(wc -l <%[1]s/started)" = "$tool" ] || exec %[2]s "$@"
strace -qq -o /dev/null -e trace="$call" -e inject="$call:signal=KILL:when=$number" %[2]s "$@"
status=$?
[ $status != 137 ] || kill -9 $PPID
exit $status
`

func newTrap(t testing.TB) trap {
	t.Helper()
	needs.Tool(t, "strace")
	p := trap{t, t.TempDir()}
	for _, name := range []string{"e2fsck", "resize2fs", "e2undo"} {
		script := fmt.Sprintf(trapScript, p.dir, needs.Tool(t, name))
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// set makes the tool-th tool die before its number-th call; both count from 1.
func (p trap) set(tool int, call string, number int) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "set"), fmt.Appendln(nil, tool, call, number), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// unset returns the started tools.
func (p trap) unset() []string {
	p.t.Helper()
	started, err := os.ReadFile(filepath.Join(p.dir, "started"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(p.dir, "set")), store.RemoveIfThere(filepath.Join(p.dir, "started"))); err != nil {
		p.t.Fatal(err)
	}
	return strings.Fields(string(started))
}

// e2fsprogs writes the changed words of a superblock one by one, the checksum last.
// A tool that is killed in between leaves a superblock that no kernel mounts, and a
// small file system has no second one. A repair corrects that, wherever it was.
func TestAToolKilledBeforeAnyWriteARepairMakesWhole(t *testing.T) {
	p := newTrap(t)
	t.Setenv("PATH", p.dir+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		crash
		// diskBytes is the pool's own disk; 0: it has none.
		diskBytes int64
	}{
		{crash: crash{
			name: "grow", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}) },
			order: order{Operation: "resize", Size: 2 * testBytes}, after: sizeIsWhole,
		}},
		{crash: crash{
			name: "shrink", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: 2 * testBytes}) },
			order: order{Operation: "resize", Size: testBytes * 3 / 2}, after: sizeIsWhole,
		}},
		{diskBytes: 4 * testBytes, crash: crash{
			name:    "shrink without room for a copy",
			prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: 2 * testBytes, Provision: Full}) },
			order:   order{Operation: "resize", Size: testBytes * 3 / 2}, after: sizeIsWhole,
		}},
		{crash: crash{
			name: "shrink on a device", prepare: keepOnDevice, onDevice: true,
			order: order{Operation: "resize", Size: testBytes * 3 / 2}, after: sizeIsWhole,
		}},
		{crash: crash{
			name: "check --repair after a crash", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}); r.leaveAJournal(name) },
			order: order{Operation: "check"},
		}},
		{crash: crash{
			name: "repair after a crash", prepare: func(r *rig, name string) { r.keep(name, CreateOptions{SizeBytes: testBytes}); r.leaveAJournal(name) },
			order: order{Operation: "repair"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			if c.diskBytes > 0 {
				disk := r.newDisk(c.diskBytes, 512, "")
				r.open(filepath.Join(disk.dir, "pool"))
			}
			kills := 0
			// In bytes, a superblock's words, and in blocks.
			for _, call := range []string{"write", "pwrite64"} {
				for tool, more := 1, true; more; tool++ {
					for number, killed := 1, true; killed; number++ {
						var tools []string
						tools, killed, more = r.crashInTool(c.crash, p, tool, call, number)
						if killed {
							kills++
						}
						if t.Failed() {
							t.Fatalf("tool %d of %q killed before %s %d", tool, tools, call, number)
						}
						// A quick run tries the 1st, 2nd, 4th and so on of the words, too.
						if call == "pwrite64" || os.Getenv("DAYBOOK_VM_LONG") != "1" {
							number += number - 1
						}
					}
				}
			}
			t.Logf("%d kills", kills)
			if kills == 0 {
				t.Error("no tool was killed")
			}
		})
	}
}

// crashInTool says which tools were started, whether the one was killed, and
// whether there were as many.
func (r *rig) crashInTool(c crash, p trap, tool int, call string, number int) (tools []string, killed, more bool) {
	r.t.Helper()
	_, o := r.begin(c)
	p.set(tool, call, number)
	killed = r.killed(o)
	tools = p.unset()
	r.repair()
	if again := r.repair(); again.Work != 0 || len(again.Volumes) > 0 {
		r.t.Errorf("a second repair found %+v", again)
	}
	r.wantTidy()
	r.wantWhole(o.Name)
	if c.after != nil {
		c.after(r, o.Name)
	}
	r.wantKept(o.Name)
	r.clear()
	return tools, killed, len(tools) >= tool
}

// leaveAJournal makes a detached volume's image one of a host that crashed while
// it was written: its journal holds what is synced, and a file that was removed
// and still open is in its list of orphans.
func (r *rig) leaveAJournal(name string) {
	r.t.Helper()
	r.attach(name, AttachOptions{Target: r.target(name), Placement: PlaceNone})
	if err := writeSynced(filepath.Join(r.target(name), "late")); err != nil {
		r.t.Fatal(err)
	}
	orphan, err := os.Create(filepath.Join(r.target(name), "orphan"))
	if err == nil {
		_, err = orphan.Write(make([]byte, 64<<10))
		err = errors.Join(err, os.Remove(orphan.Name()), orphan.Sync(), atomicfile.SyncFileSystem(r.target(name)))
	}
	size := r.inspect(name).SizeBytes
	crashed := filepath.Join(r.home, "crashed")
	if err == nil {
		err = imagefile.MakeSparse(crashed, size)
	}
	if err == nil {
		_, err = imagefile.Copy(r.t.Context(), r.pool.files.Image(name), crashed, size, nil, nil)
	}
	if err := errors.Join(err, orphan.Close()); err != nil {
		r.t.Fatal(err)
	}
	r.detach(name)
	restore(r.t, crashed, r.pool.files.Image(name), size)
	if err := os.Remove(crashed); err != nil {
		r.t.Fatal(err)
	}
}
