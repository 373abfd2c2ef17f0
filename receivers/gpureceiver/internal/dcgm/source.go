package dcgm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/helper"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// Options say what the engine is asked to do.
type Options struct {
	Address   string
	Every     time.Duration // how often it reads
	Profiling bool
	Health    bool
	Listen    bool     // for Xids and violations
	Policies  []string // conditions whose policies are set
	Ask       bool     // only whether it answers: nothing is watched or read
}

// maxEvents bounds what one wait brings.
const maxEvents = 256

// source is a host engine for the helper.
type source struct {
	engine     Engine
	options    Options
	tracker    helper.Tracker
	violations <-chan Violation
	since      time.Time
	troubles   []protocol.Failure // of what is optional
	groups     [][]uint16         // of fields that are watched
	healthy    bool               // health is watched
	dropped    uint64             // violations

	mu        sync.Mutex      // guards addresses
	addresses map[uint]string // of the GPUs, by their ids
}

// NewSource reads a host engine.
func NewSource(engine Engine, options Options) helper.Source {
	return &source{engine: engine, options: options, addresses: map[uint]string{}}
}

// try makes a call that may hang.
func (s *source) try(call string, do func() error) error {
	s.tracker.Begin(call, "")
	defer s.tracker.End()
	return do()
}

// Open connects and says what is to be watched.
func (s *source) Open(tracker helper.Tracker) protocol.State {
	s.tracker, s.since = tracker, time.Now()
	err := s.try("connect", func() error { return s.engine.Connect(s.options.Address) })
	switch {
	case errors.Is(err, ErrLibraryAbsent):
		return protocol.State{Name: protocol.LibraryAbsent, Detail: err.Error()}
	case errors.Is(err, ErrLibraryOld):
		return protocol.State{Name: protocol.Failed, Detail: err.Error()}
	case err != nil && s.options.Address == Embedded:
		return protocol.State{Name: protocol.Failed, Detail: "start an embedded host engine: " + err.Error()}
	case err != nil:
		return protocol.State{Name: protocol.EngineAbsent, Detail: s.options.Address + ": " + err.Error()}
	}
	if s.options.Ask {
		return protocol.State{Name: protocol.EngineAnswers}
	}
	if err := s.watch("tracecore", ids(who(), quantities(), throttles(), ecc())); err != nil {
		return s.ended("watch the fields", err)
	}
	s.optional("watch_links", func() error { return s.watch("tracecore links", idsOf(links())) })
	if s.options.Profiling {
		s.optional("watch_profiling", func() error { return s.watch("tracecore profiling", ids(nil, profiled(), ratios(), nil)) })
	}
	s.healthy = s.options.Health && s.optional("watch_health", s.engine.WatchHealth)
	state := protocol.State{Name: protocol.Ready, Events: s.options.Listen}
	if s.options.Listen {
		s.listen()
	}
	_ = s.try("version", func() (err error) {
		state.Library, err = s.engine.Version()
		return err
	})
	snapshot, over := s.Snapshot()
	if over != nil {
		return *over
	}
	state.GPUs, state.Driver = len(snapshot.GPUs), s.driver()
	return state
}

// watch has the engine read fields and remembers them.
func (s *source) watch(name string, fields []uint16) error {
	if err := s.try("watch", func() error { return s.engine.Watch(name, fields, s.options.Every, 1) }); err != nil {
		return err
	}
	s.groups = append(s.groups, fields)
	return nil
}

// optional does what an engine or a GPU may not be able to, and reports whether
// it is.
func (s *source) optional(call string, do func() error) bool {
	err := s.try(call, do)
	if code := codeOf(err); code != OK && !code.absent() {
		s.troubled(protocol.Failure{Call: call, Code: code.Error()})
	}
	return err == nil
}

// troubled notes what the next snapshot tells, each once.
func (s *source) troubled(f protocol.Failure) {
	if !slices.Contains(s.troubles, f) {
		s.troubles = append(s.troubles, f)
	}
}

// listen hears of Xids and violations.
func (s *source) listen() {
	s.optional("watch_xid", func() error { return s.engine.Watch("tracecore xid", []uint16{FieldXid}, s.options.Every, maxEvents) })
	s.optional("watch_policies", func() (err error) {
		s.violations, err = s.engine.Violations(s.options.Policies)
		return err
	})
}

// driver is the version that any GPU tells.
func (s *source) driver() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gpu := range s.addresses {
		var values []Value
		if s.try("driver", func() (err error) {
			values, err = s.engine.Values(gpu, []uint16{fieldDriver})
			return err
		}) == nil && len(values) == 1 && values[0].Kind == Text {
			return values[0].Text
		}
	}
	return ""
}

// ended is the state after an error that leaves nothing to read.
func (s *source) ended(what string, err error) protocol.State {
	if lost(err) {
		return protocol.State{Name: protocol.ConnectionLost, Detail: s.options.Address + ": " + "the connection to the host engine is no longer valid"}
	}
	return protocol.State{Name: protocol.Failed, Detail: fmt.Sprintf("%s: %v", what, err)}
}

// lost reports whether the engine is gone.
func lost(err error) bool {
	code := codeOf(err)
	return code == ConnectionNotValid || code == Uninitialized
}

// Snapshot reads all GPUs.
func (s *source) Snapshot() (*protocol.Snapshot, *protocol.State) {
	var found []uint
	if err := s.try("gpus", func() (err error) {
		found, err = s.engine.GPUs()
		return err
	}); err != nil {
		over := s.ended("list the GPUs", err)
		return nil, &over
	}
	links, health := s.links(), s.health()
	if n := s.engine.Dropped(); n != s.dropped {
		s.dropped = n
		s.troubled(protocol.Failure{Call: "policy_violations", Code: "dropped"})
	}
	snapshot := &protocol.Snapshot{}
	for _, id := range found {
		gpu, err := s.read(id, links[id])
		if lost(err) {
			over := s.ended("read", err)
			return nil, &over
		}
		if !gpu.Lost {
			gpu.Health, gpu.HealthKnown = health[id], s.healthy
		}
		snapshot.GPUs = append(snapshot.GPUs, gpu)
	}
	if len(snapshot.GPUs) > 0 {
		snapshot.GPUs[0].Failures = append(snapshot.GPUs[0].Failures, s.troubles...)
		s.troubles = nil
	}
	return snapshot, nil
}

// read reads one GPU. What its link or its health lacks is no error.
func (s *source) read(id uint, states []Link) (protocol.GPU, error) {
	gpu, values := protocol.GPU{}, reading{}
	s.tracker.Begin("status", s.address(id))
	gpu.Lost = s.engine.Lost(id)
	s.tracker.End()
	for _, fields := range s.groups {
		if gpu.Lost {
			break
		}
		s.tracker.Begin("values", s.address(id))
		some, err := s.engine.Values(id, fields)
		s.tracker.End()
		switch code := codeOf(err); {
		case lost(err):
			return gpu, err
		case code == GPULost || code == GPUsDetached:
			gpu.Lost = true
		case code != OK:
			fail(&gpu, "values", code)
		default:
			values.take(some, &gpu)
		}
	}
	s.know(id, values, &gpu)
	if gpu.Lost {
		return protocol.GPU{Identity: gpu.Identity, Lost: true}, nil
	}
	values.fill(&gpu)
	values.fillLinks(&gpu, states)
	return gpu, nil
}

// know says who a GPU is; one that is lost may not tell any more.
func (s *source) know(id uint, values reading, gpu *protocol.GPU) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gpu.Identity = values.identity(id)
	if gpu.PCI == "" {
		gpu.Identity = device.Identity{Index: int(id), PCI: s.addresses[id]}
		return
	}
	s.addresses[id] = gpu.PCI
}

func (s *source) address(id uint) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addresses[id]
}

func (s *source) links() map[uint][]Link {
	by := map[uint][]Link{}
	s.optional("nvlink_states", func() error {
		all, err := s.engine.Links()
		for _, link := range all {
			by[link.GPU] = append(by[link.GPU], link)
		}
		return err
	})
	return by
}

// health asks for what the engine's watches found.
func (s *source) health() map[uint][]protocol.Incident {
	by := map[uint][]protocol.Incident{}
	if s.healthy {
		s.optional("health", func() error {
			all, err := s.engine.Health()
			for _, f := range all {
				by[f.GPU] = append(by[f.GPU], protocol.Incident{System: f.System, Failed: f.Failed, Text: f.Text})
			}
			return err
		})
	}
	return by
}
