package kernels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/vm/internal/cache"
)

// Renew returns the pin of the best kernel of a series, such as "6.1", that the
// archives have now: the newest in a release itself, else the newest of all.
// The hashes are those of apt's signed lists.
func (s Store) Renew(ctx context.Context, old Pin) (Pin, error) {
	series, arch := old.Series(), old.Arch()
	a, err := s.freshApt(ctx, cache.Tools{}, old)
	if err != nil {
		return Pin{}, err
	}
	offers, err := seriesOffers(ctx, a, series, arch)
	if err != nil {
		return Pin{}, err
	}
	best := bestOffer(offers, func(x, y string) bool { return newer(ctx, x, y) })
	if best == nil {
		return Pin{}, fmt.Errorf("apt's archives have no linux-image of series %s for %s; apt-cache policy lists the sources", series, arch)
	}
	release := strings.TrimPrefix(best.name, "linux-image-")
	pin := Pin{Name: old.Name, Release: release, Version: best.version, Suite: old.Suite, Architecture: old.Architecture}
	about, err := a.run(ctx, "", "apt-cache", "show", best.name+"="+best.version)
	if err != nil {
		return Pin{}, err
	}
	wanted := []Package{{Part: Image, Name: best.name}}
	for _, name := range imagePackages(field(about, "Depends"), release) {
		wanted = append(wanted, Package{Part: Image, Name: name})
	}
	if old.Suite == "" {
		headers := "linux-headers-" + release
		about, err := a.run(ctx, "", "apt-cache", "show", headers+"="+best.version)
		if err != nil {
			return Pin{}, err
		}
		wanted = append(wanted, Package{Part: Headers, Name: headers})
		for _, name := range headerPackages(field(about, "Depends")) {
			wanted = append(wanted, Package{Part: Headers, Name: name})
		}
	}
	if old.Suite == "" || old.Has(Source) {
		wanted = append(wanted, Package{Part: Source, Name: "linux-source-" + series})
	}
	for _, p := range old.Packages {
		if p.Part != Tools {
			continue
		}
		offers, err := a.offers(ctx, p.Name)
		if err != nil {
			return Pin{}, err
		}
		best := bestOffer(offers, func(x, y string) bool { return newer(ctx, x, y) })
		if best == nil {
			return Pin{}, fmt.Errorf("apt's archives have no package %s for %s", p.Name, arch)
		}
		wanted = append(wanted, Package{Part: Tools, Name: p.Name, Version: best.version})
	}
	for _, p := range wanted {
		if err := pin.add(ctx, a, p); err != nil {
			return Pin{}, err
		}
	}
	return pin, nil
}

// add adds a package with its hash in apt's lists.
func (p *Pin) add(ctx context.Context, a apt, one Package) error {
	about, err := a.run(ctx, "", "apt-cache", "show", one.Name+"="+cmp.Or(one.Version, p.Version))
	if err != nil {
		return err
	}
	one.SHA256 = field(about, "SHA256")
	if !plainHash.MatchString(one.SHA256) {
		return fmt.Errorf("apt's lists have no SHA256 of %s version %s, so it cannot be pinned", one.Name, cmp.Or(one.Version, p.Version))
	}
	p.Packages = append(p.Packages, one)
	return nil
}

// candidates lists the kernels of a series that can be pinned, for messages.
func candidates(ctx context.Context, a apt, pin Pin) string {
	offers, err := seriesOffers(ctx, a, pin.Series(), pin.Arch())
	if err != nil || len(offers) == 0 {
		return "none"
	}
	slices.SortFunc(offers, func(x, y offer) int {
		if newer(ctx, x.version, y.version) {
			return -1
		}
		return 1
	})
	var names []string
	for _, o := range offers {
		if name := o.name + "=" + o.version; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names[:min(len(names), 4)], ", ")
}

// seriesOffers lists the standard kernels of a series, without cloud, real-time
// and unsigned ones.
func seriesOffers(ctx context.Context, a apt, series, arch string) ([]offer, error) {
	pattern := `^linux-image-` + regexp.QuoteMeta(series) + `\.[0-9]+(-[0-9]+|\+deb[0-9]+)?-` + arch + `$`
	text, err := a.run(ctx, "", "apt-cache", "search", "--names-only", pattern)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " ")
		if plainName.MatchString(name) {
			names = append(names, name)
		}
	}
	return a.offers(ctx, names...)
}

// bestOffer prefers versions in a release itself, then the newest. It returns
// nil if there is none.
func bestOffer(offers []offer, newer func(x, y string) bool) *offer {
	var best *offer
	for _, o := range offers {
		if best == nil || (o.stable && !best.stable) || (o.stable == best.stable && newer(o.version, best.version)) {
			best = &o
		}
	}
	return best
}

// newer reports whether Debian's version x is greater than y.
func newer(ctx context.Context, x, y string) bool {
	_, err := cache.Tools{}.Output(ctx, "", "dpkg", "--compare-versions", x, "gt", y)
	return err == nil
}

// imagePackages returns the dependencies of an image that are parts of it: Debian's
// newer kernels have the kernel and its modules in packages of their own.
func imagePackages(depends, release string) []string {
	var names []string
	for alternative := range strings.SplitSeq(depends, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(alternative), " ")
		if strings.HasSuffix(name, "-"+release) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// headerPackages returns the dependencies of headers that are needed to build a
// module: the common headers and kbuild's programs.
func headerPackages(depends string) []string {
	var names []string
	for alternative := range strings.SplitSeq(depends, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(alternative), " ")
		if (strings.HasPrefix(name, "linux-headers-") || strings.HasPrefix(name, "linux-kbuild-")) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// field returns the value of a field in the first paragraph of a package's
// control text.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+": "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// WritePins replaces the pin file with these pins atomically.
func WritePins(path string, pins []Pin) error {
	text := FormatPins(pins)
	if _, err := parsePins(text); err != nil {
		return fmt.Errorf("the pin file was not written, because it would be invalid: %w", err)
	}
	old, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot renew %s: %w; run in the source tree, or name the file with --file", path, err)
	}
	if !old.Mode().IsRegular() {
		return errors.New(path + " is not a regular file")
	}
	next := path + ".new"
	if err := os.WriteFile(next, text, old.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(next, path)
}
