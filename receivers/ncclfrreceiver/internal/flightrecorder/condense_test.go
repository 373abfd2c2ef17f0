package flightrecorder

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// done and open are entries of NCCL's group "0", by name and sequence number.
func done(name string, seq int64) Entry {
	e := open(name, seq)
	e.State, e.Retired = "completed", true
	return e
}

func open(name string, seq int64) Entry {
	e := Entry{Group: "0", Desc: "default_pg", Name: "nccl:" + name, State: "scheduled", InputSizes: [][]int64{{4}}, OutputSizes: [][]int64{{4}}, InputDtypes: []string{"Float"}, OutputDtypes: []string{"Float"}}
	if strings.HasPrefix(name, "send") || strings.HasPrefix(name, "recv") {
		e.IsP2P, e.P2PSeq = true, seq
		return e
	}
	e.CollectiveSeq = seq
	return e
}

func condensed(t *testing.T, entries ...Entry) Group {
	d := &Dump{Version: "2.7", Entries: entries}
	groups := d.Condense()
	require.Len(t, groups, 1)
	return groups[0]
}

func names(ops []Operated) []string {
	all := []string{}
	for _, op := range ops {
		all = append(all, fmt.Sprintf("%s %d", strings.TrimPrefix(op.Name, "nccl:"), op.CollectiveSeq+op.P2PSeq))
	}
	return all
}

// TestWhatIsUnfinished: an entry is over when it is retired or completed; members
// of a coalesced operation have the state of the entry that ends it.
func TestWhatIsUnfinished(t *testing.T) {
	completed := open("all_reduce", 2)
	completed.State = "completed"
	retired := open("all_reduce", 2)
	retired.Retired = true
	started := open("all_reduce", 2)
	started.State = "started"
	for name, tc := range map[string]struct {
		entries []Entry
		open    []string
		last    string
		history int
	}{
		"nothing":                          {[]Entry{done("all_reduce", 1)}, []string{}, "all_reduce 1", 1},
		"scheduled":                        {[]Entry{done("all_reduce", 1), open("all_reduce", 2)}, []string{"all_reduce 2"}, "all_reduce 1", 2},
		"started":                          {[]Entry{done("all_reduce", 1), started}, []string{"all_reduce 2"}, "all_reduce 1", 2},
		"completed and not yet retired":    {[]Entry{done("all_reduce", 1), completed}, []string{}, "all_reduce 2", 2},
		"retired and scheduled":            {[]Entry{done("all_reduce", 1), retired}, []string{}, "all_reduce 2", 2},
		"coalesced collectives, over":      {[]Entry{open("all_gather", 1), open("all_gather", 1), done("coalesced", 1)}, []string{}, "coalesced 1", 1},
		"coalesced collectives, under way": {[]Entry{done("all_reduce", 1), open("all_gather", 2), open("coalesced", 2)}, []string{"all_gather 2", "coalesced 2"}, "all_reduce 1", 2},
		"coalesced sends, over":            {[]Entry{done("all_reduce", 1), open("send 0->1", 5), open("recv 0<-1", 5), done("coalesced", 5)}, []string{}, "all_reduce 1", 1},
		"coalesced sends, under way":       {[]Entry{done("all_reduce", 1), open("send 0->1", 5), open("recv 0<-1", 5), open("coalesced", 5)}, []string{"send 0->1 5", "recv 0<-1 5"}, "all_reduce 1", 1},
		"what came before a coalesced one": {[]Entry{open("all_reduce", 1), open("all_gather", 2), done("coalesced", 2)}, []string{"all_reduce 1"}, "coalesced 2", 2},
		"a send alone":                     {[]Entry{open("send 0->1", 1)}, []string{"send 0->1 1"}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := condensed(t, tc.entries...)
			require.Equal(t, tc.open, names(g.Unfinished))
			require.Equal(t, len(tc.open), g.UnfinishedTotal)
			require.Len(t, g.History, tc.history)
			last := ""
			if g.LastFinished != nil {
				last = names([]Operated{*g.LastFinished})[0]
			}
			require.Equal(t, tc.last, last)
		})
	}
}

func TestTheEarliestUnfinishedTravel(t *testing.T) {
	var entries []Entry
	for seq := range int64(100) {
		entries = append(entries, open("all_reduce", seq+1), open("send 0->1", seq+1))
	}
	g := condensed(t, entries...)
	require.Equal(t, 200, g.UnfinishedTotal)
	require.Len(t, g.Unfinished, 2*MaxOperations)
	require.EqualValues(t, 1, g.Front().CollectiveSeq)
}

func TestTheNewestHistoryTravels(t *testing.T) {
	var entries []Entry
	for seq := range int64(MaxHistory + 500) {
		entries = append(entries, done("all_reduce", seq+1))
	}
	g := condensed(t, entries...)
	require.Len(t, g.History, MaxHistory)
	require.EqualValues(t, 501, g.HistoryFirst)
	require.Equal(t, []string{"all_reduce [[4]] -> [[4]] of Float -> Float"}, g.Signatures)

	far := condensed(t, done("all_reduce", 3), done("all_reduce", 1<<63-1), done("all_reduce", -7))
	require.Len(t, far.History, MaxHistory, "hostile numbers")
}

// TestSignature: what PyTorch's analyzer compares (Op.match and dtype_mismatch
// in torch/distributed/flight_recorder/components/types.py).
func TestSignature(t *testing.T) {
	sized := func(name string, in, out [][]int64) Entry {
		e := open(name, 1)
		e.InputSizes, e.OutputSizes = in, out
		return e
	}
	for name, tc := range map[string]struct {
		entry Entry
		want  string
	}{
		"all of it":                {open("all_reduce", 1), "all_reduce [[4]] -> [[4]] of Float -> Float"},
		"inputs of a scatter":      {sized("scatter", [][]int64{{16}}, [][]int64{{4}}), "scatter  -> [[4]] of  -> Float"},
		"outputs of a gather":      {sized("gather", [][]int64{{4}}, [][]int64{{16}}), "gather [[4]] ->  of Float -> "},
		"sizes of an all-to-all":   {sized("all_to_all", [][]int64{{3}}, [][]int64{{5}}), "all_to_all of Float -> Float"},
		"types of empty tensors":   {sized("all_reduce", [][]int64{{}}, [][]int64{{}}), "all_reduce [[]] -> [[]]"},
		"no tensors":               {sized("barrier", nil, nil), "barrier [] -> []"},
		"a name without a backend": {Entry{Name: "all_reduce"}, "all_reduce [] -> []"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.entry.Signature()) })
	}
	long := make([][]int64, 500)
	for i := range long {
		long[i] = []int64{int64(i), 1024}
	}
	a := sized("all_reduce", long, long)
	long2 := append([][]int64(nil), long...)
	long2[499] = []int64{1}
	b := sized("all_reduce", long2, long2)
	require.Less(t, len(a.Signature()), maxText)
	require.NotEqual(t, a.Signature(), b.Signature(), "different sizes stay different when they are cut")
}

func TestOperationNames(t *testing.T) {
	for name, want := range map[string]Operation{
		"nccl:all_reduce":      {"nccl", "all_reduce", -1, -1},
		"gloo:barrier":         {"gloo", "barrier", -1, -1},
		"nccl:send 3->12":      {"nccl", "send", 3, 12},
		"nccl:recv 3<-12":      {"nccl", "recv", 12, 3},
		"xccl:recv 0<-any":     {"xccl", "recv", -1, 0},
		"nccl:send":            {"nccl", "send", -1, -1},
		"nccl:send 1->-2":      {"nccl", "send", 1, -1},
		"all_reduce":           {"", "all_reduce", -1, -1},
		"":                     {"", "", -1, -1},
		"nccl:send 9999999->1": {"nccl", "send", -1, 1},
	} {
		require.Equal(t, want, ParseOperation(name), name)
	}
}

// TestVersions reads what older and newer dumps call the same.
func TestVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		library string
		group   string
	}{
		"2.0: seq_id, one word for the group": {"\x80\x02}(" + word("version") + word("2.0") + word("nccl_version") + word("2.19.3") +
			word("entries") + "](}(" + word("seq_id") + "K\x07" + word("process_group") + word("dp") + word("profiling_name") + word("nccl:all_reduce") + "ueu.", "2.19.3", "dp"},
		"2.1": {"\x80\x02}(" + word("version") + word("2.1") + word("nccl_version") + word("2.19.3") +
			word("entries") + "](}(" + word("collective_seq_id") + "K\x07" + word("process_group") + word("0") + word("default_pg") + "\x86" + word("profiling_name") + word("nccl:all_reduce") + "ueu.", "2.19.3", "0"},
		"2.10: comm_lib_version":         {`{"version":"2.10","comm_lib_version":"2.21.5","entries":[{"collective_seq_id":7,"process_group":["0","default_pg"],"profiling_name":"nccl:all_reduce"}]}`, "2.21.5", "0"},
		"2.37, with what we do not know": {`{"version":"2.37","comm_lib_version":"3.0","new":{"a":[1,{"b":null}]},"entries":[{"collective_seq_id":7,"colour":"red","process_group":["0","default_pg"],"profiling_name":"nccl:all_reduce"}]}`, "3.0", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Decode([]byte(tc.text), DefaultLimits)
			require.NoError(t, err)
			require.Equal(t, tc.library, d.Library)
			g := d.Condense()[0]
			require.Equal(t, tc.group, g.Name)
			require.EqualValues(t, 7, g.Front().CollectiveSeq)
		})
	}
}

func word(s string) string { return "X" + length32(uint32(len(s))) + s }

// TestGroupsWithoutEntries: a rank that has entered nothing has spoken all the
// same.
func TestGroupsWithoutEntries(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   []string
	}{
		"NCCL":                   {`"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"},"7":{"name":"7","desc":"dp","ranks":"[0]"}`, []string{"0 default_pg 0,1", "7 dp 0"}},
		"Gloo":                   {`"":{"name":"","desc":"","ranks":"[0, 1]"}`, []string{"0 default_pg 0,1"}},
		"nothing at all":         {``, []string{"  "}},
		"ranks that are no list": {`"0":{"name":"0","desc":"d","ranks":"all"}`, []string{"0 d "}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Decode([]byte(`{"version":"2.10","pg_config":{`+tc.config+`}}`), DefaultLimits)
			require.NoError(t, err)
			got := []string{}
			for _, g := range d.Condense() {
				got = append(got, g.Name+" "+g.Desc+" "+FormatRanks(g.Ranks, 100))
				require.Zero(t, g.Entries)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestRanksInShort(t *testing.T) {
	many := []int{}
	for rank := range 16_384 {
		many = append(many, rank*8)
	}
	irregular := []int{}
	for i := range 2000 {
		irregular = append(irregular, i*i)
	}
	for want, ranks := range map[string][]int{
		"": nil, "3": {3}, "0,1": {1, 0}, "0-3,8": {3, 2, 1, 0, 8, 8}, "0-120/8,121": upToStep(121, 8), "0-131064/8": many,
	} {
		if want == "0-120/8,121" {
			ranks = append(ranks, 121)
		}
		require.Equal(t, want, FormatRanks(ranks, 4096))
	}
	require.Empty(t, FormatRanks(irregular, 4096), "too long is not told at all")
	require.Nil(t, ParseRanks("[0, 1"))
	require.Nil(t, ParseRanks("[0, -1]"))
	require.Equal(t, []int{0, 7}, ParseRanks("[0, 7]"))
}

func upToStep(n, step int) (ranks []int) {
	for rank := 0; rank < n; rank += step {
		ranks = append(ranks, rank)
	}
	return ranks
}

// TestADumpIsNoSignOfLife: making a dump discovers that a collective has begun.
func TestADumpIsNoSignOfLife(t *testing.T) {
	entered := Entry{Name: "nccl:all_reduce", CollectiveSeq: 2, State: "started", CreatedNS: 200, StartedNS: 9000}
	retired := Entry{Name: "nccl:all_reduce", CollectiveSeq: 1, State: "completed", Retired: true, CreatedNS: 100, StartedNS: 150, CompletedNS: 250}
	require.EqualValues(t, 250, condensed(t, retired, entered).NewestNS)
	require.EqualValues(t, 200, condensed(t, entered).NewestNS)
}

func TestCodeIsTheProgramsOwn(t *testing.T) {
	frame := func(name, file string, line int64) Frame { return Frame{Name: name, File: file, Line: line} }
	torch := frame("all_reduce", "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 3906)
	e := Entry{Frames: []Frame{torch, frame("step", "/srv/train.py", 8), torch, frame("main", "/srv/train.py", 20)}}
	require.Equal(t, []string{"step (/srv/train.py:8)", "all_reduce (" + torch.File + ":3906)"}, e.Code(2))
	e.Frames = e.Frames[:1]
	require.Len(t, e.Code(8), 1, "nothing else is known")
	e.Frames = []Frame{frame(strings.Repeat("é", 500), "/"+strings.Repeat("ü", 500), 1)}
	require.Less(t, len(e.Code(8)[0]), 400)
	require.Empty(t, (&Entry{}).Code(8))
}
