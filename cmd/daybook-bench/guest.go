package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/experiment/paper1/guestshares"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/vm"
)

// guest is a virtual machine in which phases run one after another. This
// program itself runs in it.
type guest struct{ machine *vm.Machine }

// bootGuest boots a kernel of the pin file with the disk of the experiment.
func bootGuest(ctx context.Context, kernel string) (guestshares.Guest, error) {
	machine, err := vm.Boot(ctx, vm.Config{
		Kernel:  kernel,
		Disks:   []vm.Disk{{SizeBytes: guestshares.DiskBytes, BytesPerSecond: guestshares.DiskBytesPerSecond}},
		Modules: []string{"ext4", "bfq"},
		Give:    []vm.Give{{Host: "mke2fs"}},
	})
	if err != nil {
		return nil, err
	}
	return &guest{machine}, nil
}

func (g *guest) Kernel() string { return g.machine.Kernel() }

func (g *guest) Run(ctx context.Context, s scenario.Scenario, law string, tell func(line string)) (scenario.Phase, error) {
	environment, err := scenario.Request{Scenario: s, Parts: []scenario.Part{{Law: law, Seconds: s.Seconds}}}.Environment()
	if err != nil {
		return scenario.Phase{}, err
	}
	out, err := g.do(ctx, vm.Command{Args: []string{vm.Self}, Env: environment}, tell)
	if err != nil {
		return scenario.Phase{}, err
	}
	answer, err := scenario.ReadAnswer(out)
	if err == nil && len(answer.Phases) != 1 {
		err = fmt.Errorf("the guest ran %d phases; want 1", len(answer.Phases))
	}
	if err != nil {
		return scenario.Phase{}, err
	}
	return answer.Phases[0], nil
}

// do runs a command in the guest, passes each line of its standard error to tell,
// and returns its standard output.
func (g *guest) do(ctx context.Context, command vm.Command, tell func(line string)) (*bytes.Buffer, error) {
	out, said := new(bytes.Buffer), &lines{tell: tell}
	command.Stdout, command.Stderr = out, said
	if err := g.machine.Do(ctx, command); err != nil {
		return nil, fmt.Errorf("in the guest: %w: %s", err, said.last)
	}
	return out, nil
}

// phase runs the hidden command of newPhaseCommand in the guest.
func (g *guest) phase(ctx context.Context, bench string, asked any, tell func(line string)) (*bytes.Buffer, error) {
	text, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	return g.do(ctx, vm.Command{Args: []string{vm.Self, bench, "phase", string(text)}}, tell)
}

// phaseResult is phase with its result decoded.
func phaseResult[T any](ctx context.Context, g *guest, bench string, asked any, tell func(line string)) (result T, err error) {
	out, err := g.phase(ctx, bench, asked, tell)
	if err != nil {
		return result, err
	}
	if err := json.NewDecoder(out).Decode(&result); err != nil {
		return result, fmt.Errorf("cannot read the guest's result: %w", err)
	}
	return result, nil
}

// newPhaseCommand returns the hidden command that runs in the guest.
func newPhaseCommand(run func(ctx context.Context, text string, output, say io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:    "phase CASE",
		Short:  "Run one case, given as JSON, in a guest; overwrites its disks",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

func (g *guest) Close() error {
	defer g.machine.Close()
	if problems := g.machine.KernelProblems(); len(problems) > 0 {
		return fmt.Errorf("the guest's kernel reported faults: %s", strings.Join(problems, "; "))
	}
	return nil
}

// lines passes on complete lines.
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
