package blockstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Transaction is one commit of jbd2, as it is in the journal.
type Transaction struct {
	Blocks []LoggedBlock
	// Revoked blocks are not replayed from this or earlier transactions.
	Revoked []uint64
}

// LoggedBlock is a block with its new content.
type LoggedBlock struct {
	Number  uint64
	Content []byte
}

// Journal is the superblock of a jbd2 journal on a separate device, as far as
// reading needs it. Documentation/filesystems/ext4/journal.rst of Linux
// describes the format.
type Journal struct {
	// Blocks is the number of blocks of the journal, First the first one of its
	// log.
	Blocks, First uint32
	// Sequence is the first transaction of a recovery; if there is nothing to
	// recover, the one before the next.
	Sequence uint32
	features uint32
	uuid     [16]byte
}

const (
	journalMagic = 0xc03b3998

	typeDescriptor = 1
	typeCommit     = 2
	typeSuper      = 4 // version 2; version 1 knows no features
	typeRevoke     = 5

	featureRevoke     = 0x01
	feature64Bit      = 0x02
	featureAsync      = 0x04
	featureChecksumV2 = 0x08
	featureChecksumV3 = 0x10
	featuresKnown     = featureRevoke | feature64Bit | featureAsync | featureChecksumV2 | featureChecksumV3

	flagEscaped  = 1
	flagSameUUID = 2
	flagLast     = 8

	journalHeadBytes = 12
	// The journal's superblock follows the block with the device's.
	journalSuperBlock = 1
)

var (
	be      = binary.BigEndian
	crc32c  = crc32.MakeTable(crc32.Castagnoli)
	errOver = errors.New("the journal ends here")
)

// checksum continues a CRC-32C that is not inverted at the ends, like the
// kernel's.
func checksum(crc uint32, b []byte) uint32 { return ^crc32.Update(^crc, crc32c, b) }

// ReadJournal reads the superblock of an external journal with blocks of
// BlockBytes.
func ReadJournal(device io.ReaderAt) (Journal, error) {
	b := make([]byte, 1024)
	if _, err := device.ReadAt(b, journalSuperBlock*BlockBytes); err != nil {
		return Journal{}, fmt.Errorf("cannot read journal: %w", err)
	}
	j := Journal{
		Blocks: be.Uint32(b[0x10:]), First: be.Uint32(b[0x14:]), Sequence: be.Uint32(b[0x18:]),
		features: be.Uint32(b[0x28:]), uuid: [16]byte(b[0x30:]),
	}
	switch {
	case be.Uint32(b) != journalMagic || be.Uint32(b[4:]) != typeSuper:
		return Journal{}, errors.New("cannot read journal: block 1 is no superblock of jbd2, version 2")
	case be.Uint32(b[0x0c:]) != BlockBytes:
		return Journal{}, fmt.Errorf("cannot read journal: blocks of %d bytes, want %d", be.Uint32(b[0x0c:]), BlockBytes)
	case j.features&^featuresKnown != 0:
		return Journal{}, fmt.Errorf("cannot read journal: it has unknown features, %#x of %#x", j.features&^featuresKnown, j.features)
	case j.First <= journalSuperBlock || j.First >= j.Blocks:
		return Journal{}, fmt.Errorf("cannot read journal: its log begins at block %d of %d", j.First, j.Blocks)
	}
	return j, nil
}

func (j Journal) checksummed() bool { return j.features&(featureChecksumV2|featureChecksumV3) != 0 }

// tagBytes is the size of the tag that a descriptor block has for each logged
// block.
func (j Journal) tagBytes() int {
	if j.features&featureChecksumV3 != 0 {
		return 16
	}
	bytes := 8
	if j.features&feature64Bit != 0 {
		bytes += 4
	}
	if j.features&featureChecksumV2 != 0 {
		bytes += 2
	}
	return bytes
}

// Transactions calls visit for each transaction from the log's first block on,
// the first one being first, until the log ends or visit returns an error. It
// ignores the tail, so it also finds checkpointed transactions. It does not
// wrap around: a log that restarted from its first block is an error.
func (j Journal) Transactions(device io.ReaderAt, first uint32, visit func(Transaction) error) error {
	reader := logReader{Journal: j, device: device, at: j.First, sequence: first}
	for {
		t, err := reader.next()
		if errors.Is(err, errOver) {
			return nil
		}
		if err == nil {
			err = visit(t)
		}
		if err != nil {
			return fmt.Errorf("journal, transaction %d, block %d: %w", reader.sequence, reader.at, err)
		}
		reader.sequence++
	}
}

type logReader struct {
	Journal
	device   io.ReaderAt
	at       uint32 // the next block
	sequence uint32 // of the transaction that is read
}

func (r *logReader) block() ([]byte, error) {
	if r.at >= r.Blocks {
		return nil, errors.New("the log wraps around; record with a larger journal")
	}
	b := make([]byte, BlockBytes)
	if _, err := r.device.ReadAt(b, int64(r.at)*BlockBytes); err != nil {
		return nil, err
	}
	r.at++
	return b, nil
}

// next reads a transaction up to its commit block; without one there is no
// transaction.
func (r *logReader) next() (Transaction, error) {
	var t Transaction
	for first := r.at; ; {
		b, err := r.block()
		if err != nil {
			return t, err
		}
		if be.Uint32(b) != journalMagic || be.Uint32(b[8:]) != r.sequence {
			if r.at == r.First+1 {
				return t, fmt.Errorf("the log begins with another transaction (% x): it wrapped around, or nothing was logged", b[:journalHeadBytes])
			}
			r.at = first
			return t, errOver
		}
		switch kind := be.Uint32(b[4:]); kind {
		case typeDescriptor:
			err = r.described(&t, b)
		case typeRevoke:
			err = r.revoked(&t, b)
		case typeCommit:
			if r.checksummed() && !r.sound(b, 16) {
				return t, errors.New("the commit block's checksum is wrong")
			}
			return t, nil
		default:
			err = fmt.Errorf("a block of type %d", kind)
		}
		if err != nil {
			return t, err
		}
	}
}

// sound reports whether the block's checksum, at the offset, is correct.
func (r *logReader) sound(b []byte, offset int) bool {
	crc := checksum(^uint32(0), r.uuid[:])
	crc = checksum(crc, b[:offset])
	crc = checksum(crc, make([]byte, 4))
	return checksum(crc, b[offset+4:]) == be.Uint32(b[offset:])
}

// described reads the blocks that a descriptor block lists.
func (r *logReader) described(t *Transaction, b []byte) error {
	end := BlockBytes
	if r.checksummed() {
		end -= 4
		if !r.sound(b, end) {
			return errors.New("the descriptor's checksum is wrong")
		}
	}
	for at, last := journalHeadBytes, false; !last; {
		if at+r.tagBytes() > end {
			return errors.New("a descriptor without a last tag")
		}
		tag := b[at : at+r.tagBytes()]
		number, flags := uint64(be.Uint32(tag)), uint32(be.Uint16(tag[6:]))
		if r.features&featureChecksumV3 != 0 {
			flags = be.Uint32(tag[4:])
		}
		if r.features&feature64Bit != 0 {
			number |= uint64(be.Uint32(tag[8:])) << 32
		}
		at += r.tagBytes()
		if flags&flagSameUUID == 0 {
			at += len(r.uuid)
		}
		last = flags&flagLast != 0
		content, err := r.block()
		if err != nil {
			return err
		}
		if r.checksummed() && !r.soundContent(tag, content) {
			return fmt.Errorf("the checksum of block %d is wrong", number)
		}
		if flags&flagEscaped != 0 {
			be.PutUint32(content, journalMagic)
		}
		t.Blocks = append(t.Blocks, LoggedBlock{number, content})
	}
	return nil
}

// soundContent compares the checksum of a logged block: version 2 stores only
// its lower half.
func (r *logReader) soundContent(tag, content []byte) bool {
	crc := checksum(^uint32(0), r.uuid[:])
	crc = checksum(crc, be.AppendUint32(nil, r.sequence))
	crc = checksum(crc, content)
	if r.features&featureChecksumV3 != 0 {
		return crc == be.Uint32(tag[12:])
	}
	return uint16(crc) == be.Uint16(tag[4:])
}

func (r *logReader) revoked(t *Transaction, b []byte) error {
	end := int(be.Uint32(b[12:]))
	limit := BlockBytes
	if r.checksummed() {
		limit -= 4
		if !r.sound(b, limit) {
			return errors.New("the checksum of a revoke block is wrong")
		}
	}
	if end < 16 || end > limit {
		return fmt.Errorf("a revoke block of %d bytes", end)
	}
	for entry := b[16:end]; len(entry) >= 4; {
		if r.features&feature64Bit == 0 {
			t.Revoked = append(t.Revoked, uint64(be.Uint32(entry)))
			entry = entry[4:]
			continue
		}
		if len(entry) < 8 {
			return errors.New("half an entry in a revoke block")
		}
		t.Revoked = append(t.Revoked, be.Uint64(entry))
		entry = entry[8:]
	}
	return nil
}
