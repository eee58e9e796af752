package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/systemdtest"
)

// recorded reads the facts of a host.
func recorded(t *testing.T, name string) Facts {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var f Facts
	if err := decoder.Decode(&f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

// Debian 11 has ext4 as a module, and Linux 5.10 has no BTF of modules. modprobe, which
// helps where ext4 is not loaded, would not help there.
func TestAModuleWithoutBTFIsNamedAndNotLoadedAgain(t *testing.T) {
	k := recorded(t, "debian12-nvme").Kernel
	k.Release, k.MissingRequired, k.ModuleWithoutBTF = "5.10.0-32-amd64", []string{"jbd2_handle_stats", "jbd2_run_stats"}, "jbd2"
	missing := examineKernel(k)
	if len(missing) != 1 || missing[0].Severity != Missing || missing[0].ID != "btf" || !strings.Contains(missing[0].What, "module jbd2 has no BTF") || missing[0].Command != "" {
		t.Errorf("%+v", missing)
	}
}

func TestRecordedHostsAreExamined(t *testing.T) {
	for _, c := range []struct {
		host string
		// findings are all that are not ok, as "severity id subject"; advice is what is
		// recommended.
		findings, advice []string
		// commands are some that must be given.
		commands []string
	}{
		{
			"debian12-nvme",
			[]string{"note tracepoints", "note weights nvme0n1", "note filesystem-type", "note systemd-weights SCOPE", "note cgroup-parent docker"},
			[]string{"nvme0n1 weights io.cost", "image"},
			[]string{"daybook calibrate --io-cost nvme0n1   # prints the commands that set io.cost up"},
		},
		{
			"workbench-v1",
			[]string{"note cgroup-v1", "note tunables loop1", "missing weights vda", "note no-journal /"},
			[]string{"loop1 weights bfq", "vda weights bfq", "image"},
			[]string{"echo bfq > /sys/block/vda/queue/scheduler"},
		},
		{
			"rhel9-xfs",
			[]string{"note tracepoints", "missing controllers", "missing controllers /machine.slice", "note weights sda", "note filesystem-type", "note systemd-weights SCOPE"},
			[]string{"sda weights bfq", "device sdb"},
			[]string{"echo +io > /sys/fs/cgroup/cgroup.subtree_control", "echo +io > /sys/fs/cgroup/machine.slice/cgroup.subtree_control", "echo bfq > /sys/block/sda/queue/scheduler"},
		},
		{
			"no-btf",
			[]string{"missing kernel", "missing btf", "missing cgroup"},
			[]string{"sda limits ", "image"},
			[]string{"mount -t cgroup2 none /sys/fs/cgroup"},
		},
		{
			"lvm-on-dm-crypt",
			[]string{
				"note tracepoints", "note io-cost nvme0n1", "missing weights nvme1n1", "note tunables nvme2n1", "note dm-crypt /srv/db", "note several-disks /srv/striped",
				"note external-journal /var/log", "note data-mode /var/log", "note systemd-weights SCOPE", "note cgroup-parent docker",
			},
			[]string{"nvme0n1 weights io.cost", "nvme1n1 weights io.cost", "nvme2n1 weights bfq", "lvm vg0"},
			[]string{"echo 0 > /sys/block/nvme2n1/queue/iosched/low_latency"},
		},
		{
			"rootless",
			[]string{"missing privileges", "note unseen", "note unseen", "note unseen", "note tracepoints", "note weights nvme0n1", "note filesystem-type", "note systemd-weights SCOPE", "note cgroup-parent docker"},
			[]string{"nvme0n1 weights io.cost", "image"},
			[]string{"sudo daybook doctor"},
		},
	} {
		t.Run(c.host, func(t *testing.T) {
			r := Diagnose(recorded(t, c.host))
			var findings, commands []string
			for _, f := range r.Findings {
				commands = append(commands, f.Command)
				if f.Why == "" && f.Severity == Missing {
					t.Errorf("%+v does not say why it matters", f)
				}
				if f.Severity == OK && (f.Command != "" || f.Why != "") {
					t.Errorf("%+v works, and asks for something", f)
				}
				if f.Severity != OK {
					if strings.HasSuffix(f.Subject, ".scope") {
						f.Subject = "SCOPE"
					}
					findings = append(findings, strings.TrimSpace(string(f.Severity)+" "+f.ID+" "+f.Subject))
				}
			}
			if !slices.Equal(findings, c.findings) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(findings, "\n"), strings.Join(c.findings, "\n"))
			}
			for _, command := range c.commands {
				if !slices.Contains(commands, command) {
					t.Errorf("no finding has the command %q: %q", command, commands)
				}
			}
			if want := !strings.Contains(strings.Join(findings, "\n"), string(Missing)); r.OK != want {
				t.Errorf("the report says %v to whether nothing is missing; want %v", r.OK, want)
			}
			var advice []string
			for _, d := range r.Recommendation.Disks {
				advice = append(advice, d.Disk+" "+d.Actuator+" "+d.Scheduler)
			}
			for _, v := range r.Recommendation.Volumes {
				advice = append(advice, strings.TrimSpace(v.Backing+" "+v.On))
			}
			if !slices.Equal(advice, c.advice) {
				t.Errorf("advises %q, want %q", advice, c.advice)
			}
			checkScreen(t, r)
		})
	}
}

// checkScreen: a person reads the report on about one screen, without long lines but
// those to copy.
func checkScreen(t *testing.T, r Report) {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) > 60 {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
	for _, f := range r.Findings {
		if !strings.Contains(out.String(), f.What) {
			t.Errorf("the report lacks %q:\n%s", f.What, out.String())
		}
	}
}

func TestAHostOnWhichAllWorksIsOK(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Disks[0].Cost = &Cost{Enabled: true, OwnModel: true}
	f.Disks[0].Weights = "io.weight"
	if r := Diagnose(f); !r.OK {
		t.Errorf("something is missing: %+v", r.Findings)
	}
}

// What a unit keeps, Daybook needs.
func TestTheCapabilitiesOfAllUnitsAreLookedAt(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("%q, %v", units, err)
	}
	var kept, known []string
	for _, unit := range units {
		kept = append(kept, systemdtest.Values(t, unit, "CapabilityBoundingSet")...)
	}
	for _, c := range capabilities {
		known = append(known, c.name)
	}
	slices.Sort(kept)
	slices.Sort(known)
	if kept = slices.Compact(kept); !slices.Equal(kept, known) {
		t.Errorf("units keep %q\nlooked at: %q", kept, known)
	}
}

func TestACapabilityThatNotAllNeedIsANote(t *testing.T) {
	for _, c := range []struct {
		missing  []string
		severity Severity
		says     string
	}{
		{nil, OK, "all capabilities"},
		{[]string{"CAP_SYS_RESOURCE"}, Note, "cannot grow"},
		{[]string{"CAP_SYS_RESOURCE", "CAP_LINUX_IMMUTABLE"}, Note, "not protected"},
		{[]string{"CAP_DAC_OVERRIDE"}, Note, "no cgroup can be made in the root cgroup"},
		{[]string{"CAP_FOWNER"}, Note, "not protected"},
		{[]string{"CAP_SYS_NICE"}, Note, "Linux 6.1 does not move journals"},
		{[]string{"CAP_SYS_PTRACE"}, Note, "adopt"},
		{[]string{"CAP_SYSLOG"}, Note, "hides the addresses"},
		{[]string{"CAP_BPF", "CAP_SYS_RESOURCE"}, Missing, "root lacks CAP_BPF"},
	} {
		found := examinePrivileges(Facts{Privileges: Privileges{Root: true, MissingCapabilities: c.missing}})
		if len(found) != 1 || found[0].Severity != c.severity || !strings.Contains(found[0].What+found[0].Why, c.says) {
			t.Errorf("%q: %+v", c.missing, found)
		}
	}
}

// A shell removes backslashes, and takes "!" for its history.
func TestCommandsAreRightForNamesThatAShellWouldChange(t *testing.T) {
	f := recorded(t, "rhel9-xfs")
	f.Cgroups.WithoutIOExample = `/machine.slice/machine-qemu\x2d1\x2dweb.scope`
	f.Owners = []Owner{{Name: "systemd", Containers: 1, Example: `/machine.slice/machine-qemu\x2d1\x2dweb.scope`}}
	sda, sdb := &f.Disks[0], &f.Disks[1]
	sda.Name, sda.Statistics, f.Filesystems[0].Disks = "cciss!c0d0", false, []string{"cciss!c0d0"}
	sdb.Name = "cciss!c0d1"
	r := Diagnose(f)
	var commands []string
	for _, found := range r.Findings {
		commands = append(commands, found.Command)
	}
	for _, advice := range r.Recommendation.Disks {
		commands = append(commands, advice.Commands...)
	}
	for _, advice := range r.Recommendation.Volumes {
		commands = append(commands, advice.Commands...)
	}
	for _, want := range []string{
		`echo +io > /sys/fs/cgroup/machine.slice/cgroup.subtree_control && echo +io > '/sys/fs/cgroup/machine.slice/machine-qemu\x2d1\x2dweb.scope/cgroup.subtree_control'`,
		`systemctl set-property --runtime 'machine-qemu\x2d1\x2dweb.scope' IOWeight=300`,
		"echo 1 > '/sys/block/cciss!c0d0/queue/iostats'",
		"echo bfq > '/sys/block/cciss!c0d0/queue/scheduler'",
		"daybook volume create db1 --device /dev/cciss/c0d1",
	} {
		if !slices.Contains(commands, want) {
			t.Errorf("no command %s: %q", want, commands)
		}
	}
	f.Disks[0].Scheduler = "bfq"
	if got := adviseDisk(f, f.Disks[0]).Commands[0]; got != "daybook control --device 'cciss!c0d0' --dry-run" {
		t.Error(got)
	}
}

// As on a server with everything on md raid1: top accounts such a device itself.
func TestTheJournalOfAFilesystemOnSeveralDisksIsAttributed(t *testing.T) {
	raid := Filesystem{Device: "md0", Layers: []string{"raid1 md0"}, Disks: []string{"sda", "sdb"}}
	root, srv := raid, raid
	root.Type, root.Mounts, root.Journal, root.DataMode = "ext4", []string{"/"}, "internal", "ordered"
	srv.Type, srv.Mounts = "xfs", []string{"/srv"}
	var got []string
	for _, f := range examineFilesystems(Facts{Filesystems: []Filesystem{root, srv}}) {
		got = append(got, fmt.Sprint(f.Severity, " ", f.ID, " ", f.Subject, ": ", f.What))
	}
	want := []string{
		"ok filesystems : ext4 is attributed: / (internal journal, data=ordered)",
		"note several-disks /: it lies on several disks (raid1 md0: sda, sdb)",
		"note several-disks /srv: it lies on several disks (raid1 md0: sda, sdb)",
		"note filesystem-type : xfs is not attributed: /srv",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestLayersOfCryptsetupThatWriteCopiesAreNoted(t *testing.T) {
	for layer, want := range map[string]int{"crypt dm-0": 1, "crypt-integrity dm-0": 1, "crypt-subdev dm-1": 0, "part dm-0": 0} {
		found := examineFilesystem(Filesystem{Type: "ext4", Journal: "internal", DataMode: "ordered", Disks: []string{"sda"}, Layers: []string{layer}})
		notes := 0
		for _, f := range found {
			if f.ID == "dm-crypt" && strings.Contains(f.What, layer) {
				notes++
			}
		}
		if notes != want {
			t.Errorf("%s: %+v; want %d notes", layer, found, want)
		}
	}
}

func TestEachDiskBelowAStackThatControlCorrectsIsExamined(t *testing.T) {
	f := Facts{Filesystems: []Filesystem{
		{Device: "md0", Disks: []string{"sda", "sdb"}},
		{Device: "md1", Disks: []string{"sdc", "sdd"}, Copies: "raid5 md1"}, // refused
		{Device: "dm-0", Disks: []string{"sde"}, Copies: "crypt dm-0"},
	}}
	var got []string
	for _, name := range []string{"sda", "sdb", "sdc", "sdd", "sde", "sdf"} {
		if carries(f, Disk{Name: name}) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, []string{"sda", "sdb", "sde"}) {
		t.Errorf("%q", got)
	}
}

func TestTheIOControllerIsEnabledFromTheRootDown(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Cgroups.WithoutIO = 1
	for above, want := range map[string]string{
		"/":     "echo +io > /sys/fs/cgroup/cgroup.subtree_control",
		"/a":    "echo +io > /sys/fs/cgroup/a/cgroup.subtree_control",
		"/a/b!": "echo +io > /sys/fs/cgroup/a/cgroup.subtree_control && echo +io > '/sys/fs/cgroup/a/b!/cgroup.subtree_control'",
		// As rootless.md says, which lasts.
		"/user.slice/user-1000.slice/user@1000.service/user.slice": "",
	} {
		f.Cgroups.WithoutIOExample = above
		found := examineCgroups(f)
		if len(found) != 1 || found[0].Command != want || (want == "") != strings.Contains(found[0].Why, "docs/rootless.md") {
			t.Errorf("%s: %+v", above, found)
		}
	}
}

// The system's manager does not know the units of users' managers and of machines.
func TestAContainerBelowAnotherManagerIsNotOfTheSystemsSystemd(t *testing.T) {
	const id = "4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f4f"
	for at, want := range map[string]string{
		"/system.slice/docker-" + id + ".scope":                                                        "systemd",
		"/machine.slice/systemd-nspawn@web.service/payload":                                            "systemd",
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope":             "podman",
		"/lxc.payload.web/system.slice/docker-" + id + ".scope":                                        "lxc",
		"/system.slice/k3s.service/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope": "containerd",
	} {
		list := owners([]container.Identity{container.Identify(at)}, nil, true)
		if len(list) != 1 || list[0].Name != want {
			t.Errorf("%s: %+v; want %s", at, list, want)
		}
		found := examineOwners(Facts{Systemd: true, Cgroups: Cgroups{Version: "v2"}, Owners: list})
		if advised := slices.ContainsFunc(found, func(f Finding) bool { return f.ID == "systemd-weights" }); advised != (want == "systemd") {
			t.Errorf("%s: %+v", at, found)
		}
	}
}

// What is said of a disk is true of it.
func TestADiskThatSeeksWithoutBFQIsNotSaidNotToSeek(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Kernel.BFQ = ""
	d := f.Disks[0]
	d.Available, d.Cost, d.Scheduler = []string{"none", "mq-deadline"}, &Cost{}, "mq-deadline"
	for seeks, why := range map[bool]string{true: "this kernel has no BFQ", false: "the disk does not seek"} {
		d.Rotational = seeks
		if a := adviseDisk(f, d); a.Scheduler != "io.cost" || !strings.HasPrefix(a.Why, why) {
			t.Errorf("%v: %+v; want io.cost, because %s", seeks, a, why)
		}
	}
}

// Persistent memory and native NVMe multipath have neither a scheduler nor io.cost.
func TestADiskWithoutARequestQueueIsAdvisedNoScheduler(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Disks[0].Available, f.Disks[0].Cost = nil, &Cost{}
	r := Diagnose(f)
	at := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == "weights" })
	if at < 0 || r.Findings[at].Command != "" {
		t.Errorf("%+v", r.Findings)
	}
	a := r.Recommendation.Disks[0]
	if a.Actuator != "limits" || !slices.Equal(a.Commands, []string{"daybook control --device nvme0n1 --dry-run"}) {
		t.Errorf("%+v", a)
	}
}

func TestManyDisksWithTheSameProblemAreOneParagraph(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Disks[0].Rotational = true // BFQ suits it
	for _, name := range []string{"nvme1n1", "nvme2n1", "nvme3n1"} {
		d := f.Disks[0]
		d.Name = name
		f.Disks = append(f.Disks, d)
		f.Filesystems = append(f.Filesystems, Filesystem{Type: "ext4", Device: name, Disks: []string{name}, Journal: "internal"})
	}
	var out bytes.Buffer
	if err := Diagnose(f).Write(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "weights have no effect"); n != 1 || !strings.Contains(out.String(), "nvme0n1, nvme1n1, nvme2n1, nvme3n1: the scheduler") ||
		!strings.Contains(out.String(), "/sys/block/nvme3n1/queue/scheduler") {
		t.Errorf("%d times:\n%s", n, out.String())
	}
}

func TestNamesOfStrangersDoNotReachTheTerminal(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Filesystems[0].Mounts = []string{"/srv/\x1b[2J"}
	var out bytes.Buffer
	if err := Diagnose(f).Write(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}

func TestWhatVgsPrintsIsRead(t *testing.T) {
	groups, err := parseVolumeGroups(`  WARNING: VG name is used twice
  {"report":[{"vg":[{"vg_name":"vg0","vg_free":"1073741824","pv_name":"/dev/nosuch1"},{"vg_name":"vg0","vg_free":"1073741824","pv_name":"/dev/nosuch2"},{"vg_name":"vg1","vg_free":"0","pv_name":"[unknown]"}]}]}`)
	if err != nil || len(groups) != 2 || groups[0].Name != "vg0" || groups[0].FreeBytes != 1<<30 || groups[1].FreeBytes != 0 {
		t.Errorf("%+v, %v", groups, err)
	}
	for _, wrong := range []string{"", "no such command", `{"report":[{"vg":[{"vg_name":"vg0","vg_free":"much"}]}]}`} {
		if _, err := parseVolumeGroups(wrong); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
}

func TestAThinPoolWithVolumesIsReportedWhenItIsNearlyFull(t *testing.T) {
	lvs := func(data, metadata, health string) string {
		return `  WARNING: something
  {"report":[{"lv":[
  {"lv_name":"daybook-1","vg_name":"vg0","lv_size":"4294967296","pool_lv":"tp","lv_tags":"daybook,daybook.volume=db","segtype":"thin","data_percent":"1.00","metadata_percent":"","lv_health_status":""},
  {"lv_name":"other","vg_name":"vg0","lv_size":"1073741824","pool_lv":"tp","lv_tags":"","segtype":"thin","data_percent":"1.00","metadata_percent":"","lv_health_status":""},
  {"lv_name":"strange","vg_name":"vg0","lv_size":"1","pool_lv":"","lv_tags":"","segtype":"thin-pool","data_percent":"100.00","metadata_percent":"100.00","lv_health_status":"failed"},
  {"lv_name":"tp","vg_name":"vg0","lv_size":"2147483648","pool_lv":"","lv_tags":"","segtype":"thin-pool","data_percent":"` + data + `","metadata_percent":"` + metadata + `","lv_health_status":"` + health + `"}]}]}`
	}
	for _, c := range []struct {
		data, metadata, health string
		severity               Severity
		what, command          string
	}{
		{"10.00", "5.00", "", OK, "10.0 % of its data and 5.0 % of its metadata", ""},
		{"", "", "", Note, "does not know how full", "lvchange --activate y vg0/tp"},
		{"", "", "partial", Missing, "a physical volume of it is missing", ""},
		{"10.00", "5.00", "partial", Missing, "a physical volume of it is missing", ""},
		{"10.00", "5.00", "new trouble", Note, "\"new trouble\"", ""},
		{"90.00", "5.00", "", Note, "it is nearly full", "lvextend --extents"},
		{"10.00", "95.50", "", Note, "its metadata is nearly full", "--poolmetadatasize"},
		{"100.00", "5.00", "", Missing, "it is full", "lvextend --extents"},
		{"99.00", "5.00", "out_of_data", Missing, "it is full", "lvextend --extents"},
		{"10.00", "99.00", "metadata_read_only", Missing, "its metadata is full or damaged", "--poolmetadatasize"},
		{"10.00", "5.00", "failed", Missing, "it is damaged", ""},
	} {
		pools, err := parseThinPools(lvs(c.data, c.metadata, c.health))
		if err != nil || len(pools) != 1 || pools[0].Volumes != 1 || pools[0].PromisedBytes != 5<<30 || pools[0].SizeBytes != 2<<30 {
			t.Fatalf("%+v, %v", pools, err)
		}
		f := recorded(t, "debian12-nvme")
		f.Tools.ThinPools = pools
		at := slices.IndexFunc(Examine(f), func(f Finding) bool { return f.ID == "thin-pool" })
		if at < 0 {
			t.Fatalf("%+v: no finding", c)
		}
		got := Examine(f)[at]
		if got.Severity != c.severity || got.Subject != "vg0/tp" || !strings.Contains(got.What, c.what) || !strings.Contains(got.Command, c.command) || (c.command == "") != (got.Command == "") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if _, err := parseThinPools("no such command"); err == nil {
		t.Error("what is no report was read")
	}
}

// As long as no logical volume is active, a disk of a volume group looks unused.
func TestADiskOfAVolumeGroupIsNotRecommendedForAVolume(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Disks = []Disk{{Name: "vdb", Unused: true, SizeBytes: 64 << 30}}
	f.Tools.VolumeGroups = nil
	if a := adviseVolumes(f); a.Backing != "device" || a.On != "vdb" {
		t.Errorf("without a volume group: %+v", a)
	}
	f.Tools.VolumeGroups = []VolumeGroup{{Name: "vg0", FreeBytes: minVolumeBytes - 1, Disks: []string{"vdb"}}}
	if a := adviseVolumes(f); a.Backing != "image" {
		t.Errorf("with a full volume group on it: %+v", a)
	}
}

func TestTheVolumeThatIsRecommendedFitsInItsVolumeGroup(t *testing.T) {
	for free, size := range map[uint64]string{minVolumeBytes: "1G", 6<<30 - 1: "5G", 20 << 30: "20G", 1 << 40: "20G"} {
		a := adviseVolumes(Facts{Tools: Tools{VolumeGroups: []VolumeGroup{{Name: "vg0", FreeBytes: free}}}})
		if want := "daybook volume create db1 --backing lvm --volume-group vg0 --size " + size; !slices.Equal(a.Commands, []string{want}) {
			t.Errorf("%d bytes free: %q, want %s", free, a.Commands, want)
		}
	}
}

func TestKernelReleasesAreRead(t *testing.T) {
	for release, want := range map[string][2]int{"6.1.0-50-amd64": {6, 1}, "5.10": {5, 10}, "5.14.0-503.el9": {5, 14}, "7.0-rc1": {7, 0}} {
		if got, known := parseRelease(release); !known || got != want {
			t.Errorf("%s: %v, %v", release, got, known)
		}
	}
	if _, known := parseRelease("next"); known {
		t.Error("next is no release")
	}
}

func TestAPartOfTheCgroupsIsNotTakenForAHostWithoutThem(t *testing.T) {
	f := recorded(t, "debian12-nvme")
	f.Cgroups = Cgroups{Partial: true}
	found := examineCgroups(f)
	if len(found) != 1 || found[0].Severity != Missing || found[0].ID != "cgroup" || found[0].Command != "" ||
		!strings.Contains(found[0].Why, "--cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup") {
		t.Errorf("%+v", found)
	}
}
