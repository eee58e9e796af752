package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/safetext"
	"github.com/daybook-project/daybook/volume"
)

// poolVariable names the pool where --pool does not.
const poolVariable = "DAYBOOK_POOL"

// volumeFlags are those of all volume commands.
type volumeFlags struct {
	pool, stateDir string
	verbose        bool
	// log, if set, is used instead of one to standard error.
	log *slog.Logger
}

func newVolumeCommand() *cobra.Command {
	f := &volumeFlags{}
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "Give containers file systems with journals of their own",
		Long: `Volume gives a container, such as a database, its own ext4, and so its own journal and
jbd2 thread. Its fsync no longer waits for the neighbours' data, and the journal's I/O
is charged to a cgroup under the container's weight.

A volume is a block device, such as a logical volume, or an image file in a pool, which
is a directory on a disk. An attached image is under a loop device with direct I/O. The
jbd2 thread of an attached volume is in a slice in daybook-NAME.slice where systemd owns
the cgroups (cgroup v2), else in the cgroup /daybook/NAME/journal. Start the container
beside it: docker run --cgroup-parent daybook-NAME.slice, or /daybook/NAME. A "-" in NAME
is \x2d in the slice's name; attach prints the name.

The pool is --pool, else the environment's DAYBOOK_POOL, else the one that has NAME
among the pools that create and attach have noted in /var/lib/daybook/pools, else
/var/lib/daybook/volumes.

"daybook volume repair" finishes or rolls back what a killed command left. NAME is 1
to 128 of a-z, A-Z, 0-9, "_", "." and "-".`,
		Example: `  # A database on its own journal
  daybook volume create db1 --backing lvm --volume-group vg0 --size 20G --weight 700
  daybook volume attach db1 --target /srv/db1 --persist
  docker run -d --cgroup-parent daybook-db1.slice -v /srv/db1:/var/lib/mysql -e MARIADB_RANDOM_ROOT_PASSWORD=1 mariadb
  daybook volume inspect db1

  # Keep the jbd2 threads in their cgroups
  daybook volume keep`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.pool, "pool", "", "`DIR` of the pool (default $"+poolVariable+", else the known pool that has NAME)")
	flags.StringVar(&f.stateDir, "state-dir", volume.DefaultStateDir, "`DIR` where known pools are noted, and where the default pool is")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "report each step on standard error")
	_ = cmd.MarkPersistentFlagDirname("pool")
	_ = cmd.MarkPersistentFlagDirname("state-dir")
	cmd.AddCommand(
		newVolumeCreateCommand(f), newVolumeDeleteCommand(f), newVolumeListCommand(f), newVolumeInspectCommand(f),
		newVolumeAttachCommand(f), newVolumeDetachCommand(f), newVolumeKeepCommand(f),
		newVolumeSnapshotCommand(f), newVolumeCloneCommand(f), newVolumeResizeCommand(f), newVolumeTrimCommand(f), newVolumeJournalCommand(f),
		newVolumeSendCommand(f), newVolumeReceiveCommand(f),
		newVolumeCheckCommand(f), newVolumeRepairCommand(f), newVolumePoolCommand(f),
	)
	return cmd
}

func (f *volumeFlags) registry() volume.Registry { return volume.Registry{StateDir: f.stateDir} }

// options are those with which pools are opened.
func (f *volumeFlags) options(cmd *cobra.Command) volume.PoolOptions {
	log := f.log
	if log == nil {
		options := &slog.HandlerOptions{Level: slog.LevelWarn}
		if f.verbose {
			options.Level = slog.LevelDebug
		}
		log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options))
	}
	return volume.PoolOptions{Uncorrected: control.HostOriginals().Weight, Log: log}
}

// check checks the common flags, and whether this process may work on pools.
func (f *volumeFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("pool") && f.pool == "" {
		return usageError{errors.New("--pool is empty: name a directory, or leave it out")}
	}
	if !filepath.IsAbs(f.stateDir) {
		return usageError{fmt.Errorf("--state-dir is %q; want an absolute path", f.stateDir)}
	}
	if os.Geteuid() != 0 {
		return unsupportedError{fmt.Errorf("volumes require root, for loop devices, mounts and cgroups; try: sudo %s …", cmd.CommandPath())}
	}
	return nil
}

// named is the pool that the user named, "" if none.
func (f *volumeFlags) named() string {
	if f.pool != "" {
		return f.pool
	}
	return os.Getenv(poolVariable)
}

// find opens the pool of an existing volume.
func (f *volumeFlags) find(cmd *cobra.Command, name string) (*volume.Pool, error) {
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	if dir := f.named(); dir != "" {
		pool, err := volume.Open(cmd.Context(), dir, f.options(cmd))
		return pool, explainVolume(err)
	}
	pool, err := f.registry().Find(cmd.Context(), name, f.options(cmd))
	return pool, explainVolume(err)
}

// inspect opens the pool of an existing volume, and inspects the volume.
func (f *volumeFlags) inspect(cmd *cobra.Command, name string) (*volume.Pool, volume.Status, error) {
	pool, err := f.find(cmd, name)
	if err != nil {
		return nil, volume.Status{}, err
	}
	status, err := pool.Inspect(cmd.Context(), name)
	return pool, status, explainVolume(err)
}

// make opens the pool for a new volume, and makes it if it is missing.
func (f *volumeFlags) make(cmd *cobra.Command, quotaBytes uint64) (*volume.Pool, error) {
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	dir := f.named()
	if dir == "" {
		dir = f.registry().DefaultPool()
	}
	options := f.options(cmd)
	options.Create, options.QuotaBytes = true, quotaBytes
	pool, err := volume.Open(cmd.Context(), dir, options)
	if err != nil {
		return nil, explainVolume(err)
	}
	f.note(cmd, pool)
	return pool, nil
}

// note enters a pool in the registry. If that fails, it only prints a warning.
func (f *volumeFlags) note(cmd *cobra.Command, pool *volume.Pool) {
	if err := f.registry().Note(cmd.Context(), pool); err != nil {
		f.warnNotNoted(cmd, err)
	}
}

func (f *volumeFlags) warnNotNoted(cmd *cobra.Command, err error) {
	fmt.Fprintf(cmd.ErrOrStderr(), "daybook: %s; commands on its volumes need --pool\n", safetext.Lines(err.Error()))
}

// all opens the named pool, or all known pools. If some cannot be opened, it returns the
// others with an error.
func (f *volumeFlags) all(cmd *cobra.Command) ([]*volume.Pool, error) {
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	if dir := f.named(); dir != "" {
		pool, err := volume.Open(cmd.Context(), dir, f.options(cmd))
		if err != nil {
			return nil, explainVolume(err)
		}
		return []*volume.Pool{pool}, nil
	}
	pools, err := f.registry().Pools(cmd.Context(), f.options(cmd))
	return pools, explainVolume(err)
}

// volumeNames requires one valid name for each word.
func volumeNames(words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(words) {
			return usageError{fmt.Errorf("want %s, got %d arguments; see %s --help", cmd.UseLine(), len(args), cmd.CommandPath())}
		}
		var errs []error
		for i, name := range args {
			if err := volume.CheckName(name); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", words[i], err))
			}
		}
		return explainVolume(errors.Join(errs...))
	}
}

// explainVolume gives the package's errors the exit codes of the command line.
func explainVolume(err error) error {
	var usage usageError
	var unsupported unsupportedError
	switch {
	case err == nil, errors.As(err, &usage), errors.As(err, &unsupported):
		return err
	case errors.Is(err, volume.ErrInvalid), errors.Is(err, volume.ErrExists), errors.Is(err, volume.ErrNotFound):
		return usageError{err}
	case errors.Is(err, volume.ErrUnsupported):
		return unsupportedError{err}
	}
	return err
}

// printVolumeJSON writes one JSON object. Control characters are escaped, because labels,
// paths and cgroups may contain any.
func printVolumeJSON(w io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(account.AppendPrintable(nil, append(text, '\n')))
	return err
}

func addJSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print one JSON object")
}
