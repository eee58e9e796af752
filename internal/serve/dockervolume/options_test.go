package dockervolume

import (
	"errors"
	"maps"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume"
)

// parseTest parses sizes as the command line does, as far as tests need it.
func parseTest(text string) (uint64, error) {
	shift := 0
	switch {
	case strings.HasSuffix(text, "M"):
		shift = 20
	case strings.HasSuffix(text, "K"):
		shift = 10
	}
	n, err := strconv.ParseUint(strings.TrimRight(text, "MK"), 10, 40)
	return n << shift, err
}

func TestOptionsBecomeSettingsAndLabels(t *testing.T) {
	given := map[string]string{
		"size": "64M", "weight": "700", "provision": "full", "cgroup": "/slice/db", "placement": "parent", "mount-options": "data=ordered,commit=30",
		"noatime": "1", "suid": "1", "uid": "999", "gid": "998", "mode": "2750", "block-size": "1K", "label.team": "data base", "label.docker": "x",
	}
	got, err := parseOptions(given, parseTest)
	if err != nil {
		t.Fatal(err)
	}
	want := settings{
		create: volume.CreateOptions{
			SizeBytes: 64 << 20, Weight: 700, Provision: volume.Full, MountOptions: "data=ordered,commit=30", NoAtime: true,
			UID: 999, GID: 998, Mode: 0o750 | os.ModeSetgid, BlockSizeBytes: 1024,
			Labels: map[string]string{
				"docker.size": "67108864", "docker.weight": "700", "docker.provision": "full", "docker.cgroup": "/slice/db", "docker.placement": "parent",
				"docker.mount-options": "data=ordered,commit=30", "docker.noatime": "true", "docker.suid": "true", "docker.uid": "999", "docker.gid": "998",
				"docker.mode": got.create.Labels["docker.mode"], "docker.block-size": "1024", "team": "data base", "docker": "x",
			},
		},
		cgroup: "/slice/db", placement: volume.PlaceParent, suid: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	place, err := attachOptions(got.create.Labels)
	if err != nil || place.Cgroup != "/slice/db" || place.Placement != volume.PlaceParent || place.Dev || !place.Suid {
		t.Errorf("from the labels: %+v, %v", place, err)
	}
}

func TestOptionsOfTheSameMeaningAreTheSame(t *testing.T) {
	for _, pair := range [][2]map[string]string{
		{{"size": "64M"}, {"size": "67108864"}},
		{{"noatime": "1"}, {"noatime": "true"}},
		{{"mode": "750"}, {"mode": "0750"}},
		{{"weight": "0700"}, {"weight": "700"}},
		{nil, {}},
	} {
		a, errA := parseOptions(pair[0], parseTest)
		b, errB := parseOptions(pair[1], parseTest)
		if errA != nil || errB != nil || !maps.Equal(a.create.Labels, b.create.Labels) {
			t.Errorf("%v and %v: %v, %v; %v, %v", pair[0], pair[1], a.create.Labels, b.create.Labels, errA, errB)
		}
	}
}

func TestWrongOptionsAreRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"sise", "10G", `there is no option "sise"; there are: size (a size such as 10G), device (`},
		{"Size", "64M", "label.KEY"},
		{"size", "1M", "at least"},
		{"size", "", "size="},
		{"size", "99999999999M", "size"},
		{"device", "vg/db1", "want the path"},
		{"device", "/dev/../x", "want the path"},
		{"backing", "file", "image or device or lvm"},
		{"backing", "lvm", "want volume-group"},
		{"backing", "device", "want device"},
		{"volume-group", "vg0", "want backing=lvm"},
		{"volume-group", "", "want the name"},
		{"thin-pool", "tp", "want backing=lvm"},
		{"journal", "ram", "want disk or memory"},
		{"journal", "disk:64M", "memory:SIZE"},
		{"journal", "memory:1", "whole MiB"},
		{"journal-region", "pmem0", "want the path of a memory device"},
		{"journal-region", "/dev/pmem0", "wants journal=memory"},
		{"weight", "0", "1 to 1000"},
		{"weight", "1001", "1 to 1000"},
		{"weight", "-1", "1 to 1000"},
		{"provision", "thick", "thin or full"},
		{"cgroup", "daybook/db1", "want a path"},
		{"cgroup", "/a/../b", "want a path"},
		{"cgroup", "/", "want a path"},
		{"placement", "container", "--cgroup-parent"},
		{"placement", "", "parent or none"},
		{"mount-options", "nosuid", "not an option of ext4"},
		{"mount-options", "commit=30,noatime", "-o noatime=true"},
		{"mount-options", "commit=30,,x", "comma-separated"},
		{"mount-options", "commit = 30", "comma-separated"},
		{"noatime", "perhaps", "noatime=perhaps: want true or false"},
		{"uid", "4294967295", "0 to 4294967294"},
		{"gid", "-1", "0 to 4294967294"},
		{"mode", "4755", "octal"},
		{"mode", "0", "octal"},
		{"mode", "rwx", "octal"},
		{"block-size", "8K", "1024, 2048 or 4096"},
		{"label.", "x", "want a key"},
		{"label.docker.size", "x", "want a key"},
	} {
		_, err := parseOptions(map[string]string{c.name: c.value}, parseTest)
		if !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v; want %q in it", c.name, c.value, err, c.want)
		}
	}
	_, err := parseOptions(map[string]string{"size": "1M", "weight": "0", "x": ""}, parseTest)
	if err == nil || strings.Count(err.Error(), ";") < 3 {
		t.Errorf("not everything that is wrong is reported: %v", err)
	}
	lvm, err := parseOptions(map[string]string{"backing": "lvm", "volume-group": "vg0", "thin-pool": "tp", "size": "64M"}, parseTest)
	if o := lvm.create; err != nil || o.VolumeGroup != "vg0" || o.ThinPool != "tp" || o.SizeBytes != 64<<20 || o.Labels["docker.volume-group"] != "vg0" || o.Check() != nil {
		t.Errorf("%+v, %v", lvm, err)
	}
	for _, given := range []map[string]string{
		{"backing": "lvm", "volume-group": "vg0", "provision": "full"}, {"backing": "lvm", "volume-group": "vg0", "device": "/dev/sdb"},
		{"backing": "image", "device": "/dev/sdb"}, {"backing": "lvm", "volume-group": "a/b"}, {"backing": "lvm", "volume-group": "vg0", "thin-pool": "-x"},
	} {
		if _, err := parseOptions(given, parseTest); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("%v: %v", given, err)
		}
	}
	for _, other := range []string{"size", "provision"} {
		given := map[string]string{"device": "/dev/vg/db1", other: map[string]string{"size": "64M", "provision": "full"}[other]}
		if _, err := parseOptions(given, parseTest); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("%v: %v", given, err)
		}
	}
	if _, err := parseOptions(map[string]string{"placement": "none", "cgroup": "/x"}, parseTest); err == nil {
		t.Error("placement=none accepted a cgroup")
	}
}

func TestVolumesOfOthersArePlacedByDefault(t *testing.T) {
	got, err := attachOptions(map[string]string{"owner": "x", "docker.size": "nonsense"})
	if err != nil || got != (volume.AttachOptions{}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := attachOptions(map[string]string{"docker.cgroup": "../x"}); err == nil {
		t.Error("a label led out of the cgroups")
	}
}
