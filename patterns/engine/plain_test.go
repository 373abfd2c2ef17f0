package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// literals and values that are told apart, or not, in every pair of types.
var plainLiterals = []string{`nil`, `""`, `"a"`, `"1"`, `0`, `1`, `7`, `1.0`, `7.5`, `true`, `false`}

func plainValue(random *rand.Rand, v pcommon.Value) {
	switch random.IntN(9) {
	case 0:
		v.SetStr([]string{"", "a", "1"}[random.IntN(3)])
	case 1:
		v.SetBool(random.IntN(2) == 0)
	case 2, 3:
		v.SetInt([]int64{0, 1, 7, -1}[random.IntN(4)])
	case 4:
		v.SetDouble([]float64{0, 1, 7.5, -1}[random.IntN(4)])
	case 5:
		v.SetEmptySlice().AppendEmpty().SetInt(1)
	case 6:
		v.SetEmptyMap()
	case 7:
		v.SetEmptyBytes().FromRaw([]byte("a"))
	}
}

func plainText(random *rand.Rand, depth int) string {
	if depth == 0 || random.IntN(3) == 0 {
		path := []string{"", "resource."}[random.IntN(2)] + `attributes["` + []string{"x", "y", "z"}[random.IntN(3)] + `"]`
		op := []string{"==", "!=", "==", "!=", "<", "<=", ">", ">="}[random.IntN(8)]
		return path + " " + op + " " + plainLiterals[random.IntN(len(plainLiterals))]
	}
	text := plainText(random, depth-1)
	for range random.IntN(3) {
		text += []string{" and ", "\n  or "}[random.IntN(2)] + plainText(random, depth-1)
	}
	if random.IntN(2) == 0 {
		text = "(" + text + ")"
		if random.IntN(3) == 0 {
			text = "not " + text
		}
	}
	return text
}

// What a plain condition tells is what OTTL tells, for every type of value, with
// every operator, however conditions are joined.
func TestPlainConditionsAgreeWithOTTL(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	told := 0
	for range 3000 {
		text := plainText(random, 2)
		p := newPlain(text)
		require.NotNil(t, p, text)
		c, err := rule.Logs.Condition(text)
		require.NoError(t, err, text)
		for range 5 {
			rl := plog.NewResourceLogs()
			sl := rl.ScopeLogs().AppendEmpty()
			lr := sl.LogRecords().AppendEmpty()
			for _, m := range []pcommon.Map{rl.Resource().Attributes(), lr.Attributes()} {
				for _, key := range []string{"x", "y"} {
					if random.IntN(4) > 0 {
						plainValue(random, m.PutEmpty(key))
					}
				}
			}
			r := record{resource: rl.Resource().Attributes(), attributes: lr.Attributes(), resourceLogs: rl, scopeLogs: sl, logRecord: lr}
			got := p.of(&r)
			want, err := c.Eval(context.Background(), r.logContext())
			require.NoError(t, err)
			if got != unclear {
				told++
				require.Equal(t, want, got == holds, fmt.Sprintln(text, lr.Attributes().AsRaw(), rl.Resource().Attributes().AsRaw()))
			}
			r.close()
		}
	}
	require.Greater(t, told, 3000)
}

func TestConditionsThatAreMoreAreLeftToOTTL(t *testing.T) {
	for _, text := range []string{
		`attributes["a"]`, `attributes["a"]["b"] == 1`, `1 == attributes["a"]`, `attributes["a"] == attributes["b"]`, `attributes["a"] == -1`,
		`attributes["a"] == 0x01`, `attributes["a"] == "\n"`, `IsMatch(attributes["a"], "b")`, `body == "a"`, `true`, `attributes["a"] == 1 and`,
		`(attributes["a"] == 1`, `attributes["a"] == 1)`, `attributes["a"] == 99999999999999999999`, `attributes["a"] == 1 + 1`, `value_double > 1.0`, ``,
	} {
		require.Nil(t, newPlain(text), text)
	}
}

// Three of four conditions of the library are plain: a record that no pattern wants is
// told so without OTTL.
func TestConditionsOfTheLibraryArePlain(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	all, simple := 0, 0
	for i := range rules {
		for _, e := range rules[i].All() {
			if e.Where == "" {
				continue
			}
			if all++; newPlain(e.Where) != nil {
				simple++
			} else {
				t.Logf("%s: %s: %s", rules[i].Name, e.Name, e.Where)
			}
		}
	}
	require.NotZero(t, all)
	require.Greater(t, simple*4, all*3, "%d of %d", simple, all)
}

// BenchmarkCondition: one condition of the library on one record that it refuses at
// its last comparison, as a plain condition and through OTTL.
func BenchmarkCondition(b *testing.B) {
	text := `attributes["kernelevents.xid"] != nil and attributes["tracecore.trust"] == "proven" and attributes["kernelevents.injected"] != true`
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	sl := rl.ScopeLogs().AppendEmpty()
	lr := sl.LogRecords().AppendEmpty()
	lr.Attributes().PutInt("kernelevents.xid", 43)
	lr.Attributes().PutBool("kernelevents.injected", true)
	c, err := newCondition(text, false)
	require.NoError(b, err)
	e := &Engine{}
	for name, one := range map[string]condition{"plain": {plain: c.plain}, "ottl": {log: c.log}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				r := record{resource: rl.Resource().Attributes(), attributes: lr.Attributes(), resourceLogs: rl, scopeLogs: sl, logRecord: lr}
				if one.holds(e, &r) {
					b.Fatal("it holds")
				}
				r.close()
			}
		})
	}
}

// The first of several attributes is what OTTL says it is, for every type of value.
func TestTheFirstOfSeveralAttributesAgreesWithOTTL(t *testing.T) {
	const text = `Coalesce([attributes["x"], attributes["y"], resource.attributes["z"]])`
	direct, err := newGetter(text, false)
	require.NoError(t, err)
	require.Len(t, direct.first, 3)
	value, err := rule.Logs.Value(text)
	require.NoError(t, err)
	slow := getter{log: value}
	e := &Engine{}
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a test
		ld := plog.NewLogs()
		rl := ld.ResourceLogs().AppendEmpty()
		sl := rl.ScopeLogs().AppendEmpty()
		lr := sl.LogRecords().AppendEmpty()
		for name, m := range map[string]pcommon.Map{"x": lr.Attributes(), "y": lr.Attributes(), "z": rl.Resource().Attributes()} {
			if random.IntN(2) == 0 {
				plainValue(random, m.PutEmpty(name))
			}
		}
		r := record{resource: rl.Resource().Attributes(), attributes: lr.Attributes(), resourceLogs: rl, scopeLogs: sl, logRecord: lr}
		if v, ok := direct.get(e, &r).(pcommon.Value); !ok || v.Type() != pcommon.ValueTypeMap && v.Type() != pcommon.ValueTypeBytes { // of these Coalesce gives an address
			require.Equal(t, slow.read(e, &r), direct.read(e, &r), "seed %d", seed)
		}
		r.close()
	}
	for _, other := range []string{`Coalesce([attributes["x"], "none"])`, `Coalesce([Concat([attributes["x"]], "")])`, `Coalesce([])`} {
		require.Nil(t, newFirst(other), other)
	}
}
