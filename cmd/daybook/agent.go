package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/agent"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/serve"
)

// accountInterval is the length of the agent's samples.
const accountInterval = 5 * time.Second

func newAgentCommand() *cobra.Command {
	var config, checkConfig string
	var logJSON bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Keep the journals of Kubernetes volumes under the weights of their pods",
		Long: `Agent runs on each node of a Kubernetes cluster. It finds the ext4 volumes of pods
(local volumes, and those that CSI drivers mount), and moves the kernel thread of each
volume's journal to a child of the pod's cgroup. The kernel then charges the journal to
the pod, under its weight. It releases the thread when the pod's sandbox has ended, before
the kubelet removes the cgroup. If the agent is killed, its guardian releases all, so that
pods can end.

A volume that several pods of the node use has its journal in a neutral cgroup below
/daybook, with the largest weight of those pods.

The names of pods come from the container runtime (CRI). Metrics have the labels
namespace, pod and volume. With "account: true", there are the metrics of each container,
as in "daybook metrics". With a section "control:", the agent corrects weights, as
"daybook control" does, on those of the disks that the node has.

With "api_server: true", the agent also reads the annotation daybook.io/io-weight of
storage classes, and the label daybook.io/io-weight=allowed of namespaces whose pods may
set it. By default it asks no API server.

The configuration is YAML; all keys are optional:

  kubelet_dir: /var/lib/kubelet
  cri_socket: /run/containerd/containerd.sock   # default: that of the pods; none
  cgroup_root: /             # the kubelet's --cgroup-root
  state_dir: /var/lib/daybook
  placement: pod             # neutral: never in a pod's cgroup; none: only observe
  interval: 1s               # 200ms to 30s
  metrics: 127.0.0.1:9435    # "*:9435": all addresses, IPv4 and IPv6; "": none
  account: true              # BPF; false: placement only
  waits: false               # true: also who waits for journals, as in daybook blame
  api_server: false          # true: ask it for labels and storage classes
  namespaces: [team-*]       # whose pods may set the annotation daybook.io/io-weight
  weights:                   # of pods that have volumes; default: unchanged
    guaranteed: 300
    burstable: 100
    besteffort: 20
  control:                   # as in "daybook control --help"; default: none
    devices: [sda]`,
		Example: `  daybook agent --config /etc/daybook/agent.yaml
  daybook agent --check-config /etc/daybook/agent.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("check-config") {
				return checkConfigFile(cmd, checkConfig, func(file io.Reader) (wrong, notes []configfile.Problem, err error) {
					_, err = agent.ReadConfig(file, checkConfig)
					return nil, nil, err
				})
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if logJSON {
				log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			}
			return runAgent(cmd.Context(), config, log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&config, "config", "", "configuration `FILE` (default: all defaults)")
	flags.StringVar(&checkConfig, "check-config", "", "check the configuration `FILE`, print all its errors, and exit; needs no root")
	flags.BoolVar(&logJSON, "log-json", false, "log as JSON lines")
	return cmd
}

func readAgentConfig(ctx context.Context, path string) (agent.Config, error) {
	if path == "" {
		return agent.DefaultConfig(), nil
	}
	return readConfiguration(ctx, path, agent.ReadConfig)
}

// runAgent runs the placement and the account or the control until one fails or ctx ends.
func runAgent(ctx context.Context, path string, log *slog.Logger) (err error) {
	config, err := readAgentConfig(ctx, path)
	if err != nil {
		return usageError{err}
	}
	a, err := agent.New(config, log)
	if errors.Is(err, agent.ErrUnsupported) || errors.Is(err, cgroup.ErrNoHierarchy) {
		return unsupportedError{err}
	}
	if err != nil {
		return err
	}
	o := &observers{}
	if config.Account {
		o.metrics = serve.NewMetrics(serve.DefaultMaxContainers)
	}
	if config.Metrics != "" {
		pools := poolFlags{}
		if o.server, err = serve.Start(config.Metrics, buildVersion(), log, o.metrics, a, pools.collector()); err != nil {
			return err
		}
		log.Info("serving metrics", "address", o.server.Addr().String())
	}
	defer func() { err = errors.Join(err, o.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	parts := []func(context.Context) error{a.Run}
	if config.Account {
		parts = append(parts, newNodeObserver(config, a, o, log).run)
	}
	for _, part := range parts {
		go func() {
			ended <- part(ctx)
			cancel() // the other part ends, too
		}()
	}
	for range parts {
		if part := <-ended; !errors.Is(part, context.Canceled) {
			err = errors.Join(err, part)
		}
	}
	return err
}

// nodeObserver takes samples on a node, and corrects weights, as far as the node allows it.
type nodeObserver struct {
	config    agent.Config
	agent     *agent.Agent
	observers *observers
	log       *slog.Logger
	disks     *diskWatch
	// failed says whether the last attempt to attribute failed; why is the class of its error, and
	// said when the log got one.
	failed bool
	why    error
	said   time.Time
	// pause is until the next attempt; firstPause is after the first one.
	pause, firstPause time.Duration
	openSource        func(context.Context, sourceOptions) (account.Source, error)
}

func newNodeObserver(config agent.Config, a *agent.Agent, o *observers, log *slog.Logger) *nodeObserver {
	return &nodeObserver{
		config: config, agent: a, observers: o, log: log, firstPause: absentPause, openSource: openSource,
		disks: &diskWatch{observers: o, log: log, pause: absentPause},
	}
}

// maxAttributePause is the longest time between two attempts to load BPF programs. One takes the
// processor for some tenths of a second.
const maxAttributePause = 10 * time.Minute

// run observes the node, and looks again for what it lacks, until ctx ends or it fails.
func (n *nodeObserver) run(ctx context.Context) error {
	for {
		if err := n.observe(ctx); !errors.Is(err, errLookAgain) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// observe takes samples. It corrects weights on those disks of the configuration that the node
// has: one configuration is for all nodes. If the node loads no BPF programs, it says so and takes
// none: one configuration is for nodes of several kernels, and journals are placed on all.
func (n *nodeObserver) observe(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var err error
	var controlled control.Config
	if n.config.Control != nil {
		controlled = *n.config.Control
		controlled.Devices = n.disks.look(ctx, cancel, controlled.Devices)
	}
	loaded := journal.LoadedModules()
	if len(controlled.Devices) > 0 {
		if err = n.tryAgain(ctx); err == nil {
			err = n.control(ctx, controlled)
		}
		if errors.Is(err, blockdev.ErrGone) {
			n.log.Error("the disks to control are gone; journals are placed nevertheless", "error", err)
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(n.disks.pause):
				err = errLookAgain
			}
		}
	} else {
		err = n.onlyObserve(ctx)
	}
	var unattributed unattributedError
	if errors.As(err, &unattributed) {
		n.fails(err)
		if err = hostModules.await(ctx, loaded, time.After(n.pause)); err == nil {
			return errLookAgain
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errLookAgain) && (err == nil || errors.Is(err, context.Canceled)) {
		return cause
	}
	return err
}

// tryAgain loads the BPF programs after they could not be loaded, and unloads them: control changes
// weights before it opens its source.
func (n *nodeObserver) tryAgain(ctx context.Context) error {
	if !n.failed {
		return nil
	}
	source, err := n.load(ctx, sourceOptions{Interval: accountInterval})
	if err != nil {
		return err
	}
	if err := source.Close(); err != nil {
		n.log.Warn("the meter did not end well", "error", err)
	}
	return nil
}

// fails logs why nothing is attributed, and lengthens the pause. The log gets the first of several
// failures, and then one of another class, or one in an hour: texts differ without need.
func (n *nodeObserver) fails(why error) {
	n.observers.metrics.ExpectNone()
	n.pause = min(2*n.pause, maxAttributePause)
	if !n.failed {
		n.pause = n.firstPause
	}
	class := failureClass(why)
	if !n.failed || class != n.why || time.Since(n.said) > failureLogPause {
		n.said = time.Now()
		n.log.Warn("this node cannot attribute I/O to containers; journals are placed nevertheless, and no disk is controlled; it tries again", "why", why)
	}
	n.failed, n.why = true, class
}

// failureLogPause is between two failures of one class in the log.
const failureLogPause = time.Hour

// failureClass is the first of the errors that why wraps; nil if it wraps none.
func failureClass(why error) error {
	for _, class := range []error{journal.ErrNotLoaded, journal.ErrUnsupported, cgroup.ErrNoHierarchy, cgroup.ErrPartial} {
		if errors.Is(why, class) {
			return class
		}
	}
	return nil
}

// attributes logs that what failed before works now.
func (n *nodeObserver) attributes() {
	if n.failed {
		n.log.Info("this node attributes I/O to containers now")
	}
	n.failed = false
}

// unattributedError is why the node attributes no I/O to containers.
type unattributedError struct{ error }

func (e unattributedError) Unwrap() error { return e.error }

// open starts a meter whose samples the observers get. Errors are those of load.
func (n *nodeObserver) open(ctx context.Context, options sourceOptions) (account.Source, error) {
	n.observers.expect(options.Interval)
	source, err := n.load(ctx, options)
	n.agent.SetAttributing(err == nil)
	if err != nil {
		return nil, err
	}
	n.attributes()
	return observedSource{source, n.observers}, nil
}

// load starts a meter. The error is an unattributedError unless a disk is gone or ctx ends, whose
// error it then is: what the node lacks, such as memory, may come.
func (n *nodeObserver) load(ctx context.Context, options sourceOptions) (account.Source, error) {
	options.Estimator, options.Naming, options.Waits, options.Log = "handles", n.agent, n.config.Waits, n.log
	source, err := n.openSource(ctx, options)
	switch {
	case err == nil:
		return source, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, blockdev.ErrGone):
		return nil, err
	}
	return nil, unattributedError{err}
}

// onlyObserve takes samples of all disks.
func (n *nodeObserver) onlyObserve(ctx context.Context) error {
	source, err := n.open(ctx, sourceOptions{Interval: accountInterval})
	if err != nil {
		return err
	}
	for {
		_, err := source.Next(ctx)
		if errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			continue
		}
		return errors.Join(err, source.Close())
	}
}

// control is daybook control with the names of pods. Its locks refuse a disk that
// another process controls.
func (n *nodeObserver) control(ctx context.Context, config control.Config) error {
	disks, err := openControlled(config)
	if err != nil {
		return err
	}
	var promises livePromises
	return control.Run(ctx, control.Options{
		Disks: disks, RunDir: control.DefaultRunDir, Config: config, OpenHost: openStateHost, Log: n.log, OnIdeals: promises.set, OnEnd: promises.end,
		Name: func(path string) string {
			top, name, _ := n.agent.Identify(path)
			if top != path {
				return ""
			}
			return name
		},
		OpenSource: func(devices []string, interval time.Duration) (account.Source, error) {
			return n.open(ctx, sourceOptions{Devices: devices, Promises: promises.of, Interval: interval,
				Ideal: func(path, name string) (uint64, bool) {
					weight, matched := config.Ideal(path, name)
					return weight, matched && weight > 0
				}})
		},
	})
}
