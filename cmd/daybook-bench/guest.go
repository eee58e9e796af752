package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/daybook-project/daybook/internal/experiment"
	"github.com/daybook-project/daybook/vm"
)

// guest is a virtual machine in which phases run, one after the other. The
// program in it is this one.
type guest struct{ machine *vm.Machine }

// bootGuest boots a kernel of the pin file with the experiment's disk.
func bootGuest(ctx context.Context, kernel string) (experiment.Guest, error) {
	machine, err := vm.Boot(ctx, vm.Config{
		Kernel:  kernel,
		Disks:   []vm.Disk{{SizeBytes: experiment.GuestDiskBytes, BytesPerSecond: experiment.GuestDiskBytesPerSecond}},
		Modules: []string{"ext4", "bfq"},
		Give:    []vm.Give{{Host: "mke2fs"}},
	})
	if err != nil {
		return nil, err
	}
	return &guest{machine}, nil
}

func (g *guest) Kernel() string { return g.machine.Kernel() }

func (g *guest) Run(ctx context.Context, scenario experiment.Scenario, law string, tell func(line string)) (experiment.Phase, error) {
	environment, err := experiment.GuestEnvironment(scenario, law)
	if err != nil {
		return experiment.Phase{}, err
	}
	var out bytes.Buffer
	said := &lines{tell: tell}
	if err := g.machine.Do(ctx, vm.Command{Args: []string{vm.Self}, Env: environment, Stdout: &out, Stderr: said}); err != nil {
		return experiment.Phase{}, fmt.Errorf("in the guest: %w: %s", err, said.last)
	}
	return experiment.ReadGuestPhase(&out)
}

func (g *guest) Close() error {
	defer g.machine.Close()
	if problems := g.machine.KernelProblems(); len(problems) > 0 {
		return fmt.Errorf("the guest's kernel reported faults: %s", strings.Join(problems, "; "))
	}
	return nil
}

// lines passes on whole lines.
type lines struct {
	tell func(string)
	rest []byte
	last string
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		l.last, l.rest = string(line), rest
		l.tell(l.last)
	}
}
