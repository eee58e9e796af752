package kernels

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/daybook-project/daybook/vm/internal/cache"
)

// CacheVariable names the directory of the cache in the environment.
const CacheVariable = "DAYBOOK_VM_CACHE"

// Store is a cache of unpacked kernels.
type Store struct {
	Dir string
	// Log receives messages about long operations; nil discards them.
	Log func(format string, args ...any)
}

// DefaultStore returns the store in $DAYBOOK_VM_CACHE, else in
// ${XDG_CACHE_HOME:-~/.cache}/daybook/vm.
func DefaultStore() (Store, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		dir, err := filepath.Abs(dir)
		return Store{Dir: dir}, err
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return Store{}, fmt.Errorf("no directory for the cache of kernels: %w; set %s", err, CacheVariable)
	}
	return Store{Dir: filepath.Join(dir, "daybook", "vm")}, nil
}

// Tree holds the paths of a kernel's parts. Parts that were not requested are "".
type Tree struct {
	Pin
	Vmlinux string // the kernel: an ELF file that starts by PVH; for arm64 an Image
	Modules string // the directory lib/modules/RELEASE, with modules.dep
	Headers string // for make -C HEADERS M=DIR modules
	Source  string // the tar of the source (.tar.xz), as Debian patches it
	Tools   string // the root of the unpacked tools
}

// Cached returns a kernel with those parts from the cache. The error is
// [fs.ErrNotExist] if one is not in the cache.
func (s Store) Cached(name string, parts ...Part) (Tree, error) {
	pin, err := Find(name)
	if err != nil {
		return Tree{}, err
	}
	for _, part := range parts {
		if _, err := os.Stat(s.partDir(pin, part)); err != nil {
			if pin.of != "" {
				return Tree{}, fmt.Errorf("the kernel %s is not in the cache: build it with %s %s: %w", name, builtBy, name, err)
			}
			how := "bin/daybook-vm fetch, or make vm-fetch"
			if pin.Suite != "" {
				how = "bin/daybook-vm fetch --kernel " + name
			}
			return Tree{}, fmt.Errorf("the %s of kernel %s (%s) is not in the cache: fetch it with %s: %w", part, name, pin.Release, how, err)
		}
	}
	return s.tree(pin, parts)
}

// Get returns a kernel with those parts, and fetches parts that are not in the
// cache.
func (s Store) Get(ctx context.Context, name string, parts ...Part) (Tree, error) {
	pin, err := Find(name)
	if err != nil {
		return Tree{}, err
	}
	for _, part := range parts {
		if !pin.Has(part) {
			return Tree{}, fmt.Errorf("of kernel %s no %s is pinned in %s", name, part, PinFile)
		}
		if err := s.need(ctx, pin, part); err != nil {
			return Tree{}, fmt.Errorf("cannot get the %s of kernel %s: %w", part, name, err)
		}
	}
	return s.tree(pin, parts)
}

func (s Store) tree(pin Pin, parts []Part) (Tree, error) {
	tree := Tree{Pin: pin}
	for _, part := range parts {
		dir := s.partDir(pin, part)
		switch part {
		case Image:
			tree.Vmlinux = filepath.Join(dir, "vmlinux")
			tree.Modules = filepath.Join(dir, "lib/modules", pin.Release)
		case Headers:
			tree.Headers = filepath.Join(dir, "usr/src/linux-headers-"+pin.Release)
		case Tools:
			tree.Tools = dir
		case Source:
			tars, _ := cache.Find(dir, "usr/src/linux-source-*.tar.xz")
			if len(tars) != 1 {
				return Tree{}, fmt.Errorf("%s has %d source archives, want one; remove it and fetch it again", dir, len(tars))
			}
			tree.Source = tars[0]
		}
	}
	return tree, nil
}

// prepared is the version of prepare: a change of prepare must change it, so
// that entries of old caches are not used.
const prepared = "1"

// partDir returns the directory of a part. Its name contains a hash of its
// packages, so that a new pin gets a new directory.
func (s Store) partDir(pin Pin, part Part) string {
	if pin.of != "" && part != Source {
		return s.builtDir(pin)
	}
	sum := sha256.New()
	for _, p := range pin.Packages {
		if p.Part == part {
			io.WriteString(sum, p.SHA256)
		}
	}
	io.WriteString(sum, prepared)
	key := hex.EncodeToString(sum.Sum(nil))[:12]
	return filepath.Join(s.Dir, "kernels", strings.Join([]string{cmp.Or(pin.of, pin.Name), string(part), pin.Version, key}, "_"))
}

// need fetches a part that is not in the cache.
func (s Store) need(ctx context.Context, pin Pin, part Part) error {
	dir := s.partDir(pin, part)
	if dir == s.builtDir(pin) {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("build it with %s %s: %w", builtBy, pin.Name, err)
		}
		return nil
	}
	return cache.Make(ctx, dir, func() { s.log("waiting for another fetch") }, func(t cache.Tools, next string) error {
		fresh := sync.OnceValues(func() (apt, error) { return s.freshApt(ctx, t, pin) })
		for _, p := range pin.Packages {
			if p.Part == part {
				if err := s.unpack(ctx, t, fresh, next, pin, p); err != nil {
					return err
				}
			}
		}
		return prepare(ctx, t, next, dir, pin, part)
	})
}

// unpack downloads one package, checks it, and unpacks it into dir. freshApt fetches new
// package lists, once.
func (s Store) unpack(ctx context.Context, t cache.Tools, freshApt func() (apt, error), dir string, pin Pin, p Package) error {
	version := cmp.Or(p.Version, pin.Version)
	s.log("fetching %s %s", p.Name, version)
	download := filepath.Join(dir, "deb")
	if err := os.Mkdir(download, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(download)
	wanted := p.Name + "=" + version
	err := errors.New("the host's sources do not have its suite")
	if pin.Suite == "" {
		_, err = apt{Tools: t}.run(ctx, download, "apt-get", "download", wanted)
	}
	if err != nil && ctx.Err() == nil {
		// The host's lists may be old or missing: try again with new lists.
		fresh, freshErr := freshApt()
		if freshErr != nil {
			return fmt.Errorf("%w; and new package lists cannot be fetched: %w", err, freshErr)
		}
		if !fresh.has(ctx, p.Name, version) {
			return fmt.Errorf("apt's archives no longer have %s, which is pinned in %s. The newest available: %s. Renew the pin with bin/daybook-vm pin --kernel %s",
				wanted, PinFile, candidates(ctx, fresh, pin), pin.Name)
		}
		_, err = fresh.run(ctx, download, "apt-get", "download", wanted)
	}
	if err != nil {
		return err
	}
	debs, err := cache.Find(download, "*.deb")
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d files, want one", wanted, len(debs))
	}
	sum, err := fileSum(debs[0])
	if err != nil {
		return err
	}
	if sum != p.SHA256 {
		return fmt.Errorf("%s differs from the pin: its SHA-256 is %s, %s has %s; the package is not used", wanted, sum, PinFile, p.SHA256)
	}
	_, err = t.Output(ctx, "", "dpkg-deb", "-x", debs[0], dir)
	return err
}

// freshApt returns an apt with our own package lists for a kernel, fetched now: of the
// host's sources, or of a suite of Debian that they do not have.
func (s Store) freshApt(ctx context.Context, t cache.Tools, pin Pin) (apt, error) {
	s.log("fetching package lists")
	if pin.Suite != "" {
		return s.suitesApt(ctx, t, pin, pin.Suite)
	}
	a := apt{Tools: t, private: filepath.Join(s.Dir, "apt"), arch: pin.Architecture}
	err := a.update(ctx)
	if err != nil || len(pin.Packages) == 0 || a.has(ctx, pin.Packages[0].Name, pin.Version) {
		return a, err
	}
	s.log("the host's sources do not have it; fetching the package lists of Debian %s", ownRelease)
	return s.suitesApt(ctx, t, pin, ownRelease, ownRelease+"-security")
}

// suitesApt returns an apt with the package lists of suites of Debian, fetched now.
func (s Store) suitesApt(ctx context.Context, t cache.Tools, pin Pin, suites ...string) (apt, error) {
	a := apt{Tools: t, private: strings.TrimSuffix(filepath.Join(s.Dir, "apt-"+suites[0]+"-"+pin.Architecture), "-"), arch: pin.Architecture}
	if err := a.takeSuites(ctx, suites...); err != nil {
		return a, err
	}
	return a, a.update(ctx)
}

func (s Store) log(format string, args ...any) {
	if s.Log != nil {
		s.Log(format, args...)
	}
}

func fileSum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// IsMissing reports whether an error of [Store.Cached] means not fetched yet.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
