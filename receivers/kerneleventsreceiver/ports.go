package kerneleventsreceiver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/ports"
)

// portsInterval is how often the states of RDMA ports are read. The driver asks its adapter for
// each, as it does at each scrape of node_exporter.
const portsInterval = 5 * time.Second

// readPorts reads the ports of this machine.
func readPorts() ([]ports.Port, error) {
	return ports.Read(sysRoot())
}

// watchPorts reads the ports now and at each tick, and hands them on, until done is closed. It is
// a goroutine of its own that nobody waits for: an adapter that does not answer holds a read up.
func (w *worker) watchPorts(done <-chan struct{}) {
	ticks := time.NewTicker(w.portsEvery)
	defer ticks.Stop()
	for {
		all, err := w.readPorts()
		if err != nil { // no file descriptor was left, or no memory
			w.watched.settings.Logger.Debug("read the ports of RDMA adapters", zap.Error(err))
		} else {
			select {
			case w.ports <- all:
			case <-done:
				return
			}
		}
		select {
		case <-ticks.C:
		case <-done:
			return
		}
	}
}

// lookAtPorts tells of ports that were active and are not, or are again.
func (w *worker) lookAtPorts(all []ports.Port, now time.Time) {
	news := w.portBook.Look(all, now)
	if len(news) == 0 {
		return
	}
	w.put(w.convert.ports(news, w.jobHere(), now))
	w.savePorts()
}

// jobHere is the job whose ranks run on this host; nil where none does, or several do.
func (w *worker) jobHere() []identity.Process {
	if w.resolver == nil {
		return nil
	}
	ranks := slices.DeleteFunc(slices.Clone(w.resolver.Ranks()), func(p identity.Process) bool {
		return !p.IsRank() || p.Inherited || p.Drill
	})
	for i := range ranks {
		if ranks[i].JobID != ranks[0].JobID || ranks[i].Domain != ranks[0].Domain || ranks[i].Rendezvous != ranks[0].Rendezvous {
			return nil
		}
	}
	return ranks
}

// portsKey is where the book of ports is kept.
const portsKey = "ports"

// savePorts keeps the book, if there is a storage.
func (w *worker) savePorts() {
	book, err := w.portBook.Save()
	if err == nil {
		err = w.watched.keep(portsKey, book)
	}
	if err != nil {
		w.watched.settings.Logger.Debug("note which ports were active", zap.Error(err)) // the storage itself says what is wrong
	}
}

// restorePorts takes up the book that was kept in this boot.
func (w *worker) restorePorts(now time.Time) {
	saved := w.watched.kept(context.Background(), portsKey)
	if saved == nil {
		return
	}
	if err := w.portBook.Restore(saved, now); err != nil {
		w.watched.settings.Logger.Warn("which ports of RDMA adapters were active before is not known", zap.Error(err))
	}
}

// ports makes records of ports.
func (c *converter) ports(news []ports.Seen, job []identity.Process, now time.Time) plog.Logs {
	for i := range news {
		p := &news[i]
		severity := record.Info
		if !p.Active() {
			severity = record.Warning
		}
		a := c.builder.NetworkRdmaPort(record.Head{Trust: record.Proven, Time: now, Observed: now, Severity: severity, Text: describePort(p)})
		a.NetworkRdmaDevice(p.Device)
		a.NetworkPort(p.Number)
		a.NetworkInterfaceName(p.Interface)
		a.NetworkRdmaPortState(p.State)
		a.NetworkRdmaPortPhysicalState(p.Physical)
		a.NetworkRdmaPortReason(string(p.Reason))
		a.NetworkRdmaPortInactiveNs(p.Inactive.Nanoseconds())
		putHere(a.HereAttributes, job)
	}
	return c.builder.Emit()
}

// putHere says which job has to do with what happens to the host: its ranks on other hosts, too.
func putHere(a metadata.HereAttributes, job []identity.Process) {
	if len(job) == 0 {
		return
	}
	a.GenAiTrainingJobID(job[0].JobID)
	a.GenAiTrainingJobDomain(job[0].Domain)
	a.GenAiTrainingRendezvous(job[0].Rendezvous)
	record.Numbers(a.NetworkRdmaPortRanks, ranksOf(job))
}

// ranksOf are the numbers of ranks, sorted, each once.
func ranksOf(job []identity.Process) []int {
	var ranks []int
	for i := range job {
		ranks = append(ranks, job[i].Rank)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

func describePort(p *ports.Seen) string {
	if p.Active() {
		return fmt.Sprintf("port %d of %s is active", p.Number, p.Device)
	}
	text := fmt.Sprintf("port %d of %s was active and is %s", p.Number, p.Device, p.State)
	if p.Physical != "" {
		text += ", physical state " + p.Physical
	}
	return fmt.Sprintf("%s, for %s", text, p.Inactive.Round(time.Second))
}
