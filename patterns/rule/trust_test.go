package rule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func TestTheTrustOfARecordIsTheWeakerOfWhatIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		resource, record any
		want             verdict.Trust
	}{
		"nobody says it":                     {nil, nil, verdict.Claimed},
		"its receiver":                       {nil, "proven", verdict.Proven},
		"the resource of metrics":            {"proven", nil, verdict.Proven},
		"both":                               {"proven", "proven", verdict.Proven},
		"a stranger's record says proven":    {"foreign", "proven", verdict.Foreign},
		"a resource does not raise a record": {"proven", "claimed", verdict.Claimed},
		"no trust":                           {nil, "Proven", verdict.Foreign},
		"no text":                            {"proven", int64(1), verdict.Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			maps := [2]pcommon.Map{pcommon.NewMap(), pcommon.NewMap()}
			for i, value := range []any{tc.resource, tc.record} {
				if value != nil {
					require.NoError(t, maps[i].PutEmpty(rule.AttributeTrust).FromRaw(value))
				}
			}
			require.Equal(t, tc.want, rule.TrustOf(maps[0], maps[1]))
		})
	}
}
