package ncclfrreceiver

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/metadata"
)

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

// add adds one record for each group of a dump.
func add(builder *metadata.LogsBuilder, digest *flightrecorder.Digest, from *origin) {
	for _, group := range digest.Groups {
		addGroup(builder, digest, &group, from)
	}
}

func addGroup(builder *metadata.LogsBuilder, digest *flightrecorder.Digest, g *flightrecorder.Group, from *origin) {
	severity := record.Info
	if g.UnfinishedTotal > 0 {
		severity = record.Warning
	}
	a := builder.NcclFrDump(record.Head{Trust: record.Claimed, Time: from.changed, Observed: from.observed, Severity: severity, Text: describe(g, from)})
	a.Stamp(from.process)
	a.NcclFrRank(int64(from.process.Rank))
	a.NcclFrFile(from.file)
	a.NcclFrRun(from.run)
	a.NcclFrFormatVersion(digest.Version)
	a.NcclFrLibraryVersion(digest.Library)
	putGroup(a, g)
	putOperations(a, g)
	putHistory(a, g)
}

func putGroup(a metadata.NcclFrDump, g *flightrecorder.Group) {
	a.NcclFrPgID(flightrecorder.Clip(g.Name, 128))
	a.NcclFrPgDesc(flightrecorder.Clip(g.Desc, 128))
	a.NcclFrPgRanks(flightrecorder.FormatRanks(g.Ranks, mostRanksText))
	a.NcclFrBackend(g.Backend)
	a.NcclFrEntries(int64(g.Entries))
	a.NcclFrUnfinished(int64(g.UnfinishedTotal))
	record.NotNegative(a.NcclFrLastEnqueued, g.Status.LastEnqueued)
	record.NotNegative(a.NcclFrLastStarted, g.Status.LastStarted)
	record.NotNegative(a.NcclFrLastCompleted, g.Status.LastCompleted)
	if g.NewestNS > 0 {
		a.NcclFrNewestUnixNano(g.NewestNS)
	}
	if at := g.Front(); at != nil {
		a.NcclFrCollectiveSeqID(at.CollectiveSeq)
	}
}

func putOperations(a metadata.NcclFrDump, g *flightrecorder.Group) {
	if len(g.Unfinished) == 0 && g.LastFinished == nil {
		return
	}
	list := a.NcclFrOperations()
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
	o := metadata.OperationMapOn(record.On(m))
	o.Name(flightrecorder.Clip(e.Name, 128))
	o.P2p(e.IsP2P)
	o.SeqID(e.CollectiveSeq)
	if e.IsP2P {
		o.SeqID(e.P2PSeq)
	}
	record.NotNegative(o.Source, op.Src)
	record.NotNegative(o.Destination, op.Dst)
	o.Signature(e.Signature())
	o.InputSizes(flightrecorder.FormatSizes(e.InputSizes))
	o.OutputSizes(flightrecorder.FormatSizes(e.OutputSizes))
	o.InputDtypes(flightrecorder.FormatDtypes(e.InputDtypes))
	o.OutputDtypes(flightrecorder.FormatDtypes(e.OutputDtypes))
	o.State(flightrecorder.Clip(e.State, 16))
	o.Finished(e.Done)
	o.CreatedUnixNano(e.CreatedNS)
	o.TimeoutMs(e.TimeoutMS)
	record.Texts(o.Code, e.Code(mostLines))
}

func putHistory(a metadata.NcclFrDump, g *flightrecorder.Group) {
	if len(g.History) == 0 {
		return
	}
	a.NcclFrHistoryFirstSeqID(g.HistoryFirst)
	hashes := make([]byte, 0, 4*len(g.History))
	for _, hash := range g.History {
		hashes = binary.LittleEndian.AppendUint32(hashes, hash)
	}
	a.NcclFrHistory(base64.StdEncoding.EncodeToString(hashes))
	words := a.NcclFrSignatures()
	for _, signature := range g.Signatures {
		words.AppendEmpty().SetStr(signature)
	}
}

// describe says it in one line for a person who reads the log.
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
