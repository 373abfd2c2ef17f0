package flightrecorder

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

func (u *unpickler) pushNumber(op byte) error {
	switch op {
	case opBinInt1, opLong1:
		b, err := u.byte()
		if err != nil {
			return err
		}
		if op == opLong1 {
			return u.pushLong(int(b))
		}
		return u.pushInteger(int64(b))
	case opBinInt2:
		b, err := u.take(2)
		if err != nil {
			return err
		}
		return u.pushInteger(int64(binary.LittleEndian.Uint16(b)))
	case opBinInt:
		b, err := u.take(4)
		if err != nil {
			return err
		}
		return u.pushInteger(int64(int32(binary.LittleEndian.Uint32(b))))
	default: // opBinFloat
		b, err := u.take(8)
		if err != nil {
			return err
		}
		return u.push(value{kind: float, number: int64(binary.BigEndian.Uint64(b))})
	}
}

func (u *unpickler) pushInteger(n int64) error { return u.push(value{kind: integer, number: n}) }

// pushLong reads a little-endian two's complement number of n bytes. PyTorch
// writes 8; Python none for 0 and as many as it takes.
func (u *unpickler) pushLong(n int) error {
	b, err := u.take(n)
	if err != nil {
		return err
	}
	if n > 8 {
		return fmt.Errorf("%w: a number of %d bytes", ErrNotADump, n)
	}
	var bits uint64
	for i := n - 1; i >= 0; i-- {
		bits = bits<<8 | uint64(b[i])
	}
	unused := 64 - 8*n
	return u.pushInteger(int64(bits<<unused) >> unused)
}

func (u *unpickler) pushText() error {
	b, err := u.take(4)
	if err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(b)
	if n > math.MaxInt32 {
		return fmt.Errorf("%w: a text of %d bytes", ErrNotADump, n)
	}
	if b, err = u.take(int(n)); err != nil {
		return err
	}
	if !utf8.Valid(b) {
		return fmt.Errorf("%w: a text that is not UTF-8", ErrNotADump)
	}
	if err := u.hold(len(b)); err != nil {
		return err
	}
	return u.push(value{kind: text, text: string(b)})
}

// put stores the top of the stack in the memo. Both picklers number the memo
// without gaps, which keeps it a list.
func (u *unpickler) put(op byte) error {
	index, err := u.index(op == opLongBinPut)
	if err != nil {
		return err
	}
	if err := u.plain(len(u.stack) - 1); err != nil {
		return err
	}
	top := u.stack[len(u.stack)-1]
	switch {
	case index < len(u.memo):
		u.memo[index] = top
	case index > len(u.memo):
		return fmt.Errorf("%w: memo %d before %d", ErrNotADump, index, len(u.memo))
	case index >= u.limit: // a file may put one value in the memo again and again
		return u.tooMany()
	default:
		u.memo = append(u.memo, top)
		return u.hold(valueBytes)
	}
	return nil
}

func (u *unpickler) get(op byte) error {
	index, err := u.index(op == opLongBinGet)
	if err != nil {
		return err
	}
	if index >= len(u.memo) {
		return fmt.Errorf("%w: memo %d of %d", ErrNotADump, index, len(u.memo))
	}
	return u.push(u.memo[index])
}

func (u *unpickler) index(long bool) (int, error) {
	if !long {
		b, err := u.byte()
		return int(b), err
	}
	b, err := u.take(4)
	if err != nil {
		return 0, err
	}
	return int(binary.LittleEndian.Uint32(b)), nil
}
