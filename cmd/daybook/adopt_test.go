package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/victimtest"
)

// The names of mount points and cgroups are not the operator's.
func TestAdoptPrintsNoControlCharacters(t *testing.T) {
	const mountpoint, unit = "/mnt/a\tb\x1b[2J", "/c\nd"
	s := adopt.Status{Name: "sda1", Mountpoint: mountpoint, For: unit, Cgroup: unit, JournalCgroup: unit, PID: 7, Placed: true, Weight: 300}
	neutral := s
	neutral.Neutral = true
	var text strings.Builder
	printAdopted(&text, s)
	printAdopted(&text, neutral)
	if err := printTable(&text, []adopt.Status{neutral}); err != nil {
		t.Fatal(err)
	}
	const want = `/mnt/a\x09b\x1b[2J: its journal (process 7) is in /c\x0ad
  under the weight 300 of /c\x0ad
/mnt/a\x09b\x1b[2J: several containers use it (/c\x0ad), so its journal (process 7) is in a neutral cgroup: /c\x0ad
  under the weight 300 of /c\x0ad
MOUNTPOINT          DEVICE  JOURNAL IN  WEIGHT  WRITTEN  STATE
/mnt/a\x09b\x1b[2J  sda1    /c\x0ad     300     0        placed; shared by /c\x0ad
`
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

// adoptRig is a mounted file system, and a cgroup with a process.
type adoptRig struct {
	t             *testing.T
	tree          *cgroup.Tree
	fs            ext4test.FileSystem
	cgroup, state string
	process       *exec.Cmd
}

func newAdoptRig(t *testing.T) *adoptRig {
	t.Helper()
	needs.Root(t)
	tree := cgrouptest.Tree(t)
	r := &adoptRig{t: t, tree: tree, fs: ext4test.New(t, ext4test.Options{}), cgroup: cgrouptest.New(t, tree, "adopt"), state: t.TempDir()}
	r.process = exec.Command("sleep", "1000")
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.process.Process.Kill()
		_ = r.process.Wait()
	})
	if err := tree.Move(r.process.Process.Pid, r.cgroup); err != nil {
		t.Fatal(err)
	}
	return r
}

// at is the cgroup of the journal's thread.
func (r *adoptRig) at() string {
	r.t.Helper()
	journal, err := ext4.JournalOf(r.fs.Disk.Dev)
	if err != nil {
		r.t.Fatal(err)
	}
	pid, err := ext4.JournalThread(journal.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	at, err := r.tree.Of(pid)
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// start runs adopt until it prints its first line.
func (r *adoptRig) start(words ...string) *exec.Cmd {
	r.t.Helper()
	command := exec.Command(os.Args[0], append([]string{"adopt", "--state-dir", r.state}, words...)...)
	command.Env = append(os.Environ(), commandVariable+"=1")
	out, err := command.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		r.t.Fatalf("%q, %v", line, err)
	}
	return command
}

func TestAdoptKeepsTheJournalInTheCgroupUntilItIsInterrupted(t *testing.T) {
	r := newAdoptRig(t)
	command := r.start(r.fs.Dir, "--cgroup", r.cgroup)
	journal := r.cgroup + "/journal-" + filepath.Base(r.fs.Disk.Node())
	if at := r.at(); at != journal {
		t.Errorf("the journal's thread is in %s, want %s", at, journal)
	}
	out, err := execute(t, "adopt", "--list", "--json", "--state-dir", r.state)
	var list struct{ Adopted []adopt.Status }
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Adopted) != 1 || !list.Adopted[0].Placed || list.Adopted[0].KeeperPID != command.Process.Pid {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := execute(t, "adopt", "--release", r.fs.Dir, "--state-dir", r.state); err == nil {
		t.Errorf("what a process keeps was released: %s", out)
	}
	if err := command.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if at := r.at(); at != "/" {
		t.Errorf("after SIGTERM the journal's thread is in %s", at)
	}
	// Killed together with its guardian: restore undoes it.
	command = r.start(r.fs.Dir, "--cgroup", r.cgroup)
	victimtest.Stop(t, command.Process.Pid) // or it would start another guardian
	for _, pid := range childrenOf(t, command.Process.Pid) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	if at := r.at(); at != journal {
		t.Errorf("killed with its guardian: %s", at)
	}
	if out, err := execute(t, "adopt", "--list", "--state-dir", r.state); err != nil || !strings.Contains(out, "left by a killed adopt") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = execute(t, "restore", "--json", "--state-dir", r.state)
	if err != nil || r.at() != "/" || !strings.Contains(out, journal) {
		t.Errorf("%v: %s; the journal's thread is in %s", err, out, r.at())
	}
	// A release waits for a keeper that is about to release, as in a stop hook.
	r.start(r.fs.Dir, "--cgroup", r.cgroup)
	_ = r.process.Process.Kill()
	_ = r.process.Wait()
	if out, err := execute(t, "adopt", "--release", r.fs.Dir, "--state-dir", r.state); err != nil || r.at() != "/" {
		t.Errorf("a container that has ended: %v: %s", err, out)
	}
	for at, want := range map[string]string{r.cgroup: "no process is in the cgroup", r.cgroup + "-none": "-none does not exist"} {
		refused := exec.Command(os.Args[0], "adopt", "--state-dir", r.state, r.fs.Dir, "--cgroup", at)
		refused.Env = append(os.Environ(), commandVariable+"=1")
		out, err := refused.CombinedOutput()
		if refused.ProcessState == nil || refused.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), want) {
			t.Errorf("adopt --cgroup %s: %v: %s; want exit code %d and %q", at, err, out, exitUsage, want)
		}
	}
}

// The guardian does the last undo, so its failure is the command's.
func TestAdoptFailsIfItsGuardianDoes(t *testing.T) {
	r := newAdoptRig(t)
	command := r.start(r.fs.Dir, "--cgroup", r.cgroup)
	children := childrenOf(t, command.Process.Pid)
	if len(children) != 1 {
		t.Fatalf("children %v, want the guardian alone", children)
	}
	victimtest.Stop(t, children[0])
	pipe, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", children[0]))
	if err != nil || !strings.HasPrefix(pipe, "pipe:") {
		t.Fatalf("descriptor 3 of the guardian is %q, %v", pipe, err)
	}
	if err := command.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// A guardian that is killed earlier is replaced.
	awaittest.Until(t, awaittest.Patience, "adopt closes its end of the pipe", func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", command.Process.Pid))
		return !slices.ContainsFunc(files, func(file string) bool {
			to, _ := os.Readlink(file)
			return to == pipe
		})
	})
	if err := unix.Kill(children[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil || command.ProcessState.ExitCode() != exitFailure {
		t.Errorf("the guardian was killed: %v, want exit code %d", err, exitFailure)
	}
	if at := r.at(); at != "/" {
		t.Errorf("the journal's thread is in %s", at)
	}
}

// Whether a damaged record is that of a mount point is not known, so a release of it is no success.
func TestAdoptReportsARecordThatItCannotReadWhereAReleaseLooksForIt(t *testing.T) {
	needs.Root(t)
	state := t.TempDir()
	dir := filepath.Join(state, "adopt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	release := []string{"adopt", "--release", t.TempDir(), "--state-dir", state}
	if out, err := execute(t, release...); err != nil || !strings.Contains(out, "is not adopted") {
		t.Errorf("%v: %s", err, out)
	}
	file := filepath.Join(dir, "loop77.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{release, {"adopt", "--release", "--all", "--state-dir", state}} {
		if out, err := execute(t, words...); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v: %s; want an error with %s", words, err, out, file)
		}
	}
	if out, err := execute(t, "adopt", "--list", "--state-dir", state); err != nil || !strings.Contains(out, file) {
		t.Errorf("%v: %s", err, out)
	}
}

// childrenOf lists the children of a process.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == fmt.Sprint(pid) {
			var child int
			if _, err := fmt.Sscan(filepath.Base(filepath.Dir(stat)), &child); err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
	}
	if len(children) == 0 {
		t.Errorf("process %d has no child", pid)
	}
	return children
}

func TestAdoptRefusesWhatItCannotAdopt(t *testing.T) {
	needs.Root(t)
	state := t.TempDir()
	for _, c := range []struct {
		words []string
		code  int
		want  string
	}{
		{[]string{}, exitUsage, "which file system"},
		{[]string{"/mnt"}, exitUsage, "which container"},
		{[]string{t.TempDir(), "--cgroup", "/x"}, exitUsage, "nothing is mounted there"},
		{[]string{"/proc", "--cgroup", "/x"}, exitUnsupported, "it is proc, want ext4"},
		{[]string{"/mnt", "--cgroup", "x"}, exitUsage, "want a path below the mount point"},
		{[]string{"/mnt", "--cgroup", "/x", "--weight", "1001"}, exitUsage, "want 1 to 1000"},
		{[]string{"/mnt", "--cgroup", "/x", "--weight", "0"}, exitUsage, "want 1 to 1000"},
		{[]string{"", "--cgroup", "/x"}, exitUsage, "MOUNTPOINT is empty"},
		{[]string{"--release", ""}, exitUsage, "MOUNTPOINT is empty"},
		{[]string{"/mnt", "--container", ""}, exitUsage, "--container is empty"},
		{[]string{"/mnt", "--cgroup", ""}, exitUsage, "want a path below the mount point"},
		{[]string{"--release"}, exitUsage, "MOUNTPOINT or --all"},
		{[]string{"--list", "--weight", "0"}, exitUsage, "goes with --json"},
		{[]string{"--json"}, exitUsage, "goes with --list"},
		{[]string{"/mnt", "--cgroup", "/x", "--state-dir", "state"}, exitUsage, "want an absolute path"},
		{[]string{"--release", "/mnt", "--state-dir", "state"}, exitUsage, "want an absolute path"},
		{[]string{"--list", "--state-dir", ""}, exitUsage, "want an absolute path"},
		{[]string{"--list", "/mnt"}, exitUsage, "goes with --json"},
		{[]string{"/mnt", "--config", "x.yaml"}, exitUsage, "--config names"},
	} {
		out, err := execute(t, append([]string{"adopt", "--state-dir", state}, c.words...)...)
		if err == nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("adopt %q: %v, %s; want exit code %d and %q", c.words, err, out, c.code, c.want)
		}
	}
}

func TestAdoptChecksItsConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "adopt.yaml")
	text := "mounts:\n  - mountpoint: srv\n    container: db1\n  - mountpoint: /srv/db2\n    weight: 0\n  - mountpoint: /srv/db2\n    cgroup: [/, x, -.slice, a--b.slice, a-b.slice]\n  - what: is\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t, "adopt", "--check-config", file)
	if err == nil {
		t.Error("no error")
	}
	for _, want := range []string{":2: mountpoint: \"srv\"", ":4: /srv/db2: want cgroup: or container:", ":5: weight of /srv/db2: \"0\"", ":6: mountpoint /srv/db2 is in line 4", ":7: cgroup: /: the root cgroup", ":7: cgroup: \"x\"", ":7: cgroup: \"-.slice\" is no name", ":7: cgroup: \"a--b.slice\" is no name", ":8: unknown key what"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s lacks %q", out, want)
		}
	}
	if strings.Contains(out, "a-b.slice") {
		t.Errorf("a slice is refused: %s", out)
	}
	if err := os.WriteFile(file, []byte("mounts:\n  - mountpoint: /srv/db1\n    container: [db1, db2]\n    weight: 300\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := execute(t, "adopt", "--check-config", file); err != nil || !strings.Contains(out, "no errors") {
		t.Errorf("%v: %s", err, out)
	}
}
