package volume

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/systemdtest"
)

// mountingUnits are the units that attach, detach or repair volumes.
var mountingUnits = []string{
	"../deploy/systemd/daybook-attach.service", "../deploy/systemd/daybook-volumes.service", "../deploy/systemd/daybook-docker.service",
}

// asUnit runs an operation with the capabilities of a unit, in a separate process,
// and returns its output if it fails. before are the words that start the process.
func (r *rig) asUnit(unit string, o order, before ...string) string {
	r.t.Helper()
	program, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	words := append(before, program)
	o.KillAt = -1
	command := systemdtest.Command(r.t, unit, words[0], words[1:]...)
	command.Env = r.victim(o).Env
	output, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	return string(output)
}

// newElsewhereAs is newElsewhere with a change of the process in the new namespace.
func newElsewhereAs(t testing.TB, words ...string) elsewhere {
	t.Helper()
	needs.Tool(t, "unshare")
	words = append(append([]string{"--mount", "--propagation", "private"}, words...), "sh", "-c", "echo ready; read line")
	command := exec.Command("unshare", words...)
	command.Dir = "/"
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	e := elsewhere{command, stdin}
	t.Cleanup(e.end)
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return e
}

// The units' capabilities allow a look into the namespaces of almost no process.
// The mount in another namespace is found nevertheless.
func TestTheUnitsSeeMountsInOtherNamespaces(t *testing.T) {
	needs.Tool(t, "setpriv")
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	for _, unit := range mountingUnits {
		for what, words := range map[string][]string{
			"root":          nil,
			"another user":  {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"},
			"root, limited": {"setpriv", "--bounding-set=-all", "--inh-caps=-all"},
		} {
			r.attach(name, AttachOptions{Placement: PlaceNone})
			other := newElsewhereAs(t, words...)
			started := time.Now()
			if said := r.asUnit(unit, order{Operation: "is elsewhere", Name: name}); !strings.Contains(said, "has it in another mount namespace") {
				t.Errorf("%s, %s: it was not seen: %q", unit, what, said)
			}
			t.Logf("%s, %s: %v", unit, what, time.Since(started))
			other.end()
			if said := r.asUnit(unit, order{Operation: "detach", Name: name}); said != "" {
				t.Errorf("%s, %s has ended: %s", unit, what, said)
			}
		}
	}
	r.clear()
}

// A /proc that hides processes is no proof that there are none.
func TestHiddenProcessesAreNotTakenForNone(t *testing.T) {
	needs.Tool(t, "setpriv")
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	for options, want := range map[string]string{
		// Without gid=, root's group sees all: the host's mount, from there.
		"hidepid=2":           "has it in another mount namespace",
		"hidepid=1,gid=65534": "CAP_SYS_PTRACE",
		"hidepid=2,gid=65534": "CAP_SYS_PTRACE",
	} {
		// In its own /proc, without CAP_SYS_PTRACE, like the units.
		before := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `mount -t proc -o "$0" proc /proc && exec "$@"`, options}
		said := r.asUnit(mountingUnits[1], order{Operation: "is elsewhere", Name: name}, before...)
		if !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", options, said, want)
		}
	}
	r.clear()
}

// The units may do everything that attaching, protecting and repairing needs.
func TestTheUnitsMayAttachAndProtect(t *testing.T) {
	needs.Tool(t, "setpriv")
	r := newPersistentRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	for _, unit := range mountingUnits {
		r.attach(name, AttachOptions{Persist: true})
		r.restart(name)
		r.unprotectBelow(r.target(""))
		if err := os.Remove(r.target(name)); err != nil {
			t.Fatal(err)
		}
		if said := r.asUnit(unit, order{Operation: "repair"}); said != "" {
			t.Errorf("%s: %s", unit, said)
		}
		r.wantProtected(r.target(name))
		if said := r.asUnit(unit, order{Operation: "attach persistent", Name: name}); said != "" {
			t.Errorf("%s: %s", unit, said)
		}
		r.wantWhole(name)
		if said := r.asUnit(unit, order{Operation: "detach", Name: name}); said != "" {
			t.Errorf("%s: %s", unit, said)
		}
		r.wantDetached(name)
		r.endPersistenceOfAnotherUsersTarget(unit, name)
		// While something is mounted, only open_tree(2) opens the directory below.
		calls := systemdtest.Values(r.t, unit, "SystemCallFilter")
		if !slices.Contains(calls, "@mount") && !slices.Contains(calls, "open_tree") {
			t.Errorf("%s cannot call open_tree: %q", unit, calls)
		}
	}
	r.clear()
}

// As from the pod of the agent, whose mount namespace has the pool, but not the host's mounts.
func TestAProcessWithoutTheHostsMountsListsItsVolumesAsAttached(t *testing.T) {
	needs.Tool(t, "unshare")
	r := newRig(t)
	name := r.name("v")
	r.create(name, CreateOptions{})
	r.attach(name, AttachOptions{Placement: PlaceNone})
	listing := r.victim(order{Operation: "is well, as listed", KillAt: -1})
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", `umount "$0" && exec "$1"`, r.target(name), program)
	command.Env = listing.Env
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	r.detach(name)
	r.clear()
}

// endPersistenceOfAnotherUsersTarget detaches as a unit if the mount point belongs
// to another user: then only CAP_FOWNER may clear its flag.
func (r *rig) endPersistenceOfAnotherUsersTarget(unit, name string) {
	r.t.Helper()
	target := r.target("nobody")
	if err := errors.Join(os.Mkdir(target, 0o700), os.Chown(target, 65534, 65534)); err != nil {
		r.t.Fatal(err)
	}
	r.attach(name, AttachOptions{Target: target, Persist: true})
	if said := r.asUnit(unit, order{Operation: "detach", Name: name}); said != "" {
		r.t.Errorf("%s: the mount point of another user: %s", unit, said)
	}
	if err := os.Remove(target); err != nil {
		r.t.Errorf("%s: %v", unit, err)
	}
}
