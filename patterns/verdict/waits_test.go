package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitsAreReadAsTheyWereWritten(t *testing.T) {
	since := time.UnixMilli(1763780724400).UTC()
	waits := []Wait{
		{Ranks: "0-516,518-1023", Count: 1023, Direct: "518", For: "rank 517", What: "AllReduce #10432", Since: since},
		{Ranks: "12", Count: 1, For: "10.0.0.7:4000", What: "packets that do not arrive"},
		{Ranks: "3-4", Count: 2, For: EachOther, What: "data"},
		{Count: 9000, For: "ranks 3, 5", What: "data"},
	}
	text := WriteWaits(waits, 256)
	require.Equal(t, "0-516,518-1023/518>rank 517|AllReduce #10432@1763780724400;12>10.0.0.7:4000|packets that do not arrive;3-4>each other|data;*9000>ranks 3, 5|data", text)
	require.Equal(t, waits, ReadWaits(text))
	require.Equal(t, "ranks 0-516,518-1023 (518 directly) wait for rank 517: AllReduce #10432", waits[0].String())
	require.Equal(t, "rank 12 waits for 10.0.0.7:4000: packets that do not arrive", waits[1].String())
	require.Equal(t, "9,000 ranks wait for ranks 3, 5: data", waits[3].String())

	// What finds them has so much room: ranges give way to their number, then the last waits.
	every := make([]string, 200)
	for i := range every {
		every[i] = fmt.Sprint(2 * i)
	}
	got := ReadWaits(WriteWaits([]Wait{{Ranks: strings.Join(every, ","), Count: 200, For: "rank 1", What: "data"}, waits[1], waits[0], waits[2]}, 128))
	require.Equal(t, []Wait{{Count: 200, For: "rank 1", What: "data"}, waits[1], waits[0]}, got)
	require.Empty(t, ReadWaits("x>y|z;>|;5-3>rank 1|data;1>|data;*x>rank 1|data"))
}

func TestWaitsAreBounded(t *testing.T) {
	v := lostGPU()
	v.Waits = make([]Wait, MaxWaits+1)
	for i := range v.Waits {
		v.Waits[i] = Wait{Ranks: "5-3", Count: -1, Direct: "x", For: "rank 1\n\x1b[2J", What: strings.Repeat("w", 2*MaxTextBytes)}
	}
	require.Error(t, v.Validate())
	b := Bounded(v)
	require.NoError(t, b.Validate())
	require.Len(t, b.Waits, MaxWaits)
	require.Equal(t, `rank 1 \x1b[2J`, b.Waits[0].For)
	require.Empty(t, b.Waits[0].Ranks)
	require.Empty(t, b.Waits[0].Direct)
	require.Zero(t, b.Waits[0].Count)
	require.Len(t, b.Waits[0].What, MaxTextBytes)
}

func FuzzWaits(f *testing.F) {
	f.Add("0-516,518-1023/518>rank 517|data@1763780724400;12>10.0.0.7:4000|data")
	f.Add("*9999999999>|;;>")
	f.Fuzz(func(t *testing.T, text string) {
		v := lostGPU()
		v.Waits = ReadWaits(text)
		b := Bounded(v)
		require.NoError(t, b.Validate())
		require.LessOrEqual(t, len(b.Waits), MaxWaits)
	})
}
