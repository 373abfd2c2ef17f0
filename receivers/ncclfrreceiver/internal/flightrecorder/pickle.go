package flightrecorder

import "fmt"

// The opcodes of the pickle language that a dump needs (pickletools.py of
// CPython has them all). PyTorch writes protocol 2 and of it containers, text,
// numbers, booleans, None and the memo (torch/csrc/jit/serialization/pickler.cpp);
// SETITEM, APPEND, TUPLE and EMPTY_TUPLE come from Python's own protocol 2, when
// a tool has loaded a dump and saved it again. Everything that imports a name,
// calls it or builds an object is absent and so refused.
const (
	opProto        = 0x80
	opStop         = '.'
	opMark         = '('
	opNone         = 'N'
	opNewTrue      = 0x88
	opNewFalse     = 0x89
	opBinInt       = 'J'
	opBinInt1      = 'K'
	opBinInt2      = 'M'
	opLong1        = 0x8a
	opBinFloat     = 'G'
	opBinUnicode   = 'X'
	opEmptyList    = ']'
	opEmptyDict    = '}'
	opEmptyTuple   = ')'
	opTuple1       = 0x85
	opTuple2       = 0x86
	opTuple3       = 0x87
	opTuple        = 't'
	opAppend       = 'a'
	opAppends      = 'e'
	opSetItem      = 's'
	opSetItems     = 'u'
	opBinPut       = 'q'
	opLongBinPut   = 'r'
	opBinGet       = 'h'
	opLongBinGet   = 'j'
	protocolOfDump = 2
)

// forbidden are opcodes that a harmful pickle needs, by the word an operator
// can look up.
var forbidden = map[byte]string{
	'c': "GLOBAL", 0x93: "STACK_GLOBAL", 'R': "REDUCE", 'b': "BUILD", 'i': "INST", 'o': "OBJ",
	0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 'P': "PERSID", 'Q': "BINPERSID",
	0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
}

type kind uint8

const (
	none kind = iota
	boolean
	integer
	float
	text
	list // and tuple
	dict // items are key, value, key, value …
	mark
)

// value is one Python object. Containers are shared, as in Python, so that a
// value put in the memo is the one that grows later.
type value struct {
	kind   kind
	number int64 // of an integer or boolean; the bits of a float
	text   string
	items  *[]value
}

// unpickler runs a pickle. It knows no recursion, so nesting costs nothing; its
// work is linear in the bytes, its memory in the values pushed and the bytes that
// they take, which are counted.
type unpickler struct {
	data   []byte
	at     int
	stack  []value
	memo   []value
	marks  int
	pushed int
	limit  int
	memory int // bytes that may still be taken
	depth  int // values that may wait on the stack: the entries of a dump, and some
}

// What values take: a value itself, and what an empty container adds.
const (
	valueBytes     = 40
	containerBytes = 24
)

// unpickle returns the one object of a pickle within limits.
func unpickle(data []byte, limits Limits) (value, error) {
	u := &unpickler{data: data, limit: limits.Values, memory: limits.Memory, depth: 2*limits.Entries + 1<<16}
	if op, err := u.byte(); err != nil {
		return value{}, err
	} else if op != opProto {
		return value{}, fmt.Errorf("%w: it does not begin with a protocol number", ErrNotADump)
	}
	if version, err := u.byte(); err != nil {
		return value{}, err
	} else if version != protocolOfDump {
		return value{}, fmt.Errorf("%w: pickle protocol %d, PyTorch writes %d", ErrNotADump, version, protocolOfDump)
	}
	for {
		op, err := u.byte()
		if err != nil {
			return value{}, err
		}
		if op == opStop {
			return u.result()
		}
		if err := u.step(op); err != nil {
			return value{}, fmt.Errorf("byte %d: %w", u.at-1, err)
		}
	}
}

func (u *unpickler) result() (value, error) {
	if u.at != len(u.data) {
		return value{}, fmt.Errorf("%w: %d bytes follow its end", ErrNotADump, len(u.data)-u.at)
	}
	if len(u.stack) != 1 || u.marks != 0 {
		return value{}, fmt.Errorf("%w: it ends with %d objects, not one", ErrNotADump, len(u.stack))
	}
	return u.stack[0], nil
}

func (u *unpickler) step(op byte) error {
	switch op {
	case opMark:
		u.marks++
		return u.push(value{kind: mark})
	case opNone:
		return u.push(value{})
	case opNewTrue, opNewFalse:
		return u.push(value{kind: boolean, number: int64(opNewFalse - op)})
	case opBinInt, opBinInt1, opBinInt2, opLong1, opBinFloat:
		return u.pushNumber(op)
	case opBinUnicode:
		return u.pushText()
	case opEmptyList, opEmptyTuple:
		return u.pushEmpty(list)
	case opEmptyDict:
		return u.pushEmpty(dict)
	case opTuple1, opTuple2, opTuple3:
		return u.tuple(len(u.stack) - int(op-opTuple1) - 1)
	case opTuple:
		return u.tupleToMark()
	case opAppend:
		return u.extend(list, len(u.stack)-1)
	case opSetItem:
		return u.extend(dict, len(u.stack)-2)
	case opAppends:
		return u.extendToMark(list)
	case opSetItems:
		return u.extendToMark(dict)
	case opBinPut, opLongBinPut:
		return u.put(op)
	case opBinGet, opLongBinGet:
		return u.get(op)
	}
	if name, harmful := forbidden[op]; harmful {
		return fmt.Errorf("%w: opcode %s runs code, no Flight Recorder dump has it: find out who wrote this file", ErrHostile, name)
	}
	return fmt.Errorf("%w: opcode 0x%02x, which PyTorch does not write", ErrNotADump, op)
}

func (u *unpickler) byte() (byte, error) {
	if u.at >= len(u.data) {
		return 0, ErrTruncated
	}
	b := u.data[u.at]
	u.at++
	return b, nil
}

// take returns the next n bytes. A length beyond the end of the file is one of
// a file still being written.
func (u *unpickler) take(n int) ([]byte, error) {
	if n > len(u.data)-u.at {
		return nil, ErrTruncated
	}
	b := u.data[u.at : u.at+n]
	u.at += n
	return b, nil
}

func (u *unpickler) push(v value) error {
	if u.pushed++; u.pushed > u.limit {
		return u.tooMany()
	}
	if len(u.stack) >= u.depth {
		return fmt.Errorf("%w: %d values wait for their container", ErrTooLarge, u.depth)
	}
	before := cap(u.stack)
	u.stack = append(u.stack, v)
	return u.hold((cap(u.stack) - before) * valueBytes)
}

func (u *unpickler) pushEmpty(of kind) error {
	if err := u.hold(containerBytes); err != nil {
		return err
	}
	return u.push(value{kind: of, items: new([]value)})
}

// hold counts bytes of memory. They are not counted back when nothing needs them any
// more: no dump makes values and forgets them.
func (u *unpickler) hold(bytes int) error {
	if u.memory -= bytes; u.memory < 0 {
		return fmt.Errorf("%w: its values take more memory than a dump's: lower TORCH_FR_BUFFER_SIZE", ErrTooLarge)
	}
	return nil
}

func (u *unpickler) tooMany() error {
	return fmt.Errorf("%w: more than %d values: raise max_values, or lower TORCH_FR_BUFFER_SIZE", ErrTooLarge, u.limit)
}

// toMark returns where the values above the last mark begin.
func (u *unpickler) toMark() (int, error) {
	for i := len(u.stack) - 1; i >= 0; i-- {
		if u.stack[i].kind == mark {
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("%w: no mark", ErrNotADump)
}

func (u *unpickler) tupleToMark() error {
	from, err := u.toMark()
	if err != nil {
		return err
	}
	items := append([]value(nil), u.stack[from:]...)
	u.stack[from-1] = value{kind: list, items: &items}
	u.stack = u.stack[:from]
	u.marks--
	return u.hold(containerBytes + len(items)*valueBytes)
}

func (u *unpickler) tuple(from int) error {
	if err := u.plain(from); err != nil {
		return err
	}
	items := append([]value(nil), u.stack[from:]...)
	u.stack = u.stack[:from]
	if err := u.hold(containerBytes + len(items)*valueBytes); err != nil {
		return err
	}
	return u.push(value{kind: list, items: &items})
}

func (u *unpickler) extendToMark(of kind) error {
	from, err := u.toMark()
	if err != nil {
		return err
	}
	u.marks--
	items := u.stack[from:]
	u.stack = u.stack[:from-1]
	return u.grow(of, items)
}

func (u *unpickler) extend(of kind, from int) error {
	if err := u.plain(from); err != nil {
		return err
	}
	items := u.stack[from:]
	u.stack = u.stack[:from]
	return u.grow(of, items)
}

// grow adds items to the container on top of the stack. Items lie just above
// the stack, in memory that the next push writes: append copies them first.
func (u *unpickler) grow(of kind, items []value) error {
	if len(u.stack) == 0 || u.stack[len(u.stack)-1].kind != of {
		return fmt.Errorf("%w: items without a container", ErrNotADump)
	}
	if of == dict && len(items)%2 != 0 {
		return fmt.Errorf("%w: a key without a value", ErrNotADump)
	}
	into := u.stack[len(u.stack)-1].items
	before := cap(*into)
	*into = append(*into, items...)
	return u.hold((cap(*into) - before) * valueBytes)
}

// plain says whether the values from there on are there and are no marks.
func (u *unpickler) plain(from int) error {
	if from < 0 {
		return fmt.Errorf("%w: the stack is empty", ErrNotADump)
	}
	for _, v := range u.stack[from:] {
		if v.kind == mark {
			return fmt.Errorf("%w: a mark where a value belongs", ErrNotADump)
		}
	}
	return nil
}
