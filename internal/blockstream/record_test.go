package blockstream

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// superblockEnd limits what unmounting writes outside the journal: the fields of
// the superblock, in the first block.
const superblockEnd = 2048

func TestARecordingMakesTheDiskThatTheKernelWrote(t *testing.T) {
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	needs.That(t, loopsThere(), "loop devices")
	for _, load := range []string{"varmail", "create"} {
		t.Run(load, func(t *testing.T) {
			home := map[uint64][]byte{}
			o := Options{Load: load, Operations: 300, Seed: 7, Directory: t.TempDir()}
			var device io.ReaderAt
			r, err := Record(t.Context(), o, func(d io.ReaderAt) error {
				device = d
				for number := range uint64(HomeBytes / BlockBytes) {
					b := make([]byte, BlockBytes)
					if _, err := device.ReadAt(b, int64(number)*BlockBytes); err != nil {
						return err
					}
					if !bytes.Equal(b, make([]byte, BlockBytes)) {
						home[number] = b
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			compared := 0
			for number, image := range r.Stream.Replay() {
				on, there := home[number]
				if !there {
					on = make([]byte, BlockBytes)
				}
				if r.Revoked[number] {
					continue
				}
				if number == 0 {
					image, on = image[superblockEnd:], on[superblockEnd:]
				}
				if !bytes.Equal(image, on) {
					t.Errorf("block %d differs from the disk, first at byte %d", number, firstDifference(image, on))
				}
				compared++
			}
			if compared < 20 {
				t.Errorf("compared %d blocks, want at least 20", compared)
			}
			if c := r.Stream.Count(); c.Operations < o.Operations*2/3 || c.Updates < 2*c.Operations {
				t.Errorf("%d operations with %d updates of %d that were done", c.Operations, c.Updates, o.Operations)
			}
		})
	}
}

func loopsThere() bool {
	_, err := os.Stat("/dev/loop-control")
	return err == nil
}

func firstDifference(a, b []byte) int {
	for n := range a {
		if a[n] != b[n] {
			return n
		}
	}
	return -1
}

// journal is a small log made by hand, with checksums.
type journal struct {
	Journal
	image []byte
}

func newJournal(features uint32) *journal {
	j := &journal{image: make([]byte, 32*BlockBytes)}
	super := j.block(journalSuperBlock)
	for at, value := range map[int]uint32{0: journalMagic, 4: typeSuper, 0x0c: BlockBytes, 0x10: 32, 0x14: 2, 0x18: 4, 0x28: features} {
		be.PutUint32(super[at:], value)
	}
	copy(super[0x30:], "0123456789abcdef")
	var err error
	if j.Journal, err = ReadJournal(bytes.NewReader(j.image)); err != nil {
		panic(err)
	}
	return j
}

func (j *journal) block(n int) []byte { return j.image[n*BlockBytes : (n+1)*BlockBytes] }

func (j *journal) head(n int, kind, sequence uint32) []byte {
	b := j.block(n)
	be.PutUint32(b, journalMagic)
	be.PutUint32(b[4:], kind)
	be.PutUint32(b[8:], sequence)
	return b
}

// seal writes the block's checksum at the offset.
func (j *journal) seal(b []byte, offset int) {
	crc := checksum(^uint32(0), j.uuid[:])
	be.PutUint32(b[offset:], 0)
	be.PutUint32(b[offset:], checksum(crc, b))
}

func (j *journal) transaction(t *testing.T) (all []Transaction, err error) {
	t.Helper()
	err = j.Transactions(bytes.NewReader(j.image), 5, func(tr Transaction) error {
		all = append(all, tr)
		return nil
	})
	return all, err
}

// logged makes transaction 5: a descriptor with an escaped block of a number over
// 32 bits, a revoke of block 77, and the commit.
func logged() *journal {
	j := newJournal(feature64Bit | featureChecksumV3 | featureRevoke)
	b := j.head(2, typeDescriptor, 5)
	be.PutUint32(b[12:], 9)
	be.PutUint32(b[16:], flagEscaped|flagLast)
	be.PutUint32(b[20:], 3)
	content := j.block(3)
	content[100] = 42
	crc := checksum(^uint32(0), j.uuid[:])
	crc = checksum(crc, binary.BigEndian.AppendUint32(nil, 5))
	be.PutUint32(b[24:], checksum(crc, content))
	j.seal(b, BlockBytes-4)
	b = j.head(4, typeRevoke, 5)
	be.PutUint32(b[12:], 24)
	be.PutUint64(b[16:], 77)
	j.seal(b, BlockBytes-4)
	j.seal(j.head(5, typeCommit, 5), 16)
	return j
}

func TestEscapedBlocksHighNumbersAndRevokesAreRead(t *testing.T) {
	all, err := logged().transaction(t)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d transactions, %v", len(all), err)
	}
	got := all[0]
	if len(got.Blocks) != 1 || got.Blocks[0].Number != 3<<32|9 || be.Uint32(got.Blocks[0].Content) != journalMagic || got.Blocks[0].Content[100] != 42 {
		t.Errorf("the logged block is %+v", got.Blocks)
	}
	if len(got.Revoked) != 1 || got.Revoked[0] != 77 {
		t.Errorf("revoked %v, want 77", got.Revoked)
	}
}

func TestADamagedJournalIsAnError(t *testing.T) {
	for _, at := range []int{2*BlockBytes + 13, 3*BlockBytes + 500, 4*BlockBytes + 20, 5*BlockBytes + 40} {
		j := logged()
		j.image[at] ^= 1
		if all, err := j.transaction(t); err == nil {
			t.Errorf("byte %d of block %d flipped: %d transactions, no error", at%BlockBytes, at/BlockBytes, len(all))
		}
	}
}

func TestATransactionWithoutACommitIsNone(t *testing.T) {
	j := logged()
	clear(j.block(5))
	if all, err := j.transaction(t); err != nil || len(all) != 0 {
		t.Errorf("%d transactions, %v", len(all), err)
	}
}

func TestALogThatWrappedAroundIsAnError(t *testing.T) {
	j := logged()
	if err := j.Transactions(bytes.NewReader(j.image), 4, func(Transaction) error { return nil }); err == nil {
		t.Error("a log that begins with a later transaction was read as if it were whole")
	}
}
