package rule

import (
	"errors"
	"fmt"
	"io"

	"gopkg.in/yaml.v3"
)

// Another is a further YAML document in a file of which the first was read: nobody
// would ever read it.
type Another struct{ Line int }

func (a *Another) Error() string {
	return fmt.Sprintf("line %d: a second document after ---: leave it out", a.Line)
}

// Last fails where more than comments follows the document that d has read.
func Last(d *yaml.Decoder) error {
	for {
		var next yaml.Node
		switch err := d.Decode(&next); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(next.Content) > 0 && next.Content[0].Tag != "!!null":
			return &Another{Line: next.Content[0].Line}
		}
	}
}
