package guestshares

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/experiment/fixture"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
)

// phaseVariable carries a phaseRequest to the program in the guest.
const phaseVariable = "DAYBOOK_GUEST_PHASE"

// phaseRequest is what a guest is told to run.
type phaseRequest struct {
	Scenario scenario.Scenario `json:"scenario"`
	Law      string            `json:"law"`
}

// Environment is the environment with which RunPhaseIfAsked runs a
// phase of a scenario.
func Environment(scenario scenario.Scenario, law string) ([]string, error) {
	text, err := json.Marshal(phaseRequest{scenario, law})
	return []string{phaseVariable + "=" + string(text)}, err
}

// ReadPhase reads what RunPhaseIfAsked wrote.
func ReadPhase(input io.Reader) (phase scenario.Phase, err error) {
	if err := json.NewDecoder(input).Decode(&phase); err != nil {
		return phase, fmt.Errorf("cannot read the guest's result: %w", err)
	}
	return phase, nil
}

// RunPhaseIfAsked makes this process run a phase in a guest, if its
// environment says so, and then never returns. Programs that call Bench
// call it in main, after vm.InitIfAsked and workload.RunIfAsked.
func RunPhaseIfAsked() {
	text, asked := os.LookupEnv(phaseVariable)
	if !asked {
		return
	}
	// The loads are this program too.
	err := os.Unsetenv(phaseVariable)
	if err == nil {
		err = runPhase(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest phase:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runPhase(text string) error {
	var asked phaseRequest
	if err := json.Unmarshal([]byte(text), &asked); err != nil {
		return fmt.Errorf("%s: %w", phaseVariable, err)
	}
	if asked.Scenario.Disk == nil {
		return errors.New("a guest's scenario is on a given disk")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tree, err := cgroup.Find()
	if err != nil {
		return err
	}
	lab := fixture.Lab{
		Tree: tree,
		Log:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Progress: func(_, what string, sample *account.Sample) {
			if sample != nil {
				what = describe(*sample, asked.Scenario)
			}
			fmt.Fprintln(os.Stderr, what)
		},
	}
	phase, err := asked.Scenario.Run(ctx, lab, asked.Law)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(phase)
}

// describe is a sample in one line: of each container its share, weight, and
// what it consists of, in MB.
func describe(sample account.Sample, scenario scenario.Scenario) string {
	var b strings.Builder
	shares := scenario.Shares(sample)
	for n, actor := range scenario.Actors {
		c := sample.Container(actor.Name)
		fmt.Fprintf(&b, "%s %4.1f %% weight %d (charged %.1f, journal %.1f, metadata %.1f, uncharged %.1f; returned %.1f)  ", actor.Name,
			100*shares[n], c.Weight, float64(c.Charged())/1e6, float64(c.JournalBytes)/1e6, float64(c.MetadataBytes)/1e6, float64(c.UnchargedBytes)/1e6, float64(c.ReturnedBytes)/1e6)
	}
	for _, d := range sample.Devices {
		fmt.Fprintf(&b, "disk %.1f MB", float64(d.DiskBytes)/1e6)
	}
	return b.String()
}
