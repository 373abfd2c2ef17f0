package rule_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const reader = `id: 1001
name: my_fault
summary: something of mine broke
fields:
  mount: Coalesce([attributes["fuse.mount.point"], attributes["fuse.device"]])
key: [host]
evidence:
  first:
    logs: [fuse.stall, storage.not_responding]
    where: >-
      attributes["fuse.stall.age_ns"] > 1
      and attributes["nccl.rank.state"] == "stopped"
    shows: "{mount}"
  second:
    metrics: node_infiniband_state_id
    stays: {while: "attributes[\"hw.type\"] == nil", for: 3s}
    match: [host]
    shows: it stays
full: first
severity: error
headline: "{host} is broken"
remedy: mend it
`

func vocabulary() *rule.Vocabulary {
	return &rule.Vocabulary{
		Events: []string{"fuse.stall", "storage.not_responding"}, Metrics: []string{"node_*"},
		Attributes: []string{"fuse.mount.point", "fuse.device", "fuse.stall.age_ns", "nccl.rank.state", "hw.type"},
	}
}

// A typo in a name is found where it stands: in a list, in a folded text, in quotes.
func TestAnUnknownNameIsAnErrorAtItsPlace(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"event":               {"not_responding]", "not_respondin]", `mine.yaml:9:24: no event "storage.not_respondin" is known: did you mean "storage.not_responding"? Or declare it`},
		"attribute":           {"nccl.rank.state", "nccl.rank.stat", `mine.yaml:12:23: no attribute "nccl.rank.stat" is known: did you mean "nccl.rank.state"?`},
		"attribute of a list": {`"fuse.device"`, `"fuse.devise"`, `mine.yaml:5:64: no attribute "fuse.devise" is known: did you mean "fuse.device"?`},
		"quoted attribute":    {"hw.type", "hw.tipe", `mine.yaml:16:`},
		"metric":              {"node_infiniband_state_id", "mode_infiniband_state_id", `mine.yaml:15:14: no metric "mode_infiniband_state_id" is known: declare it if others send it, declares: {metrics: {mode_infiniband_state_id: what it is}}`},
		"nothing like it":     {"fuse.stall,", "my.event,", `mine.yaml:9:12: no event "my.event" is known: declare it`},
		"declared as another": {"key: [host]", "key: [host]\ndeclares: {attributes: {my.event: x}}\nwithin: 1m", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, reader, tc.old)
			r, err := rule.Parse("mine.yaml", []byte(strings.Replace(reader, tc.old, tc.new, 1)))
			require.NoError(t, err)
			err = vocabulary().Check([]rule.Rule{r})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestARuleDeclaresWhatOthersSend(t *testing.T) {
	mine := strings.Replace(reader, "fuse.stall,", "my.event,", 1)
	r, err := rule.Parse("mine.yaml", []byte(strings.Replace(mine, "key: [host]", "declares:\n  events: {my.event: the daemon of our storage}\nkey: [host]", 1)))
	require.NoError(t, err)
	require.NoError(t, vocabulary().Check([]rule.Rule{r}))
	_, err = rule.Parse("mine.yaml", []byte(strings.Replace(mine, "key: [host]", "declares:\n  events: {my.event: ''}\nkey: [host]", 1)))
	require.ErrorContains(t, err, "mine.yaml:7:22: my.event is declared without saying what it is: say who sends it")
}
