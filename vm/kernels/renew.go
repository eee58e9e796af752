package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Renew gives the pin of the best kernel of a series, such as "6.1", that the
// archives have now: the newest of a release proper, else the newest at all.
// The hashes are those of apt's signed lists.
func (s Store) Renew(ctx context.Context, series string) (Pin, error) {
	a, err := s.freshApt(ctx, tools{})
	if err != nil {
		return Pin{}, err
	}
	offers, err := seriesOffers(ctx, a, series)
	if err != nil {
		return Pin{}, err
	}
	best := bestOffer(offers, func(x, y string) bool { return newer(ctx, x, y) })
	if best == nil {
		return Pin{}, fmt.Errorf("the archives that apt knows have no linux-image of series %s for amd64; look at the sources with apt-cache policy", series)
	}
	release := strings.TrimPrefix(best.name, "linux-image-")
	pin := Pin{Name: series, Release: release, Version: best.version}
	headers := "linux-headers-" + release
	about, err := a.run(ctx, "", "apt-cache", "show", headers+"="+best.version)
	if err != nil {
		return Pin{}, err
	}
	wanted := []Package{{Part: Image, Name: best.name}, {Part: Headers, Name: headers}}
	for _, name := range headerPackages(field(about, "Depends")) {
		wanted = append(wanted, Package{Part: Headers, Name: name})
	}
	wanted = append(wanted, Package{Part: Source, Name: "linux-source-" + series})
	for _, p := range wanted {
		about, err := a.run(ctx, "", "apt-cache", "show", p.Name+"="+best.version)
		if err != nil {
			return Pin{}, err
		}
		p.SHA256 = field(about, "SHA256")
		if !plainHash.MatchString(p.SHA256) {
			return Pin{}, fmt.Errorf("apt knows no SHA256 of %s version %s, so it cannot be pinned", p.Name, best.version)
		}
		pin.Packages = append(pin.Packages, p)
	}
	return pin, nil
}

// candidates are the kernels of a series that could be pinned, for messages.
func candidates(ctx context.Context, a apt, series string) string {
	offers, err := seriesOffers(ctx, a, series)
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

// seriesOffers lists the plain kernels of a series: not for clouds, not
// real-time, not without a signature.
func seriesOffers(ctx context.Context, a apt, series string) ([]offer, error) {
	pattern := `^linux-image-` + regexp.QuoteMeta(series) + `\.[0-9]+(-[0-9]+|\+deb[0-9]+)?-amd64$`
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

// bestOffer chooses: what is in a release proper before what is not, then the
// newest. nil if there is none.
func bestOffer(offers []offer, newer func(x, y string) bool) *offer {
	var best *offer
	for _, o := range offers {
		if best == nil || (o.stable && !best.stable) || (o.stable == best.stable && newer(o.version, best.version)) {
			best = &o
		}
	}
	return best
}

// newer says whether Debian's version x is greater than y.
func newer(ctx context.Context, x, y string) bool {
	_, err := tools{}.output(ctx, "", "dpkg", "--compare-versions", x, "gt", y)
	return err == nil
}

// headerPackages are those packages among dependencies that headers need to
// build a module: the common headers and kbuild's programs.
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

// field is the value of a field in a package's control text, of its first
// paragraph.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+": "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// WritePins replaces the pin file by these pins, as a whole or not at all.
func WritePins(path string, pins []Pin) error {
	text := FormatPins(pins)
	if _, err := parsePins(text); err != nil {
		return fmt.Errorf("not written, because it would not be read again: %w", err)
	}
	old, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot renew %s: %w; run in the source tree, or name the file with --file", path, err)
	}
	if !old.Mode().IsRegular() {
		return errors.New(path + " is no regular file")
	}
	next := path + ".new"
	if err := os.WriteFile(next, text, old.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(next, path)
}
