package vm

import (
	"context"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/rootfs"
)

// openRoot opens the root file system with systemd, with or without container engines. It
// makes an overlay without a name for the guest's writes.
func openRoot(ctx context.Context, store kernels.Store, engines bool) ([]*os.File, error) {
	image, err := rootfs.Store{Dir: store.Dir, Engines: engines, Log: store.Log}.Get(ctx)
	if err != nil {
		return nil, err
	}
	root, err := os.Open(image.Path)
	if err != nil {
		return nil, err
	}
	overlay, err := tempFile(store.Dir)
	if err != nil {
		root.Close()
		return nil, err
	}
	// The backing file of the overlay is given when QEMU starts, because QEMU has the
	// files under other descriptors.
	const inherited = 3 // the first
	_, err = program.Run(ctx, program.Command{
		Path: "qemu-img", IfMissing: "scripts/setup vm installs it", Inherited: []*os.File{overlay},
		Args: []string{"create", "-q", "-f", "qcow2", descriptorPath(inherited), fmt.Sprint(rootfs.ImageBytes)},
	})
	if err != nil {
		root.Close()
		overlay.Close()
		return nil, err
	}
	return []*os.File{root, overlay}, nil
}
