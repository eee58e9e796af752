package experiment

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
)

// phaseVariable carries a guestPhase to the program in the guest.
const phaseVariable = "DAYBOOK_GUEST_PHASE"

// guestPhase is what a guest is told to run.
type guestPhase struct {
	Scenario Scenario `json:"scenario"`
	Law      string   `json:"law"`
}

// GuestEnvironment is the environment with which RunGuestPhaseIfAsked runs a
// phase of a scenario.
func GuestEnvironment(scenario Scenario, law string) ([]string, error) {
	text, err := json.Marshal(guestPhase{scenario, law})
	return []string{phaseVariable + "=" + string(text)}, err
}

// ReadGuestPhase reads what RunGuestPhaseIfAsked wrote.
func ReadGuestPhase(input io.Reader) (phase Phase, err error) {
	if err := json.NewDecoder(input).Decode(&phase); err != nil {
		return phase, fmt.Errorf("cannot read the guest's result: %w", err)
	}
	return phase, nil
}

// RunGuestPhaseIfAsked makes this process run a phase in a guest, if its
// environment says so, and then never returns. Programs that call BenchGuests
// call it in main, after vm.InitIfAsked and workload.RunIfAsked.
func RunGuestPhaseIfAsked() {
	text, asked := os.LookupEnv(phaseVariable)
	if !asked {
		return
	}
	// The loads are this program too.
	err := os.Unsetenv(phaseVariable)
	if err == nil {
		err = runGuestPhase(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest phase:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runGuestPhase(text string) error {
	var asked guestPhase
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
	lab := Lab{
		Tree: tree,
		Log:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Progress: func(_, what string, sample *account.Sample) {
			if sample != nil {
				what = describe(*sample, asked.Scenario)
			}
			fmt.Fprintln(os.Stderr, what)
		},
	}
	phase, err := lab.RunShares(ctx, asked.Scenario, asked.Law)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(phase)
}

// describe is a sample in one line: of each container its share, weight, and
// what it consists of, in MB.
func describe(sample account.Sample, scenario Scenario) string {
	var b strings.Builder
	shares := SharesOf(sample, scenario)
	for n, actor := range scenario.Actors {
		c := lineOf(sample, actor.Name)
		fmt.Fprintf(&b, "%s %4.1f %% weight %d (charged %.1f, journal %.1f, metadata %.1f, uncharged %.1f; returned %.1f)  ", actor.Name,
			100*shares[n], c.Weight, float64(c.Charged())/1e6, float64(c.JournalBytes)/1e6, float64(c.MetadataBytes)/1e6, float64(c.UnchargedBytes)/1e6, float64(c.ReturnedBytes)/1e6)
	}
	for _, d := range sample.Devices {
		fmt.Fprintf(&b, "disk %.1f MB", float64(d.DiskBytes)/1e6)
	}
	return b.String()
}
