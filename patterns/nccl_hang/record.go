package ncclhang

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// str is a text of bounded length, "" where there is none.
func str(m pcommon.Map, name string) string { return socketstall.Text(m, name) }

func longStr(m pcommon.Map, name string) string {
	if v, found := m.Get(name); found && v.Type() == pcommon.ValueTypeStr {
		return v.Str()
	}
	return ""
}

func whole(m pcommon.Map, name string) (int64, bool) { return socketstall.Number(m, name) }

func truth(m pcommon.Map, name string) bool {
	v, found := m.Get(name)
	return found && v.Type() == pcommon.ValueTypeBool && v.Bool()
}
