package initrd

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// moduleIndex is depmod's index of a kernel's modules.
type moduleIndex struct {
	dir     string              // lib/modules/RELEASE of the host's cache
	paths   map[string]string   // name -> path in dir
	needs   map[string][]string // name -> names of modules that must be loaded before it
	soft    map[string][]string // name -> names or aliases wanted before it
	aliases map[string][]string // alias without wildcards -> names
	builtin map[string]bool
}

// moduleName returns a module's name in the kernel, from its file name.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}

func readModuleIndex(dir string) (*moduleIndex, error) {
	index := &moduleIndex{
		dir: dir, paths: make(map[string]string), needs: make(map[string][]string), soft: make(map[string][]string),
		aliases: make(map[string][]string), builtin: make(map[string]bool),
	}
	for _, file := range []struct {
		name string
		line func(string)
	}{
		{"modules.dep", index.readDependency},
		{"modules.softdep", index.readSoft},
		{"modules.alias", index.readAlias},
		{"modules.builtin", func(line string) { index.builtin[moduleName(line)] = true }},
	} {
		text, err := os.ReadFile(filepath.Join(dir, file.name))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				file.line(line)
			}
		}
	}
	return index, nil
}

// readDependency reads "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko ...".
// depmod lists all dependencies, the nearest first.
func (x *moduleIndex) readDependency(line string) {
	file, rest, _ := strings.Cut(line, ":")
	name := moduleName(file)
	x.paths[name] = file
	for _, needed := range strings.Fields(rest) {
		x.needs[name] = append(x.needs[name], moduleName(needed))
	}
}

// readSoft reads "softdep ext4 pre: crc32c post: ...".
func (x *moduleIndex) readSoft(line string) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return
	}
	pre := false
	for _, word := range fields[2:] {
		switch {
		case word == "pre:":
			pre = true
		case word == "post:":
			pre = false
		case pre:
			x.soft[moduleName(fields[1])] = append(x.soft[moduleName(fields[1])], word)
		}
	}
}

// readAlias reads "alias crc32c crc32c_intel". It skips aliases with wildcards,
// which match devices.
func (x *moduleIndex) readAlias(line string) {
	fields := strings.Fields(line)
	if len(fields) == 3 && !strings.ContainsAny(fields[1], "*?[") {
		alias := strings.ReplaceAll(fields[1], "-", "_")
		x.aliases[alias] = append(x.aliases[alias], fields[2])
	}
}

// moduleSet are the modules of one guest.
type moduleSet struct {
	order []string          // names, each after its dependencies
	files map[string]string // name -> the host's file
	place map[string]string // name -> path in the guest's lib/modules/RELEASE
}

// choose finds the modules to load for the wanted ones. A wanted one is a name
// or an alias, or has a slash: then it is a module file of the host, built for
// this kernel.
func (x *moduleIndex) choose(wanted []string) (*moduleSet, error) {
	set := &moduleSet{files: make(map[string]string), place: make(map[string]string)}
	for _, want := range wanted {
		if strings.Contains(want, "/") {
			if err := x.addFile(set, want); err != nil {
				return nil, err
			}
			continue
		}
		names := x.named(want)
		if names == nil {
			return nil, fmt.Errorf("the kernel %s has no module %q; they are in %s", filepath.Base(x.dir), want, x.dir)
		}
		for _, name := range names {
			x.add(set, name)
		}
	}
	return set, nil
}

// named returns the modules with a name or alias: an empty list if it is built
// into the kernel, nil if it is unknown.
func (x *moduleIndex) named(want string) []string {
	name := strings.ReplaceAll(want, "-", "_")
	if _, known := x.paths[name]; known {
		return []string{name}
	}
	if x.builtin[name] {
		return []string{}
	}
	return x.aliases[name]
}

func (x *moduleIndex) add(set *moduleSet, name string) {
	if _, already := set.files[name]; already || x.paths[name] == "" {
		return
	}
	set.files[name] = filepath.Join(x.dir, x.paths[name])
	set.place[name] = x.paths[name]
	for _, soft := range x.soft[name] {
		for _, s := range x.named(soft) {
			x.add(set, s)
		}
	}
	needs := x.needs[name]
	for i := len(needs) - 1; i >= 0; i-- { // the farthest first
		x.add(set, needs[i])
	}
	set.order = append(set.order, name)
}

// addFile adds a module file of the host, after its dependencies.
func (x *moduleIndex) addFile(set *moduleSet, file string) error {
	needs, err := moduleNeeds(file)
	if err != nil {
		return err
	}
	name := moduleName(file)
	for _, need := range needs {
		if _, already := set.files[need]; already || x.builtin[need] {
			continue
		}
		if x.paths[need] == "" {
			return fmt.Errorf("the module %s needs %s, which the kernel lacks; give it too, before this one", file, need)
		}
		x.add(set, need)
	}
	set.files[name] = file
	set.place[name] = path.Join("updates", name+".ko")
	set.order = append(set.order, name)
	return nil
}

// moduleNeeds reads the dependencies in a module file.
func moduleNeeds(file string) ([]string, error) {
	if err := checkRegular(file); err != nil {
		return nil, fmt.Errorf("cannot read the module: %w", err)
	}
	module, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s is not a kernel module: %w", file, err)
	}
	defer module.Close()
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s is not a kernel module: it has no section .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if needs, found := strings.CutPrefix(string(entry), "depends="); found && needs != "" {
			return strings.Split(strings.ReplaceAll(needs, "-", "_"), ","), nil
		}
	}
	return nil, nil
}

// guestPaths returns paths in the guest, in the order of loading.
func (s *moduleSet) guestPaths(release string) []string {
	var paths []string
	for _, name := range s.order {
		paths = append(paths, path.Join("/lib/modules", release, s.place[name]))
	}
	return paths
}

// put adds the modules to the guest's root, with modprobe's index files.
func (s *moduleSet) put(t tree, x *moduleIndex, release string) error {
	dir := path.Join("/lib/modules", release)
	var errs []error
	var dependencies strings.Builder
	for _, name := range s.order {
		errs = append(errs, t.putFile(path.Join(dir, s.place[name]), s.files[name]))
		dependencies.WriteString(s.place[name] + ":")
		for _, need := range x.needs[name] {
			if place := s.place[need]; place != "" {
				dependencies.WriteString(" " + place)
			}
		}
		dependencies.WriteByte('\n')
	}
	errs = append(errs, t.putText(path.Join(dir, "modules.dep"), 0o644, dependencies.String()))
	aliases, err := x.aliasesOf(s)
	errs = append(errs, err, t.putText(path.Join(dir, "modules.alias"), 0o644, aliases))
	for _, name := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order", "modules.softdep"} {
		if _, err := os.Stat(filepath.Join(x.dir, name)); err == nil && name != "modules.order" {
			errs = append(errs, t.putFile(path.Join(dir, name), filepath.Join(x.dir, name)))
		}
	}
	return errors.Join(errs...)
}

// aliasesOf returns the lines of modules.alias for the modules of a set, so that
// the kernel's own requests, such as for crypto-crc32c, find them.
func (x *moduleIndex) aliasesOf(s *moduleSet) (string, error) {
	text, err := os.ReadFile(filepath.Join(x.dir, "modules.alias"))
	if err != nil {
		return "", err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && slices.Contains(s.order, fields[2]) {
			kept.WriteString(line)
		}
	}
	return kept.String(), nil
}
