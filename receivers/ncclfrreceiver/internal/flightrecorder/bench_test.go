package flightrecorder

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkRealDumps reads files of PyTorch, pickle and JSON.
func BenchmarkRealDumps(b *testing.B) {
	pickles, texts := realDumps(b, ".pickle"), realDumps(b, ".json")
	for name, data := range map[string][]byte{
		"2.14/pickle": pickles["testdata/healthy/rank_0.pickle"], "2.14/json": texts["testdata/healthy/rank_0.json"],
		"2.6/pickle": pickles["testdata/pytorch26_healthy/rank_0.pickle"], "2.6/json": texts["testdata/pytorch26_healthy/rank_0.json"],
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				_, err := Decode(data, DefaultLimits)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkHostile is what a file of somebody else's making can cost at most,
// under the default limits: values, a memo, a file of nothing but JSON.
func BenchmarkHostile(b *testing.B) {
	const head, most = "\x80\x02", 32 << 20
	for name, data := range map[string]string{
		"values": head + strings.Repeat("N", most),
		"lists":  head + strings.Repeat("]", most),
		"memo":   head + "}" + manyPuts(most/5),
		"json":   `{"x":[` + strings.Repeat("1,", DefaultLimits.Values-2) + "1]}",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := Decode([]byte(data), DefaultLimits)
				require.Error(b, err)
			}
		})
	}
}
