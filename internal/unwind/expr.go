package unwind

import (
	"errors"
	"fmt"

	"github.com/tracecoreai/tracecore/internal/procmem"
)

// Bounds on an expression: those of the PLT and of signal frames have a dozen steps. There is
// no jump among the steps that are known, so each is taken once.
const maxDepth = 16

// machine evaluates DWARF expressions (DWARF 5, 2.5): those that linkers write for the PLT and
// C libraries for the frames of signals.
type machine struct {
	registers *Registers
	memory    procmem.Memory
	stack     []uint64
	err       error
}

func evaluate(expr []byte, first []uint64, registers *Registers, memory procmem.Memory) (uint64, error) {
	m := machine{registers: registers, memory: memory, stack: append(make([]uint64, 0, maxDepth), first...)}
	c := cursor{bytes: expr}
	for c.at < len(c.bytes) && m.err == nil && !c.bad {
		m.step(c.byte(), &c)
	}
	if c.bad {
		return 0, errors.New("expression is cut short")
	}
	value := m.pop()
	return value, m.err
}

func (m *machine) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *machine) push(value uint64) {
	if len(m.stack) == maxDepth {
		m.fail(errors.New("expression of too many values"))
		return
	}
	m.stack = append(m.stack, value)
}

func (m *machine) pop() uint64 {
	last := len(m.stack) - 1
	if last < 0 {
		m.fail(errors.New("expression without a value"))
		return 0
	}
	value := m.stack[last]
	m.stack = m.stack[:last]
	return value
}

// step takes one operation (DWARF 5, table 7.9).
func (m *machine) step(op byte, c *cursor) {
	switch {
	case op >= 0x30 && op <= 0x4f: // lit0 to lit31
		m.push(uint64(op - 0x30))
	case op >= 0x70 && op <= 0x8f: // breg0 to breg31
		m.register(uint64(op-0x70), c.sleb())
	case op == 0x92: // bregx
		m.register(c.uleb(), c.sleb())
	case op == 0x06: // deref
		value, err := procmem.Word(m.memory, m.pop())
		if err != nil {
			m.fail(err)
		}
		m.push(value)
	case op == 0x12: // dup
		value := m.pop()
		m.push(value)
		m.push(value)
	case op == 0x13: // drop
		m.pop()
	case op == 0x23: // plus_uconst
		m.push(m.pop() + c.uleb())
	case op >= 0x08 && op <= 0x11:
		m.constant(op, c)
	default:
		m.binary(op)
	}
}

func (m *machine) register(number uint64, offset int64) {
	value, ok := m.registers.get(number)
	if !ok {
		m.fail(fmt.Errorf("%w: %d", errLost, number))
	}
	m.push(value + uint64(offset))
}

func (m *machine) constant(op byte, c *cursor) {
	switch op {
	case 0x08:
		m.push(c.fixed(1))
	case 0x09:
		m.push(uint64(int64(int8(c.fixed(1)))))
	case 0x0a:
		m.push(c.fixed(2))
	case 0x0b:
		m.push(uint64(int64(int16(c.fixed(2)))))
	case 0x0c:
		m.push(c.fixed(4))
	case 0x0d:
		m.push(uint64(int64(int32(c.fixed(4)))))
	case 0x0e, 0x0f:
		m.push(c.fixed(8))
	case 0x10:
		m.push(c.uleb())
	case 0x11:
		m.push(uint64(c.sleb()))
	}
}

// binary takes an operation on two values.
func (m *machine) binary(op byte) {
	b, a := m.pop(), m.pop()
	truth := map[bool]uint64{true: 1}
	switch op {
	case 0x1a:
		m.push(a & b)
	case 0x1c:
		m.push(a - b)
	case 0x1e:
		m.push(a * b)
	case 0x21:
		m.push(a | b)
	case 0x22:
		m.push(a + b)
	case 0x24:
		m.push(a << b)
	case 0x25:
		m.push(a >> b)
	case 0x29:
		m.push(truth[a == b])
	case 0x2a:
		m.push(truth[int64(a) >= int64(b)])
	case 0x2b:
		m.push(truth[int64(a) > int64(b)])
	case 0x2c:
		m.push(truth[int64(a) <= int64(b)])
	case 0x2d:
		m.push(truth[int64(a) < int64(b)])
	case 0x2e:
		m.push(truth[a != b])
	default:
		m.fail(fmt.Errorf("operation %#x in an expression", op))
	}
}
