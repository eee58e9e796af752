package control

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// The program itself: a daemon that controls containers on a real ext4 is killed,
// and daybook restore, or its next start, restores everything.
func TestGuestDaemonIsKilledAndRestored(t *testing.T) {
	vmtest.Long(t)
	config := vmtest.Config{Disks: []string{"256M,bps=20M"}, Modules: "ext4,bfq", Give: []string{"mke2fs", "dd"}}
	const daybook = "/usr/bin/daybook"
	if !vmtest.Inside() {
		config.Give = append(config.Give, needs.Built(t, "daybook")+":"+daybook)
	}
	vmtest.InGuest(t, config, func(t *testing.T) {
		for name, use := range controllers {
			t.Run(name, func(t *testing.T) {
				b := newGuestbed(t, use)
				mount := b.mountExt4(t)
				for _, cgroup := range b.cgroups {
					b.load(t, cgroup, mount)
				}
				file := filepath.Join(t.TempDir(), "control.yaml")
				text := fmt.Sprintf("interval: 1s\ncontainers:\n  - {match: %s/*, weight: 300}\n", b.parent)
				if b.tunables != nil {
					text += "tunables: {low_latency: 0, strict_guarantees: 1, timeout_sync: 40}\n"
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				before := b.settings(t)
				daemon := func() *program {
					return startProgram(t, daybook, "control", "--device", b.disk.Name, "--config", file)
				}
				for _, again := range []func() string{
					func() string { return runProgram(t, daybook, "restore") },
					func() string { // the next start restores first, and again at its own end
						p := daemon()
						p.awaitWord(t, "restored what an earlier run had changed")
						b.awaitWeights(t, p)
						return p.interrupt(t)
					},
				} {
					p := daemon()
					b.awaitWeights(t, p)
					p.kill(t)
					if b.settings(t) == before {
						t.Fatal("after the kill all is as before: nothing is shown")
					}
					output := again()
					if after := b.settings(t); after != before {
						t.Errorf("before\n%safter\n%s%s", before, after, output)
					}
					for _, want := range advised(name) {
						if !strings.Contains(p.output.String(), want) {
							t.Errorf("the daemon did not say %q: %s", want, p.output.String())
						}
					}
				}
			})
		}
	})
}

func (b *testbed) mountExt4(t *testing.T) string {
	t.Helper()
	mount := t.TempDir()
	for _, command := range [][]string{{"mke2fs", "-q", "-F", "-t", "ext4", b.disk.Node()}, {"mount", "-t", "ext4", b.disk.Node(), mount}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return mount
}

// load keeps a process in the cgroup that reads and makes directories.
func (b *testbed) load(t *testing.T, cgroup, mount string) {
	t.Helper()
	directory := filepath.Join(mount, filepath.Base(cgroup))
	const script = `set -e; echo $$ > "$1/cgroup.procs"; mkdir "$2"; cd "$2"
dd if=/dev/zero of=file bs=1M count=8 conv=fsync status=none
i=0; while :; do dd if=file of=/dev/null bs=256k iflag=direct status=none; i=$((i+1)); mkdir $i $i/a $i/b $i/c; done`
	command := exec.Command("sh", "-c", script, "sh", b.dir(cgroup), directory)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The shell and its children.
		if err := os.WriteFile(filepath.Join(b.dir(cgroup), "cgroup.kill"), []byte("1"), 0); err != nil {
			t.Error(err)
		}
		_ = command.Wait() // it was killed
		b.awaitEmpty(t, cgroup)
	})
}

func (b *testbed) awaitEmpty(t *testing.T, cgroup string) {
	t.Helper()
	awaittest.Until(t, awaittest.Patience, cgroup+" is empty", func() bool {
		events, err := os.ReadFile(filepath.Join(b.dir(cgroup), "cgroup.events"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(events), "populated 0")
	})
}

// awaitWeights waits until the program has corrected a weight: it is neither an
// original nor the ideal.
func (b *testbed) awaitWeights(t *testing.T, p *program) {
	t.Helper()
	p.await(t, "the program has corrected a weight", func() bool {
		for _, cgroup := range b.cgroups {
			setting, err := b.host.Weights.Get(cgroup)
			if err != nil {
				t.Fatal(err)
			}
			if w := setting.Device; w != 0 && w != 77 && w != 300 {
				return true
			}
		}
		return false
	})
}

// program is a running program under test.
type program struct {
	cmd    *exec.Cmd
	output output
	ended  chan struct{}
	err    error // read after ended
}

// output can be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// awaitWord waits until the program has logged something.
func (p *program) awaitWord(t *testing.T, word string) {
	t.Helper()
	p.await(t, fmt.Sprintf("the program says %q", word), func() bool { return strings.Contains(p.output.String(), word) })
}

// await waits until ok, which the program must not end before.
func (p *program) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const patience = 10 * time.Minute // an emulated guest can get a tenth of a processor
	defer func() {
		if t.Failed() {
			t.Logf("the program: %s", p.output.String())
		}
	}()
	awaittest.Until(t, patience, what, func() bool {
		select {
		case <-p.ended:
			t.Fatalf("the program ended before %s: %v", what, p.err)
		default:
		}
		return ok()
	})
}

// advised is the advice that the daemon must log if io.cost has the kernel's
// default configuration.
func advised(controller string) []string {
	if controller != "io.cost" {
		return nil
	}
	return []string{"kernel's own tables"}
}

func startProgram(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
	return p
}

func (p *program) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// interrupt ends the program normally.
func (p *program) interrupt(t *testing.T) string {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(awaittest.Patience):
		t.Fatalf("it did not end within %v: %s", awaittest.Patience, p.output.String())
	}
	if p.err != nil {
		t.Errorf("interrupted, it ended with %v: %s", p.err, p.output.String())
	}
	return p.output.String()
}

func runProgram(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
