package flightrecorder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nlpodyssey/gopickle/pickle"
	"github.com/nlpodyssey/gopickle/types"
	"github.com/stretchr/testify/require"
)

// realDumps are the files of testdata by name.
func realDumps(t testing.TB, ext string) map[string][]byte {
	files, err := filepath.Glob("testdata/*/*" + ext)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	dumps := map[string][]byte{}
	for _, file := range files {
		dumps[file], err = os.ReadFile(file)
		require.NoError(t, err)
	}
	return dumps
}

// TestUnpickleAgreesWithGopickle holds our decoder against a complete one, on
// every real dump.
func TestUnpickleAgreesWithGopickle(t *testing.T) {
	for name, data := range realDumps(t, ".pickle") {
		t.Run(name, func(t *testing.T) {
			ours, err := unpickle(data, DefaultLimits)
			require.NoError(t, err)
			oracle, err := pickle.Loads(string(data))
			require.NoError(t, err)
			require.Equal(t, fromOracle(t, oracle), plain(ours))
		})
	}
}

// plain turns a value without cycles into Go's own types, dictionaries into
// pairs in order.
func plain(v value) any {
	switch v.kind {
	case boolean:
		return v.number != 0
	case integer:
		return v.number
	case float:
		return math.Float64frombits(uint64(v.number))
	case text:
		return v.text
	case list, dict:
		all := []any{v.kind == dict}
		for _, item := range *v.items {
			all = append(all, plain(item))
		}
		return all
	}
	return nil
}

func fromOracle(t *testing.T, v any) any {
	switch v := v.(type) {
	case nil, bool, string, float64:
		return v
	case int:
		return int64(v)
	case *types.List:
		return fromItems(t, []any(*v))
	case *types.Tuple:
		return fromItems(t, []any(*v))
	case *types.Dict:
		all := []any{true}
		for _, pair := range *v {
			all = append(all, fromOracle(t, pair.Key), fromOracle(t, pair.Value))
		}
		return all
	}
	require.Failf(t, "odd type", "%T", v)
	return nil
}

func fromItems(t *testing.T, items []any) any {
	all := []any{false}
	for _, item := range items {
		all = append(all, fromOracle(t, item))
	}
	return all
}

func TestADumpCutAnywhereIsTruncated(t *testing.T) {
	data := realDumps(t, ".pickle")["testdata/subgroup/rank_2.pickle"]
	for n := range data {
		_, err := Decode(data[:n], DefaultLimits)
		require.ErrorIs(t, err, ErrTruncated, "cut at byte %d", n)
	}
	text := realDumps(t, ".json")["testdata/subgroup/rank_2.json"]
	for n := range text {
		_, err := Decode(text[:n], DefaultLimits)
		require.ErrorIs(t, err, ErrTruncated, "cut at byte %d", n)
	}
}

func length32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }

// TestHostilePickles lists what somebody may put there, and what each gets.
func TestHostilePickles(t *testing.T) {
	const head = "\x80\x02"
	for name, tc := range map[string]struct {
		data  string
		err   error
		words string
	}{
		"empty":                      {"", ErrTruncated, ""},
		"only a protocol":            {head, ErrTruncated, ""},
		"protocol 0":                 {"(lp0\n.", ErrNotADump, "does not begin with a protocol"},
		"protocol 4":                 {"\x80\x04}.", ErrNotADump, "protocol 4"},
		"calls os.system":            {head + "cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", ErrHostile, "GLOBAL"},
		"imports by stack":           {head + "X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93.", ErrHostile, "STACK_GLOBAL"},
		"reduces":                    {head + "}}R.", ErrHostile, "REDUCE"},
		"builds":                     {head + "}}b.", ErrHostile, "BUILD"},
		"makes an instance":          {head + "(ios\nsystem\n.", ErrHostile, "INST"},
		"makes an object":            {head + "(}o.", ErrHostile, "OBJ"},
		"new object":                 {head + "}}\x81.", ErrHostile, "NEWOBJ"},
		"persistent id":              {head + "}Q.", ErrHostile, "BINPERSID"},
		"extension":                  {head + "\x82\x01.", ErrHostile, "EXT1"},
		"frame of 2^40":              {head + "\x95\x00\x00\x00\x00\x00\x01\x00\x00.", ErrNotADump, "0x95"},
		"bytes of 2^40":              {head + "\x8e\x00\x00\x00\x00\x00\x01\x00\x00.", ErrNotADump, "0x8e"},
		"byte array of 2^40":         {head + "\x96\x00\x00\x00\x00\x00\x01\x00\x00.", ErrNotADump, "0x96"},
		"text of 2 GiB":              {head + "X" + length32(1<<31-1) + "x.", ErrTruncated, ""},
		"text of 4 GiB":              {head + "X" + length32(1<<32-1) + "x.", ErrNotADump, "4294967295"},
		"text that is no UTF-8":      {head + "X\x01\x00\x00\x00\xff.", ErrNotADump, "UTF-8"},
		"number of 200 bytes":        {head + "\x8a\xc8" + strings.Repeat("\x01", 200) + ".", ErrNotADump, "200 bytes"},
		"memo beyond the end":        {head + "}r" + length32(1<<31) + ".", ErrNotADump, "memo"},
		"memo never put":             {head + "h\x07.", ErrNotADump, "memo"},
		"memo that goes on":          {head + "}" + manyPuts(100_001), ErrTooLarge, "max_values"},
		"memo of a mark":             {head + "(q\x00.", ErrNotADump, "mark"},
		"memo of nothing":            {head + "q\x00.", ErrNotADump, "stack is empty"},
		"items without a mark":       {head + "}KKu.", ErrNotADump, "no mark"},
		"items for a number":         {head + "K\x01(K\x01e.", ErrNotADump, "without a container"},
		"items for nobody":           {head + "(K\x01e.", ErrNotADump, "without a container"},
		"pairs into a list":          {head + "](K\x01K\x02u.", ErrNotADump, "without a container"},
		"key without a value":        {head + "}(K\x01u.", ErrNotADump, "key without a value"},
		"pair from an empty stack":   {head + "s.", ErrNotADump, "stack is empty"},
		"tuple of marks":             {head + "((\x86.", ErrNotADump, "mark"},
		"tuple of nothing":           {head + "\x87.", ErrNotADump, "stack is empty"},
		"two objects":                {head + "}}.", ErrNotADump, "ends with 2 objects"},
		"nothing":                    {head + ".", ErrNotADump, "ends with 0 objects"},
		"a mark":                     {head + "(.", ErrNotADump, "ends with 1 objects"},
		"more after the end":         {head + "}.}.", ErrNotADump, "2 bytes follow"},
		"a list":                     {head + "].", ErrNotADump, "no dictionary"},
		"no version":                 {head + "}.", ErrNotADump, "no format version"},
		"a million marks":            {head + strings.Repeat("(", 1_000_000), ErrTooLarge, "wait for their container"},
		"a million values":           {head + strings.Repeat("N", 1_000_000), ErrTooLarge, "wait for their container"},
		"nested a million deep":      {head + strings.Repeat("]", 1_000_000), ErrTooLarge, "wait for their container"},
		"tuples nested 90,000 deep":  {head + ")" + strings.Repeat("\x85", 90_000) + ".", ErrNotADump, "no dictionary"},
		"a list inside itself":       {head + "]q\x00h\x00a.", ErrNotADump, "no dictionary"},
		"a dictionary inside itself": {head + "}q\x00X\x07\x00\x00\x00entriesh\x00s.", ErrNotADump, "no format version"},
		"JSON that is none":          {"{]", ErrNotADump, "byte 2"},
		"JSON of another shape":      {`{"version":["2.1"]}`, ErrNotADump, `"version" is a JSON array`},
		"JSON nested deep":           {`{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}", ErrNotADump, "no JSON"},
		"JSON of a million values":   {`{"x":[` + strings.Repeat("1,", 1_000_000) + "1]}", ErrTooLarge, "max_values"},
		"JSON with a tail":           {`{"version":"2.1"} x`, ErrNotADump, "byte 19"},
		"major version 3":            {`{"version":"3.0"}`, ErrNotADump, "update tracecore"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(tc.data), Limits{Values: 100_000, Entries: 1000, Memory: DefaultLimits.Memory})
			require.ErrorIs(t, err, tc.err)
			require.ErrorContains(t, err, tc.words)
		})
	}
}

// manyPuts puts the same value in the memo n times.
func manyPuts(n uint32) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("r" + length32(i))
	}
	return b.String()
}

// TestABombOfSharedListsCostsNoMoreThanItsLimit: ten entries name one list of
// sizes that names one list of a thousand dimensions, through the memo.
func TestABombOfSharedListsCostsNoMoreThanItsLimit(t *testing.T) {
	var p bytes.Buffer
	word := func(s string) { p.WriteString("X" + length32(uint32(len(s))) + s) }
	p.WriteString("\x80\x02}(")
	word("version")
	word("2.10")
	word("entries")
	p.WriteString("](")
	p.WriteString("](" + strings.Repeat("K\x01", 30) + "eq\x000") // no POP in the allow-list
	_, err := Decode(p.Bytes(), DefaultLimits)
	require.ErrorIs(t, err, ErrNotADump)

	p.Reset()
	p.WriteString("\x80\x02}(")
	word("dims")
	p.WriteString("](" + strings.Repeat("K\x01", 30) + "eq\x00")
	word("sizes")
	p.WriteString("](" + strings.Repeat("h\x00", 4000) + "eq\x01")
	word("version")
	word("2.10")
	word("entries")
	p.WriteString("](")
	for range 1000 {
		p.WriteString("}(")
		word("input_sizes")
		p.WriteString("h\x01u")
	}
	p.WriteString("eu.")
	_, err = Decode(p.Bytes(), Limits{Values: 100_000, Entries: 1000, Memory: DefaultLimits.Memory})
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = Decode(p.Bytes(), Limits{Values: 200_000, Entries: 1, Memory: DefaultLimits.Memory})
	require.NoError(t, err, "one entry is within the limit")
}

func FuzzDecode(f *testing.F) {
	for _, data := range realDumps(f, ".pickle") {
		f.Add(data)
	}
	for _, data := range realDumps(f, ".json") {
		f.Add(data)
	}
	f.Add([]byte("\x80\x02}q\x00X\x07\x00\x00\x00entriesh\x00s."))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Decode(data, Limits{Values: 10_000, Entries: 100, Memory: DefaultLimits.Memory})
		if err != nil {
			return
		}
		for _, g := range d.Condense() {
			require.LessOrEqual(t, len(g.Unfinished), 2*MaxOperations)
			require.LessOrEqual(t, len(g.History), MaxHistory)
			for _, op := range g.Unfinished {
				require.LessOrEqual(t, len(op.Signature()), maxText)
				_ = op.Code(8)
			}
			_ = FormatRanks(g.Ranks, 4096)
		}
	})
}

// dumpOf writes a dump as PyTorch does, with n entries of three groups: for
// benchmarks and as a second opinion on the reader.
func dumpOf(n int) []byte {
	w := &pickler{memo: map[string]int{}}
	w.raw("\x80\x02}(")
	w.pair("version", "2.10")
	w.pair("comm_lib_version", "2.21.5")
	w.text("pg_config")
	w.raw("}(")
	for g := range 3 {
		w.text(fmt.Sprint(g))
		w.raw("}(")
		w.pair("name", fmt.Sprint(g))
		w.pair("desc", "default_pg")
		w.pair("ranks", "[0, 1, 2, 3, 4, 5, 6, 7]")
		w.raw("u")
	}
	w.raw("u")
	w.text("entries")
	w.raw("](")
	for i := range n {
		w.entry(i)
	}
	w.raw("eu.")
	return w.Bytes()
}

type pickler struct {
	bytes.Buffer
	memo map[string]int
}

func (w *pickler) raw(s string) { w.WriteString(s) }

func (w *pickler) text(s string) {
	if at, found := w.memo[s]; found {
		w.raw("j" + length32(uint32(at)))
		return
	}
	w.raw("X" + length32(uint32(len(s))) + s + "r" + length32(uint32(len(w.memo))))
	w.memo[s] = len(w.memo)
}

func (w *pickler) pair(key, value string) { w.text(key); w.text(value) }

func (w *pickler) number(key string, n int64) {
	w.text(key)
	w.raw("\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n))))
}

func (w *pickler) entry(i int) {
	group := i % 3
	w.raw("}(")
	for key, n := range map[string]int64{
		"record_id": int64(i), "pg_id": int64(group), "collective_seq_id": int64(i/3 + 1), "p2p_seq_id": 0, "op_id": int64(i + 1),
		"time_created_ns": 1795237437241539436 + int64(i)*1e6, "timeout_ms": 600000,
	} {
		w.number(key, n)
	}
	w.text("process_group")
	w.text(fmt.Sprint(group))
	w.text("default_pg")
	w.raw("\x86")
	w.pair("profiling_name", "nccl:all_reduce")
	w.pair("state", "completed")
	w.text("retired")
	w.raw("\x88")
	for _, side := range []string{"input", "output"} {
		w.text(side + "_sizes")
		w.raw("](](M\x00\x10J\x00\x00\x01\x00ee")
		w.text(side + "_dtypes")
		w.raw("](")
		w.text("BFloat16")
		w.raw("e")
	}
	w.text("frames")
	w.raw("](")
	for depth := range 20 {
		w.raw("}(")
		w.pair("name", fmt.Sprintf("function_%d", depth))
		w.pair("filename", fmt.Sprintf("/opt/venv/lib/python3.12/site-packages/model/layer_%d.py", depth))
		w.number("line", int64(depth*7+i%2))
		w.raw("u")
	}
	w.raw("eu")
}

func BenchmarkDecode(b *testing.B) {
	data := dumpOf(2000)
	b.Run("own", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			d, err := Decode(data, DefaultLimits)
			require.NoError(b, err)
			require.Len(b, d.Entries, 2000)
		}
	})
	b.Run("condense", func(b *testing.B) {
		d, err := Decode(data, DefaultLimits)
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			require.Len(b, d.Condense(), 3)
		}
	})
	b.Run("gopickle", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			_, err := pickle.Loads(string(data))
			require.NoError(b, err)
		}
	})
}
