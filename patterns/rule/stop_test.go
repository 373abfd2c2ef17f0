package rule

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// TestWhichEndsSayThatAJobIsStopped: by who ends jobs, and by the signals that ask.
func TestWhichEndsSayThatAJobIsStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		end  map[string]any
		want bool
	}{
		"the kubelet, in the container":              {map[string]any{"process.exit.signal": 15, "signal.number": 15, "signal.sender.relation": "container"}, true},
		"the kubelet, and a handler that ends well":  {map[string]any{"process.exit.signal": 0, "process.exit.code": 0, "signal.number": 15, "signal.sender.relation": "container"}, true},
		"the container's end kills the rest":         {map[string]any{"process.exit.signal": 9, "signal.number": 9, "signal.sender.relation": "container"}, true},
		"slurmstepd":                                 {map[string]any{"process.exit.signal": 15, "signal.number": 15, "signal.sender.relation": "scheduler"}, true},
		"slurmstepd after its KillWait":              {map[string]any{"process.exit.signal": 9, "signal.number": 9, "signal.sender.relation": "scheduler"}, true},
		"slurmstepd, --signal=USR1":                  {map[string]any{"process.exit.signal": 10, "signal.number": 10, "signal.sender.relation": "scheduler"}, true},
		"its owner, all ranks":                       {map[string]any{"process.exit.signal": 15, "signal.number": 15, "signal.sender.relation": "other", "process.exit.spared_ranks": 0}, true},
		"its owner, one rank of several":             {map[string]any{"process.exit.signal": 15, "signal.number": 15, "signal.sender.relation": "other", "process.exit.spared_ranks": 3}, false},
		"torchrun, after it was asked":               {map[string]any{"process.exit.signal": 15, "signal.number": 15, "signal.sender.relation": "launcher", "process.exit.spared_ranks": 0}, true},
		"Ctrl-C":                                     {map[string]any{"process.exit.signal": 2, "signal.number": 2, "signal.sender.relation": "kernel"}, true},
		"Ctrl-C, and Python ends with a status":      {map[string]any{"process.exit.signal": 0, "process.exit.code": 1, "signal.number": 2, "signal.sender.relation": "kernel"}, true},
		"an abort in the teardown":                   {map[string]any{"process.exit.signal": 6, "signal.number": 15, "signal.sender.relation": "scheduler"}, true},
		"the terminal is gone":                       {map[string]any{"process.exit.signal": 1, "signal.number": 1, "signal.sender.relation": "kernel"}, true},
		"nobody knows who sent it":                   {map[string]any{"process.exit.signal": 15}, true},
		"a shell passes SIGTERM on":                  {map[string]any{"process.exit.signal": 0, "process.exit.code": 143}, true},
		"a shell passes SIGINT on":                   {map[string]any{"process.exit.signal": 0, "process.exit.code": 130}, true},
		"a crash after it was asked":                 {map[string]any{"process.exit.signal": 11, "signal.number": 15, "signal.sender.relation": "scheduler"}, false},
		"a crash":                                    {map[string]any{"process.exit.signal": 11, "signal.number": 11, "signal.sender.relation": "kernel"}, false},
		"SIGTERM that a rank sends itself":           {map[string]any{"process.exit.signal": 15, "signal.number": 15, "signal.sender.relation": "itself"}, false},
		"SIGKILL by a person":                        {map[string]any{"process.exit.signal": 9, "signal.number": 9, "signal.sender.relation": "other"}, false},
		"SIGKILL by the first process, which failed": {map[string]any{"process.exit.signal": 9, "signal.number": 9, "signal.sender.relation": "first_process"}, false},
		"SIGKILL, nobody knows by whom":              {map[string]any{"process.exit.signal": 9}, false},
		"an exception":                               {map[string]any{"process.exit.signal": 0, "process.exit.code": 1}, false},
		"the end of the program":                     {map[string]any{"process.exit.signal": 0, "process.exit.code": 0}, false},
		"an abort":                                   {map[string]any{"process.exit.signal": 6, "signal.number": 6, "signal.sender.relation": "itself"}, false},
		"a worker of a DataLoader":                   {map[string]any{"process.exit.signal": 15, "process.exit.inherited_identity": true}, false},
		"what a launch script runs beside the rank":  {map[string]any{"process.exit.signal": 15, "process.exit.helper": true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			end := pcommon.NewMap()
			require.NoError(t, end.FromRaw(tc.end))
			require.Equal(t, tc.want, JobStopped(end))
		})
	}
}

// TestWhatIsAskedOfRanksThatLiveSaysThatTheirJobIsStopped: SIGTERM and SIGINT by anybody who spares none, the rest by owners.
func TestWhatIsAskedOfRanksThatLiveSaysThatTheirJobIsStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		asked map[string]any
		want  bool
	}{
		"its owner, all ranks":           {map[string]any{"signal.number": 15, "signal.sender.relation": "other", "process.asked.spared_ranks": 0}, true},
		"Ctrl-C":                         {map[string]any{"signal.number": 2, "signal.sender.relation": "kernel"}, true},
		"slurmstepd, --signal=USR1":      {map[string]any{"signal.number": 10, "signal.sender.relation": "scheduler"}, true},
		"torchrun passes SIGTERM on":     {map[string]any{"signal.number": 15, "signal.sender.relation": "launcher", "process.asked.spared_ranks": 0}, true},
		"its owner, one rank of several": {map[string]any{"signal.number": 15, "signal.sender.relation": "other", "process.asked.spared_ranks": 3}, false},
		"a person wants stacks":          {map[string]any{"signal.number": 10, "signal.sender.relation": "other", "process.asked.spared_ranks": 0}, false},
		"a rank signals itself":          {map[string]any{"signal.number": 15, "signal.sender.relation": "itself"}, false},
		"a stranger's record":            {map[string]any{"signal.number": 15, "signal.sender.relation": "scheduler", "tracecore.trust": "foreign"}, false},
		"nothing is known of it":         {map[string]any{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := pcommon.NewMap()
			require.NoError(t, asked.FromRaw(tc.asked))
			require.Equal(t, tc.want, JobAsked(asked))
		})
	}
}
