package rootfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/daybook-project/daybook/vm/internal/cache"
)

// build makes the files of an [Image] in a directory.
func build(ctx context.Context, t cache.Tools, next string, packages []string) error {
	sources, err := debianSources(ctx, t)
	if err != nil {
		return err
	}
	options, err := fetchOptions(ctx, t)
	if err != nil {
		return err
	}
	root, list, conf := filepath.Join(next, "root"), filepath.Join(next, "sources.list"), filepath.Join(next, "apt.conf")
	if err := errors.Join(os.WriteFile(list, []byte(sources), 0o644), os.WriteFile(conf, []byte(options), 0o644)); err != nil {
		return err
	}
	if err := install(ctx, t, root, list, conf, packages); err != nil {
		return err
	}
	if err := configure(root); err != nil {
		return err
	}
	installed, err := t.Output(ctx, "", "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(next, "packages"), []byte(installed), 0o644); err != nil {
		return err
	}
	// No lazy initialization: it would write in the guest's background. Few
	// inodes, because mke2fs writes all of them.
	const inodes = 128 << 10
	if _, err := t.Output(ctx, "", "mke2fs", "-q", "-t", "ext4", "-L", "root", "-m", "0", "-N", strconv.Itoa(inodes),
		"-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", root,
		filepath.Join(next, "root.ext4"), strconv.Itoa(ImageBytes>>10)); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(root), os.Remove(list), os.Remove(conf))
}

// install makes the tree of files. As root, mmdebstrap mounts /proc, /sys and the
// host's /dev/shm below the tree in the namespace of its caller, and a kill leaves them
// there: who then removes the tree empties the host's /dev/shm.
func install(ctx context.Context, t cache.Tools, root, list, conf string, packages []string) error {
	_, err := t.OutputWithOwnMounts(ctx, "", "mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "--aptopt="+conf,
		`--dpkgopt=path-exclude=/usr/share/man/*`, `--dpkgopt=path-exclude=/usr/share/locale/*`,
		`--dpkgopt=path-exclude=/usr/share/doc/*`, `--dpkgopt=path-include=/usr/share/doc/*/copyright`,
		"--include="+strings.Join(packages, ","), Suite, root, list)
	return err
}

// debianSources returns lines of sources.list for the Suite, with the archives of
// this host's apt configuration.
func debianSources(ctx context.Context, t cache.Tools) (string, error) {
	targets, err := t.Output(ctx, "", "apt-get", "indextargets", "--format", "$(CREATED_BY)|$(ORIGIN)|$(LABEL)|$(SIGNED_BY)|$(SITE)")
	if err != nil {
		return "", err
	}
	return sourcesOf(targets)
}

// sourcesOf reads lines CREATED_BY|ORIGIN|LABEL|SIGNED_BY|SITE.
func sourcesOf(targets string) (string, error) {
	suites := map[string]string{"Debian": Suite, "Debian-Security": Suite + "-security"}
	found := map[string]bool{}
	var lines strings.Builder
	for target := range strings.Lines(targets) {
		fields := strings.Split(strings.TrimSpace(target), "|")
		if len(fields) != 5 || fields[0] != "Packages" || fields[1] != "Debian" {
			continue
		}
		label, key, site := fields[2], fields[3], fields[4]
		suite := suites[label]
		if suite == "" || found[label] {
			continue
		}
		found[label] = true
		options := ""
		if strings.HasPrefix(key, "/") {
			options = "[signed-by=" + key + "] "
		}
		lines.WriteString("deb " + options + site + " " + suite + " main\n")
	}
	if !found["Debian"] {
		return "", errors.New("apt has no Debian archive in its configuration, or has not read its list: run apt-get update")
	}
	return lines.String(), nil
}

// fetchOptions returns this host's apt options for fetching, such as a proxy.
func fetchOptions(ctx context.Context, t cache.Tools) (string, error) {
	dump, err := t.Output(ctx, "", "apt-config", "dump")
	if err != nil {
		return "", err
	}
	var options strings.Builder
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "Acquire::http::") || strings.HasPrefix(line, "Acquire::https::") || strings.HasPrefix(line, "Acquire::Retries") {
			options.WriteString(line)
		}
	}
	return options.String(), nil
}
