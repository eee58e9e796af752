package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-project/daybook/vm/internal/cache"
)

// build makes the files of an [Image] in a directory.
func build(ctx context.Context, t cache.Tools, next string, packages []string, log func(string, ...any)) error {
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
	archives := filepath.Join(filepath.Dir(next), "archives")
	if err := install(ctx, t, root, list, conf, archives, packages, log); err != nil {
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

// attempts is how often a download is tried. One file of hundreds that an archive
// refuses once would otherwise fail the build.
const attempts = 4

// pause is the time between two attempts.
var pause = 10 * time.Second

// install makes the tree of files. Packages are downloaded into the directory archives,
// which outlives a failed or killed build: the next attempt fetches only what is
// missing.
func install(ctx context.Context, t cache.Tools, root, list, conf, archives string, packages []string, log func(string, ...any)) error {
	// apt writes incomplete downloads to partial.
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := installOnce(ctx, t, root, list, conf, archives, packages)
		if err == nil {
			return os.RemoveAll(archives)
		}
		if ctx.Err() != nil {
			return err
		}
		err = fmt.Errorf("attempt %d of %d: %w", attempt, attempts, errors.New(aptErrors(err.Error())))
		if attempt == attempts {
			return fmt.Errorf("%w; what was downloaded is kept: run the command again", err)
		}
		log("%v; next attempt in %s", err, pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
		if err := os.RemoveAll(root); err != nil {
			return err
		}
	}
}

// installOnce is one attempt. As root, mmdebstrap mounts /proc, /sys and the host's
// /dev/shm below the tree in the namespace of its caller, and a kill leaves them
// there: who then removes the tree empties the host's /dev/shm.
func installOnce(ctx context.Context, t cache.Tools, root, list, conf, archives string, packages []string) error {
	// The mount ends with mmdebstrap's mount namespace.
	keep := `mkdir -p "$1/var/cache/apt/archives" && mount --bind ` + quote(archives) + ` "$1/var/cache/apt/archives"`
	_, err := t.OutputWithOwnMounts(ctx, "", "mmdebstrap", "--mode=root", "--variant=apt", "--aptopt="+conf,
		"--setup-hook="+keep, "--skip=essential/unlink",
		`--dpkgopt=path-exclude=/usr/share/man/*`, `--dpkgopt=path-exclude=/usr/share/locale/*`,
		`--dpkgopt=path-exclude=/usr/share/doc/*`, `--dpkgopt=path-include=/usr/share/doc/*/copyright`,
		"--include="+strings.Join(packages, ","), Suite, root, list)
	return err
}

// quote quotes a word for the shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// aptErrors returns the lines of mmdebstrap's output that tell why apt failed, or all
// of it if there are none.
func aptErrors(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"Err:", "E: ", "dpkg: error"} {
			if strings.HasPrefix(line, prefix) && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return output
	}
	return strings.Join(lines, "\n")
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

// fetchOptions returns this host's apt options for fetching, such as a proxy, after
// options that make apt more patient than its defaults.
func fetchOptions(ctx context.Context, t cache.Tools) (string, error) {
	dump, err := t.Output(ctx, "", "apt-config", "dump")
	if err != nil {
		return "", err
	}
	var options strings.Builder
	options.WriteString("Acquire::Retries \"3\";\nAcquire::http::Timeout \"60\";\nAcquire::https::Timeout \"60\";\n")
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "Acquire::http::") || strings.HasPrefix(line, "Acquire::https::") || strings.HasPrefix(line, "Acquire::Retries") ||
			strings.HasPrefix(line, "Acquire::Check-") {
			options.WriteString(line)
		}
	}
	return options.String(), nil
}
