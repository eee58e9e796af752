// Command image writes a container image with one program in it, as a file that
// "docker load", "podman load" and "crane push" take. It needs no daemon, and the same
// input gives the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	arch := flag.String("arch", "", "`GOARCH` of the program")
	program := flag.String("program", "", "`FILE` that becomes /usr/bin/daybook")
	version := flag.String("version", "", "`VERSION` of the package; ~ becomes - in the tag")
	epoch := flag.Int64("epoch", 0, "date of the image, in `SECONDS` since 1970")
	output := flag.String("output", "", "the `FILE` to write")
	flag.Parse()
	if flag.NArg() > 0 || *arch == "" || *program == "" || *version == "" || *output == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*arch, *program, *version, *output, time.Unix(*epoch, 0).UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(arch, program, version, output string, date time.Time) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	packed, err := archive(content, date)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: date}, CreatedBy: "packaging/tools/image"}}); err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: date}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/daybook"},
		Cmd:        []string{"metrics"},
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "daybook",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0 AND GPL-2.0-only",
			"org.opencontainers.image.source":   "https://github.com/daybook-project/daybook",
		},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tag, err := name.NewTag("daybook:" + tagOf(version))
	if err != nil {
		return err
	}
	file, err := os.Create(output)
	if err != nil {
		return err
	}
	return errors.Join(tarball.Write(tag, image, file), file.Close())
}

// tagOf is the version with what no tag may have replaced.
func tagOf(version string) string {
	tag := []byte(version)
	for i, c := range tag {
		if c == '~' || c == '+' {
			tag[i] = '-'
		}
	}
	return string(tag)
}

// archive is the one layer: the program, and the empty directories that it, and the
// mounts of the host's, want.
func archive(program []byte, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"tmp", "usr", "usr/bin", "var", "var/lib"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode, ModTime: date}); err != nil {
			return nil, err
		}
	}
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/daybook", Mode: 0o755, Size: int64(len(program)), ModTime: date})
	if err == nil {
		_, err = w.Write(program)
	}
	return out.Bytes(), errors.Join(err, w.Close())
}
