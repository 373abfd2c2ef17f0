package unwind

import (
	"errors"
	"fmt"
)

// How a register of the caller is found.
type how byte

const (
	unsaid     how = iota // as the ABI has it
	undefined             // it is lost
	same                  // it is as it was
	atOffset              // in memory, at the CFA and an offset
	isOffset              // it is the CFA and an offset
	inRegister            // it is in another register
	atExpr                // in memory, where an expression says
	isExpr                // it is what an expression says
)

// rule is how one register is found.
type rule struct {
	how   how
	value int64 // offset, register, or place in the expressions of the row
}

// row is how a frame is left at one address (DWARF 5, 6.4.1).
type row struct {
	cfa    rule // isOffset from the register base, or isExpr
	base   uint64
	rules  [33]rule
	exprs  [][]byte
	signal bool
	signed bool // the return address is
	start  uint64
	column uint64 // of the return address
}

// maxRemembered bounds DW_CFA_remember_state.
const maxRemembered = 16

var errSteps = errors.New("unwind program that makes no sense")

// row runs the program of the function that has an address, up to that address.
func (i *image) row(address uint64) (row, error) {
	key := lookup{i, address}
	if known, ok := i.known.rows[key]; ok {
		return known, nil
	}
	f, err := i.function(address)
	if err != nil {
		return row{}, err
	}
	p := program{arch: i.arch, function: f, at: f.start, until: address}
	p.now = row{signal: f.signal, start: f.start, column: f.returns}
	if f.returns >= i.arch.registers {
		return row{}, fmt.Errorf("a return address in register %d", f.returns)
	}
	shared, steps := f.program, f.steps
	if err := p.run(&shared); err != nil {
		return row{}, err
	}
	p.initial, p.at = p.now.rules, f.start
	if err := p.run(&steps); err != nil {
		return row{}, err
	}
	p.now.exprs = p.exprs
	i.known.room()
	i.known.rows[key] = p.now
	return p.now, nil
}

// program is a machine of DW_CFA instructions.
type program struct {
	arch *arch
	*function
	at, until  uint64
	now        row
	initial    [33]rule
	remembered []row
	exprs      [][]byte
}

// expr keeps an expression, and returns its place.
func (p *program) expr(c *cursor) int64 {
	p.exprs = append(p.exprs, c.skip(c.uleb()))
	return int64(len(p.exprs) - 1)
}

// run takes steps until the next one is behind the address. Each takes a byte at least.
func (p *program) run(c *cursor) error {
	for c.at < len(c.bytes) && p.at <= p.until {
		op := c.byte()
		low := uint64(op & 0x3f)
		var err error
		switch op >> 6 {
		case 1: // DW_CFA_advance_loc
			p.at += low * p.codeAlign
		case 2: // DW_CFA_offset
			err = p.set(low, rule{how: atOffset, value: int64(c.uleb()) * p.dataAlign})
		case 3: // DW_CFA_restore
			err = p.restore(low)
		default:
			err = p.step(op, c)
		}
		if err != nil || c.bad {
			return errors.Join(errSteps, err)
		}
	}
	return nil
}

func (p *program) set(register uint64, r rule) error {
	if register >= p.arch.registers {
		return nil // vector registers, which no frame needs
	}
	p.now.rules[register] = r
	return nil
}

func (p *program) restore(register uint64) error {
	if register < p.arch.registers {
		p.now.rules[register] = p.initial[register]
	}
	return nil
}

// step is an instruction without an operand in its first byte (DWARF 5, table 7.29).
func (p *program) step(op byte, c *cursor) error {
	switch op {
	case 0x00: // nop
	case 0x01: // set_loc
		p.at = c.pointer(p.encoding &^ 0x80)
	case 0x02:
		p.at += c.fixed(1) * p.codeAlign
	case 0x03:
		p.at += c.fixed(2) * p.codeAlign
	case 0x04:
		p.at += c.fixed(4) * p.codeAlign
	case 0x0a, 0x0b:
		return p.remember(op == 0x0a)
	case 0x0c, 0x0d, 0x0e, 0x0f, 0x12, 0x13:
		return p.define(op, c)
	case 0x2d: // DW_CFA_AARCH64_negate_ra_state
		p.now.signed = !p.now.signed
	case 0x2e: // DW_CFA_GNU_args_size
		c.uleb()
	default:
		return p.save(op, c)
	}
	return nil
}

func (p *program) remember(push bool) error {
	switch last := len(p.remembered) - 1; {
	case push && last+1 >= maxRemembered:
		return fmt.Errorf("%d states to remember", last+2)
	case push:
		p.remembered = append(p.remembered, p.now)
	case last < 0:
		return errors.New("nothing is remembered")
	default:
		p.now, p.remembered = p.remembered[last], p.remembered[:last]
	}
	return nil
}

// define says what the CFA is. Of one that an expression says nothing is left to change (DWARF 5,
// 6.4.2.2).
func (p *program) define(op byte, c *cursor) error {
	if changes := op == 0x0d || op == 0x0e || op == 0x13; changes && p.now.cfa.how == isExpr {
		return fmt.Errorf("instruction %#x after an expression for the CFA", op)
	}
	switch op {
	case 0x0c: // def_cfa
		p.now.base = c.uleb()
		p.now.cfa = rule{how: isOffset, value: int64(c.uleb())}
	case 0x0d: // def_cfa_register
		p.now.base = c.uleb()
	case 0x0e: // def_cfa_offset
		p.now.cfa.value = int64(c.uleb())
	case 0x0f: // def_cfa_expression
		p.now.cfa = rule{how: isExpr, value: p.expr(c)}
	case 0x12: // def_cfa_sf
		p.now.base = c.uleb()
		p.now.cfa = rule{how: isOffset, value: c.sleb() * p.dataAlign}
	case 0x13: // def_cfa_offset_sf
		p.now.cfa.value = c.sleb() * p.dataAlign
	}
	return nil
}

// save says where a register is.
func (p *program) save(op byte, c *cursor) error {
	register := c.uleb()
	switch op {
	case 0x05: // offset_extended
		return p.set(register, rule{how: atOffset, value: int64(c.uleb()) * p.dataAlign})
	case 0x06: // restore_extended
		return p.restore(register)
	case 0x07:
		return p.set(register, rule{how: undefined})
	case 0x08:
		return p.set(register, rule{how: same})
	case 0x09:
		return p.set(register, rule{how: inRegister, value: int64(c.uleb())})
	case 0x10: // expression
		return p.set(register, rule{how: atExpr, value: p.expr(c)})
	case 0x11: // offset_extended_sf
		return p.set(register, rule{how: atOffset, value: c.sleb() * p.dataAlign})
	case 0x14: // val_offset
		return p.set(register, rule{how: isOffset, value: int64(c.uleb()) * p.dataAlign})
	case 0x15: // val_offset_sf
		return p.set(register, rule{how: isOffset, value: c.sleb() * p.dataAlign})
	case 0x16: // val_expression
		return p.set(register, rule{how: isExpr, value: p.expr(c)})
	case 0x2f: // GNU_negative_offset_extended
		return p.set(register, rule{how: atOffset, value: -int64(c.uleb()) * p.dataAlign})
	}
	return fmt.Errorf("instruction %#x", op)
}
