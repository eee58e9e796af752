// Package transfer moves the content of a volume into a stream and out of it. It knows the
// images, or devices, and the stream, but no pool. The package stream has the format.
package transfer

import (
	"context"
	"fmt"
	"io"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/volume/internal/cause"
	"github.com/daybook-project/daybook/volume/internal/chunk"
	"github.com/daybook-project/daybook/volume/internal/imagefile"
	"github.com/daybook-project/daybook/volume/internal/stream"
)

// CheckSendable refuses blocks that have no ext4, or one with its journal elsewhere. The error
// wraps cause.ErrCorrupt or cause.ErrUnsupported.
func CheckSendable(node string) error {
	fs, err := ext4.ReadSuperblock(node)
	if err != nil {
		return fmt.Errorf("its image is %w: %w", cause.ErrCorrupt, err)
	}
	if fs.External() {
		return fmt.Errorf("%w: its journal is on another device: send a clone, which has it inside", cause.ErrUnsupported)
	}
	return nil
}

// Send writes a stream with this header. It reads the image and its base side by side; base is
// nil if the header has none.
func Send(ctx context.Context, w io.Writer, header stream.Header, image, base *imagefile.Reader, progress imagefile.Progress) error {
	outgoing, err := stream.NewWriter(w, header)
	if err != nil {
		return err
	}
	size := header.SizeBytes
	sums := make([]chunk.Sum, chunk.Count(size))
	var baseSums []chunk.Sum
	if base != nil {
		baseSums = make([]chunk.Sum, chunk.Count(base.SizeBytes))
	}
	for index := range max(len(sums), len(baseSums)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		var before []byte
		if index < len(baseSums) {
			if before, err = base.Part(index); err != nil {
				return err
			}
			baseSums[index] = chunk.SumOf(before)
		}
		if index >= len(sums) {
			continue // the image has shrunk since
		}
		part, err := image.Part(index)
		if err != nil {
			return err
		}
		sums[index] = chunk.SumOf(part)
		if err := outgoing.Difference(uint64(index)*chunk.Bytes, min(chunk.Bytes, size-uint64(index)*chunk.Bytes), before, part); err != nil {
			return err
		}
		progress.Report(min(uint64(index+1)*chunk.Bytes, size), size)
	}
	var baseSum chunk.Sum
	if base != nil {
		baseSum = chunk.ImageSum(base.SizeBytes, baseSums)
	}
	return outgoing.End(baseSum, chunk.ImageSum(size, sums))
}
