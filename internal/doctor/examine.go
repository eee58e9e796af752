package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/safetext"
)

// Examine says what of Daybook works on a host with these facts, in the order in which
// a person would look: the host, the disks, the file systems, the runtimes.
func Examine(f Facts) []Finding {
	var found []Finding
	found = append(found, examinePrivileges(f)...)
	found = append(found, examineKernel(f.Kernel)...)
	found = append(found, examineCgroups(f)...)
	for _, disk := range f.Disks {
		if carries(f, disk) {
			found = append(found, examineDisk(f, disk)...)
		}
	}
	found = append(found, examineFilesystems(f)...)
	found = append(found, examineRegions(f.Regions)...)
	found = append(found, examineThinPools(f.Tools.ThinPools)...)
	found = append(found, examineOwners(f)...)
	found = append(found, examineRuntimes(f.Runtimes)...)
	return append(found, examineTools(f.Tools)...)
}

// carries: a file system whose shares control can enforce, or a journal, is on the disk; or it
// was asked for. Of a file system on several disks control corrects the weights on each,
// unless a layer writes copies there.
func carries(f Facts, d Disk) bool {
	return d.Asked || slices.ContainsFunc(f.Filesystems, func(fs Filesystem) bool {
		return slices.Contains(fs.Disks, d.Name) && (len(fs.Disks) == 1 || fs.Copies == "") || fs.JournalDisk == d.Name
	})
}

// partCapabilities are those that only a part of Daybook needs, and what does not work
// without each.
var partCapabilities = map[string]string{
	"CAP_SYS_RESOURCE":    "an attached volume cannot grow: detach it first",
	"CAP_LINUX_IMMUTABLE": "the mount points of persistent volumes are not protected",
	"CAP_FOWNER":          "the mount points of persistent volumes that other users own are not protected",
	"CAP_DAC_OVERRIDE":    "no cgroup can be made in the root cgroup, and those of other users cannot be changed",
	"CAP_SYS_NICE":        "Linux 6.1 does not move journals of volumes and of adopt",
	"CAP_SYSLOG":          "the kernel hides the addresses of its functions, so attribution costs more, and that of data=journal is worse before Linux 6.8",
	"CAP_SYS_PTRACE":      "adopt does not see which other containers use a file system",
}

func examinePrivileges(f Facts) []Finding {
	var found []Finding
	var lacking, limits []string
	for _, name := range f.Privileges.MissingCapabilities {
		if limit, ofPart := partCapabilities[name]; ofPart {
			limits = append(limits, "without "+name+", "+limit)
		} else {
			lacking = append(lacking, name)
		}
	}
	switch {
	case !f.Privileges.Root:
		found = append(found, missing("privileges", "", "this process is not root",
			"top and control load BPF programs and write to cgroups, and parts of this report need root", "sudo daybook doctor"))
	case len(lacking) > 0:
		found = append(found, missing("privileges", "", "root lacks "+strings.Join(lacking, ", "),
			"BPF programs cannot be loaded; in a container this is the usual case: Daybook runs on the host", ""))
	case len(limits) > 0:
		found = append(found, note("privileges", "", "root lacks a capability that a part of Daybook needs", strings.Join(limits, "; "), ""))
	default:
		found = append(found, ok("privileges", "", "root with all capabilities that Daybook needs"))
	}
	for _, what := range f.Unseen {
		found = append(found, note("unseen", "", "not looked at: "+what, "", ""))
	}
	return found
}

// oldestKernel is the first that the programs load on (docs/kernels.md).
var oldestKernel = [2]int{5, 10}

func examineKernel(k Kernel) []Finding {
	var found []Finding
	if release, known := parseRelease(k.Release); known && slices.Compare(release[:], oldestKernel[:]) < 0 {
		found = append(found, missing("kernel", "", "Linux "+k.Release, fmt.Sprintf("BPF programs need Linux %d.%d or newer", oldestKernel[0], oldestKernel[1]), ""))
	}
	if !k.BTF {
		return append(found, missing("btf", "", "Linux "+k.Release+" has no BTF (/sys/kernel/btf/vmlinux)",
			"BPF programs read the kernel's types; install a kernel with CONFIG_DEBUG_INFO_BTF=y, such as that of Debian 12, RHEL 9, Ubuntu 22.04 or newer", ""))
	}
	if k.ModuleWithoutBTF != "" {
		// Its tracepoints are missing for that reason; modprobe, below, would not help.
		return append(found, missing("btf", "", "the module "+k.ModuleWithoutBTF+" has no BTF (/sys/kernel/btf/"+k.ModuleWithoutBTF+")",
			"no journal is attributed; BTF of modules needs Linux 5.11 or newer, built with CONFIG_DEBUG_INFO_BTF_MODULES=y, such as Debian 12's", ""))
	}
	all := len(k.Tracepoints) + len(k.MissingOptional) + len(k.MissingRequired)
	if len(found) == 0 && all > 0 {
		found = append(found, ok("kernel", "", "Linux %s with BTF and %d of %d tracepoints", k.Release, len(k.Tracepoints), all))
	}
	if len(k.MissingRequired) > 0 {
		found = append(found, missing("tracepoints", "", "no tracepoint "+strings.Join(k.MissingRequired, ", "),
			"without it no journal is attributed; ext4 is not loaded yet, or has no BTF", "modprobe ext4"))
	}
	if len(k.MissingOptional) > 0 {
		found = append(found, note("tracepoints", "", "optional tracepoints are missing: "+strings.Join(k.MissingOptional, ", "),
			"the account is coarser (docs/limits.md), not wrong", ""))
	}
	return found
}

// parseRelease reads "6.1.0-18-amd64".
func parseRelease(release string) (version [2]int, known bool) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return version, false
	}
	for n := range version {
		digits := parts[n]
		if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			digits = digits[:end]
		}
		value, err := strconv.Atoi(digits)
		if err != nil {
			return version, false
		}
		version[n] = value
	}
	return version, true
}

func examineCgroups(f Facts) []Finding {
	g := f.Cgroups
	if g.Partial {
		return []Finding{missing("cgroup", "", cgroup.ErrPartial.Error(), cgroup.AdvicePartial, "")}
	}
	if g.Version == "" {
		return []Finding{missing("cgroup", "", "no cgroup hierarchy carries block I/O",
			"there is nothing to read counters from, or to write weights to", "mount -t cgroup2 none /sys/fs/cgroup")}
	}
	var found []Finding
	if g.Version == "v2" {
		for _, controller := range []struct{ name, why string }{
			{"io", "no container has counters of I/O, weights or limits"},
			{"memory", "the kernel charges writeback to the root cgroup, because it finds an inode's cgroup by its memory"},
		} {
			switch {
			case slices.Contains(g.Enabled, controller.name):
			case !slices.Contains(g.Controllers, controller.name):
				found = append(found, missing("controllers", "", "cgroup v2 has no "+controller.name+" controller", controller.why+
					"; the kernel lacks it, or a v1 hierarchy has it", ""))
			default:
				found = append(found, missing("controllers", "", "the "+controller.name+" controller is not enabled below the root cgroup",
					controller.why, fmt.Sprintf("echo +%s > %s", controller.name, safetext.Word(g.Root+"/cgroup.subtree_control"))))
			}
		}
	}
	if g.WithoutIO > 0 {
		why, command := "they have no counters of I/O, weights or limits", enableIO(g)
		if strings.Contains(g.WithoutIOExample, "/user@") {
			// A user's manager is started anew at each login.
			why, command = why+"; let systemd delegate io to the managers of users (docs/rootless.md)", ""
		}
		found = append(found, missing("controllers", g.WithoutIOExample, fmt.Sprintf("%s no I/O controller", plural(g.WithoutIO, "container has", "containers have")), why, command))
	}
	if len(found) > 0 {
		return found
	}
	text := "cgroup " + g.Version
	if g.Hybrid {
		text += " (hybrid host)"
	}
	if g.Version == "v2" {
		return append(found, ok("cgroup", "", "%s at %s, enabled: %s", text, g.Root, strings.Join(g.Enabled, " ")))
	}
	found = append(found, ok("cgroup", "", "%s, blkio at %s", text, g.Root))
	return append(found, note("cgroup-v1", "", "block I/O is on cgroup v1", "v1 has no io.cost, and a limit does not apply to the cgroups below (docs/limits.md)", ""))
}

// enableIO enables the I/O controller from the root down: a cgroup can enable only what its
// parent has enabled for it.
func enableIO(g Cgroups) string {
	var commands []string
	at := g.Root
	for name := range strings.SplitSeq(strings.Trim(g.WithoutIOExample, "/"), "/") {
		at = path.Join(at, name)
		commands = append(commands, "echo +io > "+safetext.Word(at+"/cgroup.subtree_control"))
	}
	return strings.Join(commands, " && ")
}

func examineTools(t Tools) []Finding {
	if len(t.Missing) == 0 {
		return nil
	}
	return []Finding{missing("tools", "", "not installed: "+strings.Join(t.Missing, ", "), "daybook volume makes and checks file systems with it",
		"apt install e2fsprogs   # or: dnf install e2fsprogs")}
}

// plural is "1 ONE" or "N MANY".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
