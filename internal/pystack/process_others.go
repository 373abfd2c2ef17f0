//go:build !linux

package pystack

import "errors"

// Open is for Linux: other systems have no process_vm_readv.
func (r *Reader) Open(uint32) (*Process, error) { return nil, errors.ErrUnsupported }

// Stacks is for Linux.
func (p *Process) Stacks(Options) (Stacks, error) { return Stacks{}, errors.ErrUnsupported }

// PlaceOf is for Linux.
func (p *Process) PlaceOf(uint32) (Place, error) { return Place{}, errors.ErrUnsupported }
