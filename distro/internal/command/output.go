package command

import (
	"fmt"
	"io"
)

// output is a standard output that is no terminal: what is printed to a file or a pipe may
// find no room, and most that prints does not look.
type output struct {
	to  io.Writer
	err error // the first
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	n, err := o.to.Write(text)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("print: %w", err)
	}
	return n, err
}
