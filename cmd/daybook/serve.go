package main

import (
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/serve/dockervolume"
	"github.com/daybook-project/daybook/volume"
)

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve volumes to container engines",
		Long: `Serve provides volumes to container engines. Each of their volumes is a Daybook volume
(see "daybook volume"), with its own journal and jbd2 thread.`,
		Example: `  daybook serve docker --pool /srv/pool --size 10G`,
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newServeDockerCommand())
	return cmd
}

func newServeDockerCommand() *cobra.Command {
	v := &volumeFlags{}
	options := dockervolume.Options{ParseBytes: parseBytes}
	var size byteSize
	var logJSON bool
	cmd := &cobra.Command{
		Use:   "docker",
		Short: "Run the volume plugin of Docker and Podman",
		Long: `Docker is a daemon, the volume plugin "daybook" of Docker and Podman. It attaches a
volume when its first container starts and detaches it when the last one has ended. The
jbd2 thread is in a slice in daybook-NAME.slice where systemd owns the cgroups (cgroup
v2), else in /daybook/NAME/journal. With --cgroup-parent daybook-NAME.slice, or
/daybook/NAME, the container is beside it, and the volume's weight applies to both.

Options of docker volume create -d daybook -o OPTION=VALUE:

  size=10G                 required, unless this daemon has --size
  weight=700               1 to 1000, of the parent cgroup
  provision=full           write the image once, at creation; default thin
  cgroup=SLICE|/PATH       another parent cgroup
  placement=none           leave the jbd2 thread where the kernel starts it
  mount-options=commit=30  mount options of ext4 or JFS
  device=/dev/vg0/db1      use this unused block device instead of an image
  backing=lvm              create a logical volume; with volume-group= and thin-pool=
  journal=memory[:SIZE]    in persistent memory; with journal-region= and fs=jfs
  dev=true, suid=true      enable device nodes, and set-user-ID bits
  noatime=true, uid=999, gid=999, mode=0750, block-size=4096
  label.KEY=VALUE          kept, and shown by daybook volume inspect

The socket is that of systemd (daybook-docker.socket) or --socket; its file name is the
name of the driver. The pool records which container uses which volume (docker.json), so
after a kill -9 the next daemon continues. Ctrl-C, SIGTERM or SIGHUP ends the daemon;
volumes in use stay attached. The daemon keeps the jbd2 threads in their cgroups, as
"daybook volume keep" does; one of the two is enough.

The pool is --pool, else the environment's DAYBOOK_POOL, else /var/lib/daybook/volumes.
It is created if it is missing. One daemon serves a pool.`,
		Example: `  sudo daybook serve docker --pool /srv/pool --size 10G
  docker volume create -d daybook -o size=20G -o weight=700 db1
  docker run -d -v db1:/var/lib/mysql --cgroup-parent daybook-db1.slice -e MARIADB_RANDOM_ROOT_PASSWORD=1 mariadb
  # On cgroup v1: --cgroup-parent /daybook/db1

  # A second pool is a driver of its own: -d fast
  sudo daybook serve docker --pool /nvme/pool --socket /run/docker/plugins/fast.sock --target-dir /run/daybook/fast`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, path := range []struct{ flag, value string }{{"--socket", options.Socket}, {"--target-dir", options.TargetDir}} {
				if !filepath.IsAbs(path.value) {
					return usageError{errors.New(path.flag + " wants an absolute path")}
				}
			}
			if options.SizeBytes = uint64(size); cmd.Flags().Changed("size") {
				if err := volume.CheckSize(options.SizeBytes); err != nil {
					return usageError{err}
				}
			}
			handler := &slog.HandlerOptions{Level: slog.LevelInfo}
			if v.verbose {
				handler.Level = slog.LevelDebug
			}
			v.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), handler))
			if logJSON {
				v.log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), handler))
			}
			options.Log = v.log
			pool, err := v.make(cmd, 0)
			if err != nil {
				return err
			}
			return explainVolume(dockervolume.Run(cmd.Context(), pool, options))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&v.pool, "pool", "", "`DIR` of the pool (default $"+poolVariable+", else /var/lib/daybook/volumes)")
	flags.StringVar(&v.stateDir, "state-dir", volume.DefaultStateDir, "`DIR` where known pools are noted, and where the default pool is")
	flags.StringVar(&options.Socket, "socket", dockervolume.DefaultSocket, "`FILE` to listen on; its name is the name of the driver")
	flags.StringVar(&options.TargetDir, "target-dir", dockervolume.DefaultTargetDir, "`DIR` where volumes are mounted")
	flags.Var(&size, "size", "size of volumes that are created without one, such as 10G (default: they are refused)")
	flags.Lookup("size").DefValue = ""
	flags.BoolVar(&logJSON, "log-json", false, "log as JSON lines")
	flags.BoolVarP(&v.verbose, "verbose", "v", false, "log more")
	_ = cmd.MarkFlagDirname("pool")
	_ = cmd.MarkFlagDirname("state-dir")
	_ = cmd.MarkFlagDirname("target-dir")
	_ = cmd.RegisterFlagCompletionFunc("size", cobra.NoFileCompletions)
	return cmd
}
