package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/filelock"
	"github.com/daybook-project/daybook/internal/safetext"
)

// adoptFlags are the flags of adopt.
type adoptFlags struct {
	cgroups, containers      []string
	weight                   uint64
	weighted                 bool // --weight is given
	once, list, release, all bool
	json, logJSON            bool
	config, checkConfig      string
	stateDir                 string
}

func newAdoptCommand() *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:   "adopt MOUNTPOINT (--cgroup PATH | --container NAME)",
		Short: "Put the journal of a mounted ext4 under the weight of its container",
		Long: `Adopt places the journal threads (jbd2, and nvj of ext4nvj and jfsnvj) of the file system
on MOUNTPOINT in a child of the container's cgroup. The kernel then charges the journal
to the container, under its weight. The file system stays as it is.

Adopt runs until Ctrl-C or SIGTERM. It places the threads again after a remount, and
when the container has started again. It moves them out within 50 ms after the
container's last process has ended, because a thread inside prevents the removal of the
cgroup. At its end it undoes everything. If it is killed, its guardian does; if both are
killed, the next adopt or "daybook restore" does.

If several containers use the file system, the threads are in a neutral cgroup below
/daybook, with --weight or else the largest weight of those containers, and adopt says
so. It looks for other users every 5 s.

With --once adopt places the threads and exits. Then nothing releases them before the
cgroup is removed: run "daybook adopt --release" first.

With --config it adopts all file systems of a configuration, and waits for those that
are not mounted and containers that do not run. The unit daybook-adopt.service runs it
with ` + adopt.DefaultConfig + `:

  mounts:
    - mountpoint: /srv/db1
      container: db1           # or a list: the file system is shared
      weight: 300              # of the container's cgroup; default: unchanged
    - mountpoint: /var/lib/mysql
      cgroup: /system.slice/mariadb.service`,
		Example: `  daybook adopt /srv/db1 --container db1
  daybook adopt /var/lib/mysql --cgroup /system.slice/mariadb.service --weight 300
  daybook adopt /srv/shared --container web1 --container web2
  daybook adopt --list --json
  daybook adopt --release /srv/db1
  daybook adopt --check-config /etc/daybook/adopt.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.cgroups, "cgroup", nil, "`PATH` of the container's cgroup, or the name of a slice; may be repeated")
	flags.StringArrayVar(&f.containers, "container", nil, "`NAME` or ID of the container; may be repeated")
	flags.Uint64Var(&f.weight, "weight", 0, "weight of the container's cgroup, 1 to 1000 (default: unchanged)")
	flags.BoolVar(&f.once, "once", false, "place the threads and exit")
	flags.BoolVar(&f.list, "list", false, "list what is adopted")
	flags.BoolVar(&f.json, "json", false, "with --list: print JSON")
	flags.BoolVar(&f.release, "release", false, "undo the placement of MOUNTPOINT, or of --all")
	flags.BoolVar(&f.all, "all", false, "with --release: all placements")
	flags.StringVar(&f.config, "config", "", "configuration `FILE`")
	flags.StringVar(&f.checkConfig, "check-config", "", "check the configuration `FILE`, print all its errors, and exit; needs no root")
	flags.StringVar(&f.stateDir, "state-dir", adopt.DefaultStateDir, "`DIR` for the records of what was changed")
	flags.BoolVar(&f.logJSON, "log-json", false, "log as JSON lines")
	_ = cmd.MarkFlagDirname("state-dir")
	return cmd
}

func (f *adoptFlags) run(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("check-config") {
		return f.check(cmd)
	}
	f.weighted = cmd.Flags().Changed("weight")
	placing := len(f.cgroups)+len(f.containers) > 0 || f.weighted || f.once
	// As from a variable that is not set: the path of nothing would be the current directory.
	if slices.Contains(args, "") {
		return usageError{errors.New("MOUNTPOINT is empty: want a path, such as /srv/db1")}
	}
	switch {
	case !filepath.IsAbs(f.stateDir): // its guardian has another working directory
		return usageError{fmt.Errorf("--state-dir %q: want an absolute path, such as %s", f.stateDir, adopt.DefaultStateDir)}
	case f.json && !f.list:
		return usageError{errors.New("--json goes with --list")}
	case f.all && !f.release:
		return usageError{errors.New("--all goes with --release")}
	case f.list:
		if len(args) > 0 || placing || f.release || f.config != "" {
			return usageError{errors.New("--list goes with --json and --state-dir only")}
		}
		return f.printList(cmd.OutOrStdout())
	case os.Geteuid() != 0:
		return unsupportedError{errors.New("cannot move kernel threads: want root; try: sudo daybook adopt …")}
	case f.release:
		if placing || f.config != "" || (len(args) == 1) == f.all {
			return usageError{errors.New("--release wants either MOUNTPOINT or --all")}
		}
		return f.releaseNow(cmd, args)
	}
	entries, err := f.entries(cmd.Context(), args)
	if err != nil {
		return usageError{err}
	}
	return f.keep(cmd, entries)
}

// entries are those of the command line, or of the configuration.
func (f *adoptFlags) entries(ctx context.Context, args []string) ([]adopt.Entry, error) {
	if f.config != "" {
		if len(args) > 0 || len(f.cgroups)+len(f.containers) > 0 || f.weighted || f.once {
			return nil, errors.New("--config names mount points, cgroups and weights itself")
		}
		return readConfiguration(ctx, f.config, adopt.ReadConfig)
	}
	if len(args) == 0 {
		return nil, errors.New("which file system? name its mount point, such as daybook adopt /srv/db1 --container db1")
	}
	if len(f.cgroups)+len(f.containers) == 0 {
		return nil, errors.New("which container uses it? use --container NAME or --cgroup PATH")
	}
	if f.weighted && (f.weight < 1 || f.weight > adopt.MaxWeight) {
		return nil, fmt.Errorf("--weight %d: want 1 to %d", f.weight, adopt.MaxWeight)
	}
	if slices.Contains(f.containers, "") {
		return nil, errors.New("--container is empty: want the name or the ID of a container, as daybook top shows them")
	}
	for _, at := range f.cgroups {
		if err := adopt.CheckCgroup(at); err != nil {
			return nil, fmt.Errorf("--cgroup %w", err)
		}
	}
	point, err := filepath.Abs(args[0])
	return []adopt.Entry{{Mountpoint: point, Cgroups: f.cgroups, Containers: f.containers, Weight: f.weight, Once: f.once}}, err
}

func (f *adoptFlags) log(w io.Writer) *slog.Logger {
	if f.logJSON {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// keep places the journals, and keeps them unless --once is set.
func (f *adoptFlags) keep(cmd *cobra.Command, entries []adopt.Entry) error {
	// A hierarchy can still be mounted later; a part of one stays a part.
	if _, err := cgroup.FindOfProcesses(); errors.Is(err, cgroup.ErrPartial) {
		return explainAdopt(err)
	}
	ctx, log := cmd.Context(), f.log(cmd.ErrOrStderr())
	store, err := adopt.Open(f.stateDir)
	if err != nil {
		return err
	}
	outcomes, err := store.UndoAbandoned(ctx, false, log)
	for _, o := range outcomes {
		log.Info("undid what a killed adopt left", "mountpoint", o.Mountpoint, "cgroup", o.Cgroup)
	}
	if err != nil {
		log.Warn("not all that a killed adopt left could be undone", "why", err)
	}
	place := func() error { return f.place(cmd, store, entries, log) }
	if f.once {
		return place()
	}
	return adopt.Guarded(f.stateDir, log, place)
}

// place is keep after what killed keepers left was undone.
func (f *adoptFlags) place(cmd *cobra.Command, store adopt.Store, entries []adopt.Entry, log *slog.Logger) error {
	ctx, keeper := cmd.Context(), adopt.NewKeeper(store, log)
	watch := adopt.NewWatch(keeper, entries, log)
	placed := watch.Place(ctx)
	for _, s := range keeper.Status() {
		printAdopted(cmd.OutOrStdout(), s)
	}
	switch {
	case placed != nil && f.config == "":
		return errors.Join(explainAdopt(placed), keeper.Close(ctx))
	case placed != nil:
		log.Warn("not all are placed yet", "why", placed)
	case f.once:
		fmt.Fprintln(cmd.OutOrStdout(), "Nothing releases it before the cgroup is removed: run daybook adopt --release first.")
		return keeper.Close(ctx)
	}
	return watch.Run(ctx)
}

// explainAdopt sorts errors by their exit codes.
func explainAdopt(err error) error {
	switch {
	case errors.Is(err, adopt.ErrUnsupported), errors.Is(err, cgroup.ErrNoHierarchy), errors.Is(err, cgroup.ErrPartial):
		return unsupportedError{err}
	case errors.Is(err, adopt.ErrNotMounted), errors.Is(err, adopt.ErrNoContainer), errors.Is(err, adopt.ErrDeserted):
		return usageError{err}
	}
	return err
}

func printAdopted(w io.Writer, s adopt.Status) {
	if s.Neutral {
		fmt.Fprintf(w, "%s: several containers use it (%s), so its journal (process %d) is in a neutral cgroup: %s\n", safetext.Line(s.Mountpoint), safetext.Line(s.For), s.PID, safetext.Line(s.JournalCgroup))
	} else {
		fmt.Fprintf(w, "%s: its journal (process %d) is in %s\n", safetext.Line(s.Mountpoint), s.PID, safetext.Line(s.JournalCgroup))
	}
	if s.Weight != 0 {
		fmt.Fprintf(w, "  under the weight %d of %s\n", s.Weight, safetext.Line(s.Cgroup))
	}
}

func (f *adoptFlags) printList(w io.Writer) error {
	all, err := adopt.Existing(f.stateDir).List()
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return unsupportedError{fmt.Errorf("cannot read the records: want root; try: sudo daybook adopt --list: %w", err)}
	}
	if err != nil {
		return err
	}
	if f.json {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			Adopted []adopt.Status `json:"adopted"`
		}{all})
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "nothing is adopted")
		return nil
	}
	return printTable(w, all)
}

func printTable(w io.Writer, all []adopt.Status) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MOUNTPOINT\tDEVICE\tJOURNAL IN\tWEIGHT\tWRITTEN\tSTATE")
	for _, s := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%s\n", safetext.Line(s.Mountpoint), safetext.Line(s.Name), safetext.Line(s.JournalCgroup), s.Weight, s.JournalWriteBytes, safetext.Line(adoptState(s)))
	}
	return table.Flush()
}

func adoptState(s adopt.Status) string {
	var states []string
	switch {
	case s.Problem != "":
		states = append(states, s.Problem)
	case s.Abandoned:
		states = append(states, "left by a killed adopt: run daybook restore")
	case s.PID == 0:
		states = append(states, "not mounted")
	case !s.Placed:
		states = append(states, "misplaced")
	default:
		states = append(states, "placed")
	}
	if s.Neutral {
		states = append(states, "shared by "+s.For)
	}
	if s.Once {
		states = append(states, "once")
	}
	return strings.Join(states, "; ")
}

// How long a release waits for a keeper that is about to release itself, because the
// container has ended.
const (
	releasePatience = 2 * time.Second
	releasePause    = 20 * time.Millisecond
)

func (f *adoptFlags) releaseNow(cmd *cobra.Command, args []string) error {
	store := adopt.Existing(f.stateDir)
	all, err := store.List()
	if err != nil {
		return err
	}
	point := ""
	if len(args) == 1 {
		if point, err = filepath.Abs(args[0]); err != nil {
			return err
		}
		if resolved, err := filepath.EvalSymlinks(point); err == nil {
			point = resolved
		}
	}
	found := false
	var failures, damaged []error
	for _, s := range all {
		if s.Mountpoint == "" { // nobody knows of what it is
			damaged = append(damaged, errors.New(s.Problem))
		}
		if !f.all && s.Mountpoint != point {
			continue
		}
		found = true
		outcome, err := releaseSoon(cmd.Context(), store, s.Name, f.log(cmd.ErrOrStderr()))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: its journal has left %s\n", safetext.Line(s.Mountpoint), safetext.Line(outcome.Cgroup))
	}
	if !found && len(damaged) > 0 {
		return fmt.Errorf("cannot say whether %s is adopted: %w", point, errors.Join(damaged...))
	}
	if !found && !f.all {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is not adopted\n", safetext.Line(point))
	} else if !found {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing is adopted")
	}
	return errors.Join(failures...)
}

// releaseSoon releases a placement, or waits until its keeper does.
func releaseSoon(ctx context.Context, store adopt.Store, name string, log *slog.Logger) (adopt.Outcome, error) {
	before, err := store.Read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return adopt.Outcome{}, err
	}
	kept := adopt.Outcome{Name: name, Mountpoint: before.Mountpoint, Cgroup: before.Placed.Journal}
	for deadline := time.Now().Add(releasePatience); ; {
		outcome, err := store.Release(ctx, name, log)
		var held *filelock.HeldError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return kept, nil // its keeper has released it
		case !errors.As(err, &held):
			return outcome, err
		case time.Now().After(deadline):
			return outcome, fmt.Errorf("cannot release %s: process %d keeps it while its container runs; stop that process: kill %d", before.Mountpoint, held.PID, held.PID)
		}
		select {
		case <-ctx.Done():
			return outcome, context.Cause(ctx)
		case <-time.After(releasePause):
		}
	}
}

// check prints all that is wrong with a configuration.
func (f *adoptFlags) check(cmd *cobra.Command) error {
	return checkConfigFile(cmd, f.checkConfig, func(file io.Reader) (wrong, notes []configfile.Problem, err error) {
		_, err = adopt.ReadConfig(file, f.checkConfig)
		return nil, nil, err
	})
}
