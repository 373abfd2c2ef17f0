// Package backend is what --to and --to-all of the command line say: where verdicts, or
// all records, metrics and spans, are sent. It makes exporters of URLs, with a queue on disk, and
// adds them to whatever configuration runs.
package backend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

const (
	flagTo    = "to"
	flagToAll = "to-all"
)

// Backends are those of one command line.
type Backends struct {
	verdicts, everything []string // as they were given

	targets []target
	security
}

// Register adds the flags.
func (b *Backends) Register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&b.verdicts, flagTo, nil, "`URL` of an OTLP backend that gets verdicts and summaries of runs, kept on disk until it has them: https://HOST[:PORT][/PATH], http://…, "+
		"grpcs://HOST[:4317] or grpc://…; may be repeated. Headers, such as a token, come from the environment variable "+headersVariable)
	flags.StringArrayVar(&b.everything, flagToAll, nil, "`URL` of an OTLP backend that gets all other records, metrics and spans, too; as --to")
}

// Read reads what the flags and the environment say. It is called before the configuration
// is made; an error says what is wrong with the command line.
func (b *Backends) Read(env func(string) string) error {
	b.targets = nil
	var problems []error
	for _, given := range []struct {
		flag string
		urls []string
		all  bool
	}{{flagTo, b.verdicts, false}, {flagToAll, b.everything, true}} {
		for _, text := range given.urls {
			t, err := parse(text)
			if err == nil {
				err = b.clash(t)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("--%s: %w", given.flag, err))
				continue
			}
			t.all = given.all
			b.targets = append(b.targets, t)
		}
	}
	if len(b.targets) > 0 {
		problems = append(problems, b.readSecurity(env))
	}
	return errors.Join(problems...)
}

func (b *Backends) clash(t target) error {
	for _, other := range b.targets {
		if other.name == t.name && other.kind == t.kind {
			return fmt.Errorf("%s is named twice: name each backend once, by --%s or --%s", t, flagTo, flagToAll)
		}
	}
	return nil
}

// Lines say where what is sent, a line for each backend.
func (b *Backends) Lines() []string {
	lines := make([]string, 0, len(b.targets))
	for _, t := range b.targets {
		what := "verdicts"
		if t.all {
			what = "verdicts, records, metrics and spans"
		}
		lines = append(lines, fmt.Sprintf("%s to %s", what, t))
	}
	return lines
}

// flagged names the flags that were given, for messages.
func (b *Backends) flagged() string {
	var names []string
	if len(b.verdicts) > 0 {
		names = append(names, "--"+flagTo)
	}
	if len(b.everything) > 0 {
		names = append(names, "--"+flagToAll)
	}
	return strings.Join(names, ", ")
}
