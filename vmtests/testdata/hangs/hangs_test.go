// Package hangs is a test binary that never ends.
package hangs

import "testing"

func TestNeverEnds(t *testing.T) { select {} }
