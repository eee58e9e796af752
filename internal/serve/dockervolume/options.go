package dockervolume

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/internal/systemd"
	"github.com/daybook-project/daybook/volume"
)

// labelPrefix marks the options among a volume's labels. They are stored there
// because they must exist exactly as long as the volume.
const labelPrefix = "docker."

// settings are the options of "docker volume create -o", checked.
type settings struct {
	create    volume.CreateOptions // SizeBytes is 0 if no size was given
	backing   string               // "" is by the other options
	cgroup    string               // "" is placement.DefaultParent
	placement volume.Placement
	dev, suid bool
	// journalRegion is for a journal in memory.
	journalRegion string
}

// The values of journal.
const (
	journalOnDisk   = "disk"
	journalInMemory = "memory"
)

// memory returns the options of a journal in memory, which the volume then has.
func (s *settings) memory() *volume.MemoryOptions {
	if s.create.JournalMemory == nil {
		s.create.JournalMemory = &volume.MemoryOptions{}
	}
	return s.create.JournalMemory
}

// checkJournal says what is wrong with the options of a journal in memory.
func (s *settings) checkJournal() (wrong []string) {
	switch {
	case s.create.JournalMemory == nil && s.create.FileSystem == volume.JFS:
		return []string{"option fs=jfs wants journal=memory"}
	case s.create.JournalMemory == nil && s.journalRegion != "":
		return []string{"option journal-region wants journal=memory"}
	case s.create.JournalMemory == nil:
		return nil
	}
	s.create.JournalMemory.Region = s.journalRegion
	if err := s.create.JournalMemory.Check(); err != nil {
		wrong = append(wrong, fmt.Sprintf("option journal: %v", err))
	}
	if bytes := s.create.BlockSizeBytes; bytes != 0 && bytes != 4096 {
		wrong = append(wrong, fmt.Sprintf("options journal=memory and block-size=%d exclude each other: want 4096", bytes))
	}
	if o := s.create; o.FileSystem == volume.JFS && (o.UID != 0 || o.GID != 0 || o.Mode != 0) {
		wrong = append(wrong, "option fs=jfs excludes uid, gid and mode: change them in the first container")
	}
	return wrong
}

// fileSystemExt4 is the value of fs for ext4.
const fileSystemExt4 = "ext4"

// option is one option of -o. Set checks the value and returns its canonical
// form.
type option struct {
	name, values string
	set          func(s *settings, value string) (canonical string, err error)
}

// ParseBytes parses a size such as "10G".
type ParseBytes func(text string) (bytes uint64, err error)

func options(parse ParseBytes) []option {
	return []option{
		{"size", "a size such as 10G", func(s *settings, value string) (string, error) {
			bytes, err := parse(value)
			if err == nil {
				err = volume.CheckSize(bytes)
			}
			s.create.SizeBytes = bytes
			return strconv.FormatUint(bytes, 10), err
		}},
		{"device", "a block device such as /dev/vg/db1, in place of size and provision", func(s *settings, value string) (string, error) {
			s.create.Device = value
			return value, cleanPath(value, "the path of a block device such as /dev/vg/db1")
		}},
		{"backing", "image, device or lvm", func(s *settings, value string) (string, error) {
			s.backing = value
			return value, oneOf(value, backingImage, backingDevice, backingLVM)
		}},
		{"volume-group", "the volume group of a new logical volume, with backing=lvm", func(s *settings, value string) (string, error) {
			s.create.VolumeGroup = value
			return value, notEmpty(value, "the name of a volume group, such as vg0")
		}},
		{"thin-pool", "a thin pool in volume-group, with backing=lvm", func(s *settings, value string) (string, error) {
			s.create.ThinPool = value
			return value, notEmpty(value, "the name of a thin pool")
		}},
		{"journal", "disk, memory or memory:SIZE, in a slice of persistent memory", func(s *settings, value string) (string, error) {
			place, size, sized := strings.Cut(value, ":")
			if err := oneOf(place, journalOnDisk, journalInMemory); err != nil || place == journalOnDisk {
				if sized {
					err = errors.New("want disk, memory or memory:SIZE")
				}
				return value, err
			}
			memory := s.memory()
			if !sized {
				return value, nil
			}
			bytes, err := parse(size)
			memory.SizeBytes = bytes
			return fmt.Sprintf("%s:%d", place, bytes), err
		}},
		{"journal-region", "the memory device of journal=memory, such as /dev/pmem0", func(s *settings, value string) (string, error) {
			s.journalRegion = value
			return value, cleanPath(value, "the path of a memory device such as /dev/pmem0")
		}},
		{"fs", "ext4 or jfs, which wants journal=memory", func(s *settings, value string) (string, error) {
			if value != fileSystemExt4 {
				s.create.FileSystem = volume.FileSystem(value)
			}
			return value, oneOf(value, fileSystemExt4, string(volume.JFS))
		}},
		{"weight", fmt.Sprintf("%d to %d", volume.MinWeight, volume.MaxWeight), func(s *settings, value string) (string, error) {
			weight, err := number(value, volume.MinWeight, volume.MaxWeight)
			s.create.Weight = weight
			return strconv.FormatUint(weight, 10), err
		}},
		{"provision", "thin or full", func(s *settings, value string) (string, error) {
			s.create.Provision = volume.Provision(value)
			return value, oneOf(value, string(volume.Thin), string(volume.Full))
		}},
		{"cgroup", "the parent cgroup, a slice or a path such as /daybook/db1", func(s *settings, value string) (string, error) {
			s.cgroup = value
			if _, err := systemd.SliceCgroup(value); err == nil {
				return value, nil
			}
			return value, cleanPath(value, "a path such as /daybook/db1, or a slice such as daybook-db1.slice")
		}},
		{"placement", "parent or none", func(s *settings, value string) (string, error) {
			s.placement = volume.Placement(value)
			if s.placement == volume.PlaceContainer {
				return value, errors.New("a volume is mounted before its container's cgroup is made, so the thread cannot be placed there; " +
					"omit it and start the container with --cgroup-parent, or see daybook volume attach")
			}
			return value, oneOf(value, string(volume.PlaceParent), string(volume.PlaceNone))
		}},
		{"mount-options", "mount options of ext4, such as data=ordered,commit=30", func(s *settings, value string) (string, error) {
			if err := checkMountOptions(value); err != nil {
				return value, err
			}
			s.create.MountOptions = value
			return value, nil
		}},
		boolean("noatime", func(s *settings) *bool { return &s.create.NoAtime }),
		boolean("dev", func(s *settings) *bool { return &s.dev }),
		boolean("suid", func(s *settings) *bool { return &s.suid }),
		id("uid", func(s *settings) *uint32 { return &s.create.UID }),
		id("gid", func(s *settings) *uint32 { return &s.create.GID }),
		{"mode", "octal, such as 0750", func(s *settings, value string) (string, error) {
			mode, err := volume.ParseMode(value)
			s.create.Mode = mode
			return fmt.Sprintf("%#o", mode), err
		}},
		{"block-size", "1024, 2048 or 4096", func(s *settings, value string) (string, error) {
			bytes, err := parse(value)
			if err == nil && bytes != 1024 && bytes != 2048 && bytes != 4096 {
				err = fmt.Errorf("want 1024, 2048 or 4096, got %d", bytes)
			}
			s.create.BlockSizeBytes = uint32(bytes)
			return strconv.FormatUint(bytes, 10), err
		}},
	}
}

// boolean is an option that sets a bool.
func boolean(name string, of func(*settings) *bool) option {
	return option{name, "true or false", func(s *settings, value string) (string, error) {
		on, err := strconv.ParseBool(value)
		if err != nil {
			err = errors.New("want true or false")
		}
		*of(s) = on
		return strconv.FormatBool(on), err
	}}
}

// id is an option that sets the number of a user or group.
func id(name string, of func(*settings) *uint32) option {
	return option{name, "a number", func(s *settings, value string) (string, error) {
		n, err := number(value, 0, maxID)
		*of(s) = uint32(n)
		return strconv.FormatUint(n, 10), err
	}}
}

// The values of backing, as those of "daybook volume create".
const (
	backingImage  = "image"
	backingDevice = "device"
	backingLVM    = "lvm"
)

// checkBacking says what is wrong with the options that choose the volume's blocks.
func (s settings) checkBacking() (wrong []string) {
	o := s.create
	if o.Device != "" && (o.SizeBytes != 0 || o.Provision != "") {
		wrong = append(wrong, "option device excludes size and provision: a device has its own")
	}
	switch {
	case s.backing == backingLVM && o.VolumeGroup == "":
		wrong = append(wrong, "option backing=lvm: want volume-group, too")
	case s.backing == backingLVM && (o.Provision != "" || o.Device != ""):
		wrong = append(wrong, "option backing=lvm excludes device and provision: a logical volume has all its blocks, or is in thin-pool")
	case s.backing != backingLVM && (o.VolumeGroup != "" || o.ThinPool != ""):
		wrong = append(wrong, "options volume-group and thin-pool want backing=lvm")
	case s.backing == backingDevice && o.Device == "":
		wrong = append(wrong, "option backing=device: want device, too")
	case s.backing == backingImage && o.Device != "":
		wrong = append(wrong, "options backing=image and device exclude each other")
	}
	if s.backing == backingLVM && o.VolumeGroup != "" && len(wrong) == 0 {
		// The names; the size may be the daemon's.
		o.SizeBytes = max(o.SizeBytes, volume.MinSizeBytes)
		if err := o.Check(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return wrong
}

// cleanPath refuses all but an absolute path, written in the shortest way, that is not /.
func cleanPath(value, what string) error {
	if !filepath.IsAbs(value) || filepath.Clean(value) != value || value == "/" {
		return fmt.Errorf("want %s, got %q", what, value)
	}
	return nil
}

func notEmpty(value, what string) error {
	if value == "" {
		return errors.New("want " + what)
	}
	return nil
}

// userLabel is the prefix of an option that sets a label of the user.
const userLabel = "label."

// maxID is the largest user ID; the next value means "none" (chown(2)).
const maxID = 1<<32 - 2

// known lists the options for an error message.
func known(all []option) string {
	var lines []string
	for _, o := range all {
		lines = append(lines, fmt.Sprintf("%s (%s)", o.name, o.values))
	}
	return strings.Join(append(lines, userLabel+"KEY (any text)"), ", ")
}

// parseOptions checks the options of -o. The labels hold all of them, in
// canonical form. The error lists everything that is wrong at once.
func parseOptions(given map[string]string, parse ParseBytes) (settings, error) {
	all := options(parse)
	s := settings{}
	labels := make(map[string]string, len(given))
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if key, is := strings.CutPrefix(name, userLabel); is {
			if key == "" || strings.HasPrefix(key, labelPrefix) {
				wrong = append(wrong, fmt.Sprintf("option %q: want a key that does not begin with %s", name, labelPrefix))
			}
			labels[key] = value
			continue
		}
		i := slices.IndexFunc(all, func(o option) bool { return o.name == name })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("there is no option %q; there are: %s", name, known(all)))
			continue
		}
		canonical, err := all[i].set(&s, value)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("option %s=%s: %v", name, value, err))
		}
		labels[labelPrefix+name] = canonical
	}
	wrong = append(wrong, s.checkBacking()...)
	wrong = append(wrong, s.checkJournal()...)
	if s.placement == volume.PlaceNone && s.cgroup != "" {
		wrong = append(wrong, "options placement=none and cgroup exclude each other")
	}
	if len(wrong) > 0 {
		return s, fmt.Errorf("%w: %s", volume.ErrInvalid, strings.Join(wrong, "; "))
	}
	s.create.Labels = labels
	return s, nil
}

// attachOptions reads the placement from a volume's labels.
func attachOptions(labels map[string]string) (volume.AttachOptions, error) {
	given := map[string]string{}
	for _, name := range []string{"cgroup", "placement", "dev", "suid"} {
		if value, is := labels[labelPrefix+name]; is {
			given[name] = value
		}
	}
	s, err := parseOptions(given, nil)
	return volume.AttachOptions{Cgroup: s.cgroup, Placement: s.placement, Dev: s.dev, Suid: s.suid}, err
}

func number(text string, least, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("want %d to %d", least, most)
	}
	return n, nil
}

func oneOf(value string, values ...string) error {
	if !slices.Contains(values, value) {
		return fmt.Errorf("want %s", strings.Join(values, " or "))
	}
	return nil
}

// checkMountOptions says of Docker's options where they belong.
func checkMountOptions(text string) error {
	if text == "" {
		return errors.New("want comma-separated options of the file system, such as data=ordered,commit=30")
	}
	for part := range strings.SplitSeq(text, ",") {
		switch {
		case part == "noatime":
			return errors.New("noatime is a separate option: -o noatime=true")
		case volume.IsAttachFlag(part):
			return fmt.Errorf("%s is not an option of ext4; give Docker's options with the container (docker run -v NAME:/dir:ro)", part)
		}
	}
	return volume.CheckMountOptions(text)
}
