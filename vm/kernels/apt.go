package kernels

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// apt asks Debian's package manager. It never installs, needs no root, and
// uses the sources that the host has configured.
type apt struct {
	tools
	// private is a directory for package lists of our own, "" for the host's.
	private string
}

// options that keep apt to what is ours.
func (a apt) options() []string {
	options := []string{"-o", "APT::Sandbox::User=", "-q"}
	if a.private != "" {
		options = append(options,
			"-o", "Dir::State::lists="+filepath.Join(a.private, "lists"),
			"-o", "Dir::Cache="+a.private)
	}
	return options
}

// run runs a program of apt in a directory and gives its standard output.
func (a apt) run(ctx context.Context, dir, program string, args ...string) (string, error) {
	return a.output(ctx, dir, program, append(a.options(), args...)...)
}

// update fetches fresh package lists into the private directory.
func (a apt) update(ctx context.Context) error {
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.private, dir), 0o755); err != nil {
			return err
		}
	}
	_, err := a.run(ctx, "", "apt-get", "update")
	return err
}

// offer is one version of a package in one archive.
type offer struct {
	name, version string
	// stable says that it is in a release proper, such as bookworm, not in
	// one of its additions, such as bookworm-security: there it stays longest.
	stable bool
}

// offers lists the versions of packages that the archives have.
func (a apt) offers(ctx context.Context, names ...string) ([]offer, error) {
	if len(names) == 0 {
		return nil, nil
	}
	text, err := a.run(ctx, "", "apt-cache", append([]string{"madison"}, names...)...)
	if err != nil {
		return nil, err
	}
	return parseMadison(text), nil
}

// parseMadison reads "name | version | address suite/component arch Packages".
func parseMadison(text string) []offer {
	var offers []offer
	for line := range strings.Lines(text) {
		fields := strings.Split(line, "|")
		if len(fields) != 3 || !strings.HasSuffix(strings.TrimSpace(fields[2]), " Packages") {
			continue
		}
		where := strings.Fields(fields[2])
		suite, _, _ := strings.Cut(where[min(1, len(where)-1)], "/")
		offers = append(offers, offer{
			name:    strings.TrimSpace(fields[0]),
			version: strings.TrimSpace(fields[1]),
			stable:  !strings.Contains(suite, "-"),
		})
	}
	return offers
}

// has says whether the archives have that version, as the lists know.
func (a apt) has(ctx context.Context, name, version string) bool {
	offers, err := a.offers(ctx, name)
	if err != nil {
		return false
	}
	for _, o := range offers {
		if o.version == version {
			return true
		}
	}
	return false
}
