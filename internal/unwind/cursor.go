package unwind

import "encoding/binary"

// cursor reads numbers from bytes, forward. Behind the end it is bad, and all numbers are 0.
type cursor struct {
	bytes   []byte
	address uint64 // of the first byte
	at      int
	bad     bool
}

func (c *cursor) fixed(n int) uint64 {
	if n > len(c.bytes)-c.at {
		c.bad, c.at = true, len(c.bytes)
		return 0
	}
	var word [8]byte
	copy(word[:], c.bytes[c.at:c.at+n])
	c.at += n
	return binary.LittleEndian.Uint64(word[:])
}

func (c *cursor) byte() byte { return byte(c.fixed(1)) }

// leb is a LEB128 number, and in which bit its sign is.
func (c *cursor) leb() (value uint64, bits uint) {
	for {
		b := c.byte()
		if bits < 64 {
			value |= uint64(b&0x7f) << bits
		}
		bits += 7
		if b&0x80 == 0 || c.bad {
			return value, bits
		}
	}
}

func (c *cursor) uleb() uint64 {
	value, _ := c.leb()
	return value
}

func (c *cursor) sleb() int64 {
	value, bits := c.leb()
	if bits < 64 && value&(1<<(bits-1)) != 0 {
		value |= ^uint64(0) << bits
	}
	return int64(value)
}

// skip passes over n bytes and returns them.
func (c *cursor) skip(n uint64) []byte {
	if n > uint64(len(c.bytes)-c.at) {
		c.bad, c.at = true, len(c.bytes)
		return nil
	}
	c.at += int(n)
	return c.bytes[c.at-int(n) : c.at]
}

// Encodings of pointers in .eh_frame (Linux Standard Base, 10.5).
const (
	encodingOmit  = 0xff
	encodingPCRel = 0x10
	encodingBase  = 0x70 // the bits that say what it is relative to
)

// pointer is an encoded pointer. What is relative to anything but itself is bad.
func (c *cursor) pointer(encoding byte) uint64 {
	if encoding == encodingOmit {
		return 0
	}
	here, value := c.address+uint64(c.at), uint64(0)
	switch encoding & 0xf {
	case 0x0, 0x4, 0xc: // absptr, udata8, sdata8
		value = c.fixed(8)
	case 0x1:
		value = c.uleb()
	case 0x2:
		value = c.fixed(2)
	case 0x3:
		value = c.fixed(4)
	case 0x9:
		value = uint64(c.sleb())
	case 0xa:
		value = uint64(int64(int16(c.fixed(2))))
	case 0xb:
		value = uint64(int64(int32(c.fixed(4))))
	default:
		c.bad = true
	}
	switch encoding & encodingBase {
	case 0:
	case encodingPCRel:
		value += here
	default:
		c.bad = true
	}
	return value
}
