package pystack

// lineTable is the line table of a code object.
type lineTable struct {
	minor int
	first int // its first line
	bytes []byte
}

// line is the line of an instruction, which is counted in bytes; 0 for one that has none.
func (t lineTable) line(at int64) int {
	switch {
	case t.minor >= 11:
		line, _ := t.locations(at / 2)
		return line
	case t.minor == 10:
		return t.ranges(at)
	}
	return t.steps(at)
}

// steps reads co_lnotab (Objects/lnotab_notes.txt of 3.8): pairs of a step in bytes and a
// step in lines.
func (t lineTable) steps(at int64) int {
	line, address := t.first, int64(0)
	for i := 0; i+1 < len(t.bytes); i += 2 {
		address += int64(t.bytes[i])
		if address > at {
			break
		}
		line += int(int8(t.bytes[i+1]))
	}
	return line
}

// noLine is the step of a range that has no line (Objects/lnotab_notes.txt of 3.10).
const noLine = -128

// ranges reads co_linetable of 3.10: pairs of a length in bytes and a step in lines, which
// comes before it.
func (t lineTable) ranges(at int64) int {
	line, end := t.first, int64(0)
	for i := 0; i+1 < len(t.bytes); i += 2 {
		step := int8(t.bytes[i+1])
		end += int64(t.bytes[i])
		if step != noLine {
			line += int(step)
		}
		if at < end {
			if step == noLine {
				return 0
			}
			return line
		}
	}
	return line
}

// Kinds of an entry of a location table (Objects/locations.md of 3.11).
const (
	kindShortLast = 9  // no step in lines, two bytes of columns in one
	kindLineFirst = 10 // a step of 0, 1 or 2 lines
	kindLineLast  = 12
	kindNoColumns = 13
	kindLong      = 14
	kindNone      = 15
)

// locations reads co_linetable from 3.11 on, up to an instruction by its number. rest is how
// many bytes of the table lie behind its entry, negative where it has none.
func (t lineTable) locations(at int64) (line, rest int) {
	if at < 0 {
		return t.first, len(t.bytes)
	}
	end := int64(0)
	line = t.first
	r := varints{t.bytes}
	for len(r.b) > 0 {
		head := r.b[0]
		r.skip(1)
		if head&0x80 == 0 { // each entry begins with a byte that has this bit
			return 0, len(r.b)
		}
		kind := head >> 3 & 15
		end += int64(head&7) + 1
		switch {
		case kind <= kindShortLast:
			r.skip(1)
		case kind <= kindLineLast:
			line += int(kind - kindLineFirst)
			r.skip(2)
		case kind == kindNoColumns:
			line += r.signed()
		case kind == kindLong:
			line += r.signed()
			r.unsigned() // lines to its end
			r.unsigned() // columns
			r.unsigned()
		}
		if end > at {
			if kind == kindNone {
				return 0, len(r.b)
			}
			return line, len(r.b)
		}
	}
	return line, -1
}

// varints reads numbers of 6 bits a byte, the lowest first.
type varints struct{ b []byte }

func (r *varints) skip(n int) { r.b = r.b[min(n, len(r.b)):] }

func (r *varints) unsigned() (v uint32) {
	for shift := 0; len(r.b) > 0 && shift < 30; shift += 6 {
		b := r.b[0]
		r.skip(1)
		v |= uint32(b&63) << shift
		if b&64 == 0 {
			break
		}
	}
	return v
}

func (r *varints) signed() int {
	v := r.unsigned()
	if v&1 == 1 {
		return -int(v >> 1)
	}
	return int(v >> 1)
}
