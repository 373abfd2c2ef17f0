package kernelline

import (
	"strings"
	"testing"
	"time"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"[1.0] x", "<3>[1.0][ T1] x", "kern  :err   : [1.0] x", "2026-11-21T08:41:23,965742+00:00 x", "2026-11-21T08:41:23+0000 h kernel: x", "Nov 21 08:41:23 h kernel: x", "[Sat Nov 21 08:41:23 2026] x", "-- x --"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, err := Times{Zone: time.UTC, Year: 2026}.Parse(line)
		if err == nil && !strings.HasSuffix(line, got.Text) {
			t.Errorf("%q: text %q is not its end", line, got.Text)
		}
	})
}
