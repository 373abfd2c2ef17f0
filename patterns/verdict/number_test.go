package verdict_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func TestNumbersHaveCommas(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 131_072: "131,072", 1_000_000: "1,000,000", -1: "-1", -999: "-999", -1000: "-1,000", -123_456: "-123,456",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		require.Equal(t, want, verdict.Number(n))
	}
	require.Equal(t, "", verdict.Thousands(""))
}
