package engine

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// anyString is the text of a value that an attribute or an OTTL expression has:
// "" for none, a list as "0-7, 12" when it holds whole numbers from 0 on.
func anyString(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return clean(v)
	case pcommon.Value:
		return valueString(v)
	default:
		if members, ok := membersOf(v); ok {
			return listString(members)
		}
		return clean(fmt.Sprint(v))
	}
}

func valueString(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return clean(v.Str())
	case pcommon.ValueTypeSlice:
		members, _ := membersOf(v)
		return listString(members)
	default:
		return clean(v.AsString())
	}
}

// listString is the text of a list, in compact form.
func listString(members []any) string {
	if !slices.ContainsFunc(members, func(m any) bool { return !isRank(m) }) {
		return clean(verdict.RanksInWords(numbers(members)))
	}
	var parts []string
	for _, member := range members[:min(len(members), maxValue)] { // more would be cut
		parts = append(parts, clean(fmt.Sprint(member)))
	}
	return clean(strings.Join(parts, ", "))
}

// ranksOf returns the ranks in a value: one, or a list of them.
func ranksOf(v any) []int {
	if members, ok := membersOf(v); ok {
		return numbers(members)
	}
	if rank, ok := fault.ParseRank(anyString(v)); ok {
		return []int{rank}
	}
	return nil
}

// namesOf returns what is in a value, as text: one, or the members of a list, each once.
func namesOf(v any) []string {
	members, ok := membersOf(v)
	if !ok {
		members = []any{anyString(v)}
	}
	var names []string
	for _, member := range members {
		if name := clean(fmt.Sprint(member)); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// numbers returns the ranks among members, sorted, each once.
func numbers(members []any) []int {
	var ranks []int
	for _, member := range members {
		if isRank(member) {
			ranks = append(ranks, int(member.(int64)))
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

func isRank(member any) bool {
	n, ok := member.(int64)
	return ok && n >= 0 && n <= verdict.MaxRank
}

// membersOf returns the members of a list, at most fault.MaxRanks of them; whatever is
// nested in it is text.
func membersOf(v any) ([]any, bool) {
	switch v := v.(type) {
	case pcommon.Value:
		if v.Type() == pcommon.ValueTypeSlice {
			return membersOf(v.Slice())
		}
		return nil, false
	case pcommon.Slice:
		members := make([]any, min(v.Len(), fault.MaxRanks))
		for i := range members {
			members[i] = plainMember(v.At(i))
		}
		return members, true
	case []any:
		return v[:min(len(v), fault.MaxRanks)], true
	case []int64:
		members := make([]any, min(len(v), fault.MaxRanks))
		for i := range members {
			members[i] = v[i]
		}
		return members, true
	case []string:
		members := make([]any, min(len(v), fault.MaxRanks))
		for i := range members {
			members[i] = v[i]
		}
		return members, true
	default:
		return nil, false
	}
}

func plainMember(v pcommon.Value) any {
	if v.Type() == pcommon.ValueTypeInt {
		return v.Int()
	}
	return v.AsString()
}
