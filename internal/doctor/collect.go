package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume"
)

// Options say what to look at.
type Options struct {
	// Devices are disks in any form that blockdev.Lookup takes; none is every disk
	// that carries a mounted file system.
	Devices []string
}

// collector gathers facts; what it cannot see it notes.
type collector struct {
	ctx   context.Context
	facts Facts
	tree  *cgroup.Tree // nil where no hierarchy carries block I/O, or only a part of it is visible
}

// Collect looks at the host. It writes nothing. The error is about the options: what
// cannot be looked at is in Facts.Unseen.
func Collect(ctx context.Context, o Options) (Facts, error) {
	c := &collector{ctx: ctx}
	c.kernel()
	c.privileges()
	c.cgroups()
	_, err := os.Stat("/run/systemd/system") // sd_booted(3)
	c.facts.Systemd = err == nil
	if err := c.storage(o.Devices); err != nil {
		return Facts{}, err
	}
	if len(o.Devices) == 0 {
		c.facts.Regions = volume.Regions()
	}
	c.containers()
	c.tools()
	return c.facts.withoutNulls(), ctx.Err()
}

// unseen notes what could not be looked at. A thing that is not there is no such thing.
func (c *collector) unseen(what string, err error) {
	if text := fmt.Sprintf("%s: %v", what, err); !slices.Contains(c.facts.Unseen, text) {
		c.facts.Unseen = append(c.facts.Unseen, text)
	}
}

func (c *collector) kernel() {
	k := &c.facts.Kernel
	k.Release = kernel.Release()
	k.BFQ = bfqModule(k.Release)
	k.ModuleWithoutBTF = journal.ModuleWithoutTypes()
	points, err := journal.Tracepoints()
	k.BTF = err == nil
	if err != nil {
		if _, statErr := os.Stat("/sys/kernel/btf/vmlinux"); statErr == nil {
			k.BTF = true
			c.unseen("tracepoints", err)
		}
		return
	}
	for _, point := range points {
		switch {
		case point.Present:
			k.Tracepoints = append(k.Tracepoints, point.Name)
		case point.Required:
			k.MissingRequired = append(k.MissingRequired, point.Name)
		default:
			k.MissingOptional = append(k.MissingOptional, point.Name)
		}
	}
}

// bfqModule tells where BFQ comes from, by the lists that depmod writes.
func bfqModule(release string) string {
	dir := filepath.Join("/lib/modules", release)
	found := "unknown"
	for _, list := range []struct{ file, answer string }{{"modules.builtin", "built-in"}, {"modules.dep", "module"}} {
		text, err := os.ReadFile(filepath.Join(dir, list.file))
		if err != nil {
			continue
		}
		found = "absent"
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			if strings.HasPrefix(path.Base(name), "bfq.ko") {
				return list.answer
			}
		}
	}
	return found
}

// capabilities are those that the units in deploy/systemd keep: those that nothing works without,
// and then partCapabilities.
var capabilities = []struct {
	name   string
	number uint
}{
	{"CAP_DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
	{"CAP_PERFMON", unix.CAP_PERFMON}, {"CAP_BPF", unix.CAP_BPF},
	{"CAP_SYS_RESOURCE", unix.CAP_SYS_RESOURCE}, {"CAP_LINUX_IMMUTABLE", unix.CAP_LINUX_IMMUTABLE},
	{"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"CAP_FOWNER", unix.CAP_FOWNER},
	{"CAP_SYS_NICE", unix.CAP_SYS_NICE}, {"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE},
	{"CAP_SYSLOG", unix.CAP_SYSLOG},
}

func (c *collector) privileges() {
	p := &c.facts.Privileges
	p.Root = os.Geteuid() == 0
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		c.unseen("capabilities", err)
		return
	}
	for _, capability := range capabilities {
		if data[capability.number/32].Effective&(1<<(capability.number%32)) == 0 {
			p.MissingCapabilities = append(p.MissingCapabilities, capability.name)
		}
	}
}

func (c *collector) cgroups() {
	g := &c.facts.Cgroups
	layout, err := cgroup.Mounted()
	if err != nil {
		c.unseen("cgroup mounts", err)
	}
	g.Hybrid = len(layout.V1) > 0 && len(layout.V2) > 0
	tree, err := cgroup.FindOfHost()
	g.Partial = errors.Is(err, cgroup.ErrPartial)
	if err != nil {
		if !g.Partial && !errors.Is(err, cgroup.ErrNoHierarchy) {
			c.unseen("cgroups", err)
		}
		return
	}
	c.tree = tree
	g.Version, g.Root = tree.Version().String(), tree.Root()
	if tree.Version() == cgroup.V1 {
		g.Controllers = layout.V1
		return
	}
	if g.Controllers, err = tree.Controllers(cgroup.RootPath); err != nil {
		c.unseen("controllers", err)
	}
	if g.Enabled, err = tree.Enabled(cgroup.RootPath); err != nil {
		c.unseen("enabled controllers", err)
	}
}

// containers finds who made the cgroups, and the runtimes.
func (c *collector) containers() {
	if c.tree == nil {
		c.runtimes(nil)
		return
	}
	list, err := c.tree.List(c.ctx)
	if err != nil {
		c.unseen("list of cgroups", err)
	}
	resolver := container.NewResolver(container.Config{})
	var running []container.Identity
	var plain []string
	for _, group := range list {
		identity := resolver.Resolve(group.Path)
		switch {
		case group.Path == cgroup.RootPath:
		case identity.IsContainer() && identity.Root == group.Path:
			running = append(running, identity)
			c.checkIO(group.Path)
		case identity.IsContainer():
		default:
			plain = append(plain, group.Path)
		}
	}
	c.facts.Owners = owners(running, plain, c.facts.Systemd)
	c.runtimes(running)
}

// checkIO notes a container that has no files of the I/O controller.
func (c *collector) checkIO(at string) {
	above := path.Dir(at)
	enabled, err := c.tree.IOEnabled(above)
	if err == nil && !enabled {
		c.facts.Cgroups.WithoutIO++
		c.facts.Cgroups.WithoutIOExample = above
	}
}

// runtimes lists those that run containers, or whose program is there, and asks a
// Docker that runs.
func (c *collector) runtimes(running []container.Identity) {
	byName := map[string]*Runtime{}
	of := func(name string) *Runtime {
		if byName[name] == nil {
			byName[name] = &Runtime{Name: name}
		}
		return byName[name]
	}
	for _, identity := range running {
		r := of(identity.Runtime)
		r.Containers++
		r.Driver = driverOf(identity.Root)
	}
	if dockerRuns(dockerPID, "/proc") {
		r := of(container.Docker)
		switch docker, err := askDocker(c.ctx); {
		case err == nil:
			r.Version, r.Driver = docker.ServerVersion, docker.CgroupDriver
		case !errors.Is(err, fs.ErrNotExist):
			c.unseen("Docker", err)
		}
	}
	for name, program := range map[string]string{container.Docker: "dockerd", container.Podman: "podman", container.Containerd: "containerd", container.CRIO: "crio", container.LXC: "lxc-start"} {
		if _, err := exec.LookPath(program); err == nil {
			of(name)
		}
	}
	for _, r := range byName {
		c.facts.Runtimes = append(c.facts.Runtimes, *r)
	}
	slices.SortFunc(c.facts.Runtimes, func(a, b Runtime) int { return strings.Compare(a.Name, b.Name) })
}

// e2fsprogs are the tools that package ext4 runs.
var e2fsprogs = []string{"mke2fs", "e2fsck", "resize2fs", "tune2fs", "debugfs", "e2undo"}

func (c *collector) tools() {
	for _, tool := range e2fsprogs {
		if _, err := exec.LookPath(tool); err != nil {
			c.facts.Tools.Missing = append(c.facts.Tools.Missing, tool)
		}
	}
	groups, err := volumeGroups(c.ctx)
	if err != nil {
		c.unseen("volume groups of LVM", err)
	}
	c.facts.Tools.VolumeGroups = groups
	if c.facts.Tools.ThinPools, err = thinPools(c.ctx); err != nil {
		c.unseen("thin pools of LVM", err)
	}
}

// withoutNulls makes lists that are empty empty in JSON too.
func (f Facts) withoutNulls() Facts {
	empty := func(lists ...*[]string) {
		for _, list := range lists {
			if *list == nil {
				*list = []string{}
			}
		}
	}
	empty(&f.Unseen, &f.Kernel.Tracepoints, &f.Kernel.MissingRequired, &f.Kernel.MissingOptional, &f.Privileges.MissingCapabilities,
		&f.Cgroups.Controllers, &f.Cgroups.Enabled, &f.Tools.Missing)
	f.Owners, f.Disks, f.Filesystems = append([]Owner{}, f.Owners...), append([]Disk{}, f.Disks...), append([]Filesystem{}, f.Filesystems...)
	f.Runtimes, f.Tools.VolumeGroups = append([]Runtime{}, f.Runtimes...), append([]VolumeGroup{}, f.Tools.VolumeGroups...)
	for n := range f.Disks {
		d := &f.Disks[n]
		empty(&d.Available, &d.Warnings)
		d.Weak = append([]WeakTunable{}, d.Weak...)
	}
	for n := range f.Filesystems {
		fs := &f.Filesystems[n]
		empty(&fs.Mounts, &fs.Layers, &fs.Disks)
	}
	for n := range f.Tools.VolumeGroups {
		empty(&f.Tools.VolumeGroups[n].Disks)
	}
	return f
}

// Architecture is this program's, for the report.
const Architecture = runtime.GOARCH
