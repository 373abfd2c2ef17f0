package ncclcall

import "encoding/binary"

// hasher is NCCL's Hasher, src/include/bitops.h, since 2.26 for unique ids and since
// 2.24 for splits.
type hasher struct{ x, y uint64 }

func newHasher() hasher { return hasher{1, 1} }

func (h *hasher) eat(b []byte) {
	h.x ^= uint64(len(b))
	for len(b) > 0 {
		h.x += h.y
		h.y ^= h.x
		h.x ^= h.x >> 31
		h.x *= 0x9de62bbc8cef3ce3
		h.y ^= h.y >> 32
		h.y *= 0x485cd6311b599e79
		var word [8]byte
		n := copy(word[:], b)
		b = b[n:]
		h.x += binary.LittleEndian.Uint64(word[:])
	}
}

func (h *hasher) sum() uint64 {
	d := h.x
	d ^= d >> 31
	d *= 0xbac3bd562846de6b
	d += h.y
	d ^= d >> 32
	return d * 0x995a187a14e7b445
}

// idHashes are the commHash of a communicator made from a unique id: first that of NCCL
// 2.26 and later, then that of before (DJB2a over signed bytes, src/misc/utils.cc).
func idHashes(id []byte) []uint64 {
	h := newHasher()
	h.eat(id)
	old := uint64(5381)
	for _, b := range id {
		old = (old<<5 + old) ^ uint64(int64(int8(b)))
	}
	return []uint64{h.sum(), old}
}

// splitHash is the commHash of what the n-th split of a communicator makes of one
// color, since NCCL 2.24 (src/init.cc).
func splitHash(parent uint64, n, color int32) uint64 {
	h := newHasher()
	h.eat(binary.LittleEndian.AppendUint64(nil, parent))
	h.eat(binary.LittleEndian.AppendUint32(nil, uint32(n)))
	h.eat(binary.LittleEndian.AppendUint32(nil, uint32(color)))
	return h.sum()
}

// IDHash is the commHash of a communicator made from that unique id, as NCCL 2.26 and
// later compute it.
func IDHash(id []byte) uint64 { return idHashes(id)[0] }
