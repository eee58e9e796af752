package blockstream

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// differ converts logged blocks into changed lines. It stores the last content
// of each known block.
type differ struct {
	home    io.ReaderAt // as it was before the recording
	images  map[uint64][]byte
	initial []Update
}

func newDiffer(home io.ReaderAt) *differ {
	return &differ{home: home, images: map[uint64][]byte{}}
}

// operation returns the changes of the transactions together. A block without a
// change is skipped, as a journal that compares would do.
func (d *differ) operation(kind Kind, transactions []Transaction) (Operation, error) {
	last := map[uint64][]byte{}
	var order []uint64
	for _, t := range transactions {
		for _, b := range t.Blocks {
			if _, met := last[b.Number]; !met {
				order = append(order, b.Number)
			}
			last[b.Number] = b.Content
		}
	}
	o := Operation{Kind: kind}
	for _, number := range order {
		image, err := d.image(number)
		if err != nil {
			return o, err
		}
		if u := difference(number, image, last[number]); u.Mask != 0 {
			o.Updates = append(o.Updates, u)
		}
		copy(image, last[number])
	}
	if len(o.Updates) > MaxUpdates {
		return o, fmt.Errorf("an operation changed %d blocks, want at most %d", len(o.Updates), MaxUpdates)
	}
	return o, nil
}

// image returns the current content of the block.
func (d *differ) image(number uint64) ([]byte, error) {
	if image, met := d.images[number]; met {
		return image, nil
	}
	image := make([]byte, BlockBytes)
	if _, err := d.home.ReadAt(image, int64(number)*BlockBytes); err != nil {
		return nil, fmt.Errorf("cannot read block %d as it was: %w", number, err)
	}
	d.images[number] = image
	if u := difference(number, make([]byte, BlockBytes), image); u.Mask != 0 {
		d.initial = append(d.initial, u)
	}
	return image, nil
}

// first returns the operations that make the blocks as they were before the
// recording.
func (d *differ) first() Stream {
	var s Stream
	for updates := range slices.Chunk(d.initial, MaxUpdates) {
		s = append(s, Operation{Kind: Initial, Updates: updates})
	}
	return s
}

func difference(number uint64, before, now []byte) Update {
	u := Update{Block: number}
	for line := range BlockBytes / LineBytes {
		at := line * LineBytes
		if !bytes.Equal(before[at:at+LineBytes], now[at:at+LineBytes]) {
			u.Mask |= 1 << line
			u.Lines = append(u.Lines, now[at:at+LineBytes]...)
		}
	}
	return u
}

// Replay returns each block of the stream as it is at the end.
func (s Stream) Replay() map[uint64][]byte {
	images := map[uint64][]byte{}
	for _, o := range s {
		for _, u := range o.Updates {
			image, met := images[u.Block]
			if !met {
				image = make([]byte, BlockBytes)
				images[u.Block] = image
			}
			lines := u.Lines
			for line := range BlockBytes / LineBytes {
				if u.Mask>>line&1 != 0 {
					copy(image[line*LineBytes:], lines[:LineBytes])
					lines = lines[LineBytes:]
				}
			}
		}
	}
	return images
}
