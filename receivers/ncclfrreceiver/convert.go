package ncclfrreceiver

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
)

const eventDump = "nccl.fr.dump"

// Bounds of a record. A group of a hundred irregular parts is shorter than
// mostRanksText; a stack is told by its innermost lines.
const (
	mostRanksText = 4096
	mostLines     = 8
)

// origin is what is known of a dump beside its content.
type origin struct {
	file     string
	run      string
	changed  time.Time
	observed time.Time
	process  identity.Process // of the rank
}

// appendRecords adds one record for each group of a dump.
func appendRecords(records plog.LogRecordSlice, dump *flightrecorder.Dump, from *origin) {
	for _, group := range dump.Condense() {
		appendRecord(records.AppendEmpty(), dump, &group, from)
	}
}

func appendRecord(r plog.LogRecord, dump *flightrecorder.Dump, g *flightrecorder.Group, from *origin) {
	severity := record.Info
	if g.UnfinishedTotal > 0 {
		severity = record.Warning
	}
	record.Start(r, eventDump, from.changed, from.observed, severity)
	r.Body().SetStr(describe(g, from))
	a := r.Attributes()
	a.EnsureCapacity(29)
	record.Stamp(a, from.process)
	a.PutInt("nccl.fr.rank", int64(from.process.Rank))
	a.PutStr("nccl.fr.file", from.file)
	a.PutStr("nccl.fr.run", from.run)
	a.PutStr("nccl.fr.format_version", dump.Version)
	putText(a, "nccl.fr.library_version", flightrecorder.Clip(dump.Library, 64))
	putGroup(a, g)
	putOperations(a, g)
	putHistory(a, g)
}

func putGroup(a pcommon.Map, g *flightrecorder.Group) {
	a.PutStr("nccl.fr.pg_id", flightrecorder.Clip(g.Name, 128))
	putText(a, "nccl.fr.pg_desc", flightrecorder.Clip(g.Desc, 128))
	putText(a, "nccl.fr.pg_ranks", flightrecorder.FormatRanks(g.Ranks, mostRanksText))
	putText(a, "nccl.fr.backend", g.Backend)
	a.PutInt("nccl.fr.entries", int64(g.Entries))
	a.PutInt("nccl.fr.unfinished", int64(g.UnfinishedTotal))
	putKnown(a, "nccl.fr.last_enqueued", g.Status.LastEnqueued)
	putKnown(a, "nccl.fr.last_started", g.Status.LastStarted)
	putKnown(a, "nccl.fr.last_completed", g.Status.LastCompleted)
	if g.NewestNS > 0 {
		a.PutInt("nccl.fr.newest_unix_nano", g.NewestNS)
	}
	if at := g.Front(); at != nil {
		a.PutInt("nccl.fr.collective_seq_id", at.CollectiveSeq)
	}
}

func putOperations(a pcommon.Map, g *flightrecorder.Group) {
	if len(g.Unfinished) == 0 && g.LastFinished == nil {
		return
	}
	list := a.PutEmptySlice("nccl.fr.operations")
	for _, op := range g.Unfinished {
		putOperation(list.AppendEmpty().SetEmptyMap(), op)
	}
	if g.LastFinished != nil {
		putOperation(list.AppendEmpty().SetEmptyMap(), *g.LastFinished)
	}
}

func putOperation(m pcommon.Map, e flightrecorder.Operated) {
	op := flightrecorder.ParseOperation(e.Name)
	m.EnsureCapacity(15)
	m.PutStr("name", flightrecorder.Clip(e.Name, 128))
	m.PutBool("p2p", e.IsP2P)
	m.PutInt("seq_id", e.CollectiveSeq)
	if e.IsP2P {
		m.PutInt("seq_id", e.P2PSeq)
	}
	putKnown(m, "source", int64(op.Src))
	putKnown(m, "destination", int64(op.Dst))
	m.PutStr("signature", e.Signature())
	m.PutStr("input_sizes", flightrecorder.FormatSizes(e.InputSizes))
	m.PutStr("output_sizes", flightrecorder.FormatSizes(e.OutputSizes))
	m.PutStr("input_dtypes", flightrecorder.FormatDtypes(e.InputDtypes))
	m.PutStr("output_dtypes", flightrecorder.FormatDtypes(e.OutputDtypes))
	m.PutStr("state", flightrecorder.Clip(e.State, 16))
	m.PutBool("finished", e.Done)
	m.PutInt("created_unix_nano", e.CreatedNS)
	m.PutInt("timeout_ms", e.TimeoutMS)
	if lines := e.Code(mostLines); len(lines) > 0 {
		code := m.PutEmptySlice("code")
		for _, line := range lines {
			code.AppendEmpty().SetStr(line)
		}
	}
}

func putHistory(a pcommon.Map, g *flightrecorder.Group) {
	if len(g.History) == 0 {
		return
	}
	a.PutInt("nccl.fr.history_first_seq_id", g.HistoryFirst)
	hashes := make([]byte, 0, 4*len(g.History))
	for _, hash := range g.History {
		hashes = binary.LittleEndian.AppendUint32(hashes, hash)
	}
	a.PutStr("nccl.fr.history", base64.StdEncoding.EncodeToString(hashes))
	words := a.PutEmptySlice("nccl.fr.signatures")
	for _, signature := range g.Signatures {
		words.AppendEmpty().SetStr(signature)
	}
}

func putText(a pcommon.Map, key, text string) {
	if text != "" {
		a.PutStr(key, text)
	}
}

// putKnown leaves out what the dump does not say.
func putKnown(a pcommon.Map, key string, value int64) {
	if value >= 0 {
		a.PutInt(key, value)
	}
}

// describe says it in one line for whoever reads the log.
func describe(g *flightrecorder.Group, from *origin) string {
	group := cmp.Or(g.Desc, g.Name, "no group")
	if g.Desc == "undefined" {
		group = "group " + g.Name
	}
	group = flightrecorder.Clip(group, 128)
	switch at := g.Front(); {
	case len(g.Unfinished) > 0 && at == nil:
		return fmt.Sprintf("rank %d waits in %s of %s", from.process.Rank, flightrecorder.Clip(g.Unfinished[0].Name, 128), group)
	case at == nil:
		return fmt.Sprintf("rank %d has entered no collective of %s", from.process.Rank, group)
	case at.Done:
		return fmt.Sprintf("rank %d finished %s #%d of %s and waits in none", from.process.Rank, flightrecorder.Clip(at.Name, 128), at.CollectiveSeq, group)
	default:
		return fmt.Sprintf("rank %d waits in %s #%d of %s", from.process.Rank, flightrecorder.Clip(at.Name, 128), at.CollectiveSeq, group)
	}
}
