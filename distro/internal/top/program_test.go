package top

import (
	"bytes"
	"io"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// TestTheProgramAsksShowsAndEnds runs it as a terminal does: the screen comes, and q ends it
// with nothing left behind.
func TestTheProgramAsksShowsAndEnds(t *testing.T) {
	keys, hands := io.Pipe()
	shown := make(chan struct{})
	var out watched
	out.want, out.seen = []byte("daemon juicefs of /data is gone"), shown
	program := tea.NewProgram(New(live(), Actions{}, false), tea.WithInput(keys), tea.WithOutput(&out), tea.WithWindowSize(80, 24), tea.WithoutSignals(), tea.WithEnvironment([]string{"TERM=xterm"}))
	ended := make(chan error, 1)
	go func() { _, err := program.Run(); ended <- err }()
	wait := func(c <-chan struct{}, what string) {
		select {
		case <-c:
		case <-time.After(hosttest.Patience):
			require.Fail(t, what)
		}
	}
	wait(shown, "the screen does not come")
	_, err := hands.Write([]byte("q"))
	require.NoError(t, err)
	gone := make(chan struct{})
	go func() { require.NoError(t, <-ended); close(gone) }()
	wait(gone, "it does not end")
	require.NoError(t, hands.Close())
}

// watched is output that tells when something was written.
type watched struct {
	all  bytes.Buffer
	want []byte
	seen chan struct{}
	once bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.all.Write(p)
	if !w.once && bytes.Contains(sgr.ReplaceAll(w.all.Bytes(), nil), w.want) {
		w.once = true
		close(w.seen)
	}
	return n, err
}

// FuzzGrid: whatever somebody answers of ranks, the screens are their size.
func FuzzGrid(f *testing.F) {
	f.Add("0-516,518-1023", "517", "node-1", "0-7", "0,1,2,3,4,5,6,7", 1024, 517)
	f.Add("0-99999999999", "1,,2-1,-5", "", "9-3", "63,64,-1", 1<<30, -1)
	f.Add("", "131071", "x", "131070-131072", "a", 0, 131071)
	f.Fuzz(func(t *testing.T, waits, died, host, on, local string, world, rank int) {
		source := live()
		source.picture.Jobs = []history.RankJob{{
			Job: "llm", World: world, Counts: map[string]int{history.RankWaits: world, history.RankDied: rank, "nonsense": 3},
			Groups: []history.RankGroup{{State: history.RankWaits, Ranks: waits}, {State: history.RankDied, Ranks: died, What: host}, {State: "nonsense", Ranks: on}},
			Nodes:  []history.RankNode{{Host: host, Ranks: on, Local: local}, {Host: host, Ranks: waits}},
		}}
		u := newUser(&testing.T{}, source, Actions{})
		u.t, u.rank = nil, rank
		for _, at := range []screen{atHome, atRanks, atRank} {
			u.places = []place{{}, {screen: at}}
			for range folds {
				for _, size := range [][2]int{{80, 24}, {200, 60}} {
					u.size(size[0], size[1])
					require.Len(t, u.Screen(), size[1])
				}
				for _, k := range u.keys() {
					if at == atRanks && k.do != nil && k.label == "n" {
						k.do()
					}
				}
				u.fold = (u.fold + 1) % folds
			}
		}
	})
}
