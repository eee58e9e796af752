package journal

import (
	"bytes"
	"encoding/binary"
)

// kernelTypes has the kernel's types as BTF (Documentation/bpf/btf.rst).
const kernelTypes = "/sys/kernel/btf/vmlinux"

// The kinds of BTF that have further data after a type.
const (
	btfInt         = 1
	btfArray       = 3
	btfStruct      = 4
	btfUnion       = 5
	btfEnum        = 6
	btfFuncProto   = 13
	btfVariable    = 14
	btfDataSection = 15
	btfDeclTag     = 17
	btfEnum64      = 19
	btfLastKind    = btfEnum64
)

// btfData is the size of a type's further data, and of that for each of its members.
var btfData = [btfLastKind + 1]struct{ fixed, member int }{
	btfInt: {fixed: 4}, btfArray: {fixed: 12}, btfStruct: {member: 12}, btfUnion: {member: 12}, btfEnum: {member: 8},
	btfFuncProto: {member: 8}, btfVariable: {fixed: 4}, btfDataSection: {member: 12}, btfDeclTag: {fixed: 4}, btfEnum64: {member: 12},
}

const btfTypeSize = 12

// enumValue returns a value of an enumeration that has no name, from BTF. The library
// for BTF finds only types with names, unless it decodes all types, which takes 1 s and
// 40 MB. known is false if there is none, also because of a kind that is newer than this.
func enumValue(text []byte, name string) (value uint32, known bool) {
	order := binary.NativeEndian
	if len(text) < 24 || order.Uint16(text) != 0xeb9f {
		return 0, false
	}
	header := uint64(order.Uint32(text[4:]))
	section := func(offset, length uint32) []byte {
		from := header + uint64(offset)
		until := from + uint64(length)
		if until > uint64(len(text)) {
			return nil
		}
		return text[from:until]
	}
	types := section(order.Uint32(text[8:]), order.Uint32(text[12:]))
	names := section(order.Uint32(text[16:]), order.Uint32(text[20:]))
	at := bytes.Index(names, []byte("\x00"+name+"\x00"))
	if at < 0 {
		return 0, false
	}
	for len(types) >= btfTypeSize {
		information := order.Uint32(types[4:])
		kind, members := information>>24&0x1f, int(information&0xffff)
		if kind > btfLastKind {
			return 0, false
		}
		size := btfTypeSize + btfData[kind].fixed + members*btfData[kind].member
		if size > len(types) {
			return 0, false
		}
		if kind == btfEnum && order.Uint32(types) == 0 {
			for member := types[btfTypeSize:size]; len(member) > 0; member = member[8:] {
				if order.Uint32(member) == uint32(at+1) {
					return order.Uint32(member[4:]), true
				}
			}
		}
		types = types[size:]
	}
	return 0, false
}
