//go:build linux

package kerninfo

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestHiddenSaysWhoHidesTheAddresses(t *testing.T) {
	const (
		shown  = "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n"
		hidden = "0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n"
		all    = "Name:\tx\nCapEff:\t000001ffffffffff\n"
		none   = "Name:\tx\nCapEff:\t000001fbffffffff\n" // all but CAP_SYSLOG
	)
	for name, tt := range map[string]struct {
		symbols, restrict, status string
		want                      string
	}{
		"shown":                        {shown, "1\n", all, ""},
		"shown to users of perf":       {shown, "0\n", none, ""},
		"no list":                      {"", "1\n", all, "CONFIG_KALLSYMS"},
		"damaged":                      {"garbage\n", "1\n", all, "damaged"},
		"kptr_restrict":                {hidden, "2\n", all, "kernel.kptr_restrict is 2"},
		"kptr_restrict before others":  {hidden, "2\n", none, "kernel.kptr_restrict is 2"},
		"capability":                   {hidden, "1\n", none, "give the process CAP_SYSLOG"},
		"capability, nothing else set": {hidden, "", none, "give the process CAP_SYSLOG"},
		"somebody else":                {hidden, "1\n", all, "a security module"},
		"nothing is known":             {hidden, "", "", "give the process CAP_SYSLOG, if it lacks it"},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for file, text := range map[string]string{"proc/kallsyms": tt.symbols, "proc/sys/kernel/kptr_restrict": tt.restrict, "proc/self/status": tt.status} {
				if text != "" {
					root[file] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			got := Hidden(root)
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, tt.want)
		})
	}
}
