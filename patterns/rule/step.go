package rule

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// step is one step of a remedy, as templates.
type step struct {
	text, command, target Template
	effect                string
}

// Steps fills in the steps of a remedy that is written as steps. A step whose text is
// empty is left out, and a command that lacks a value: a command with a word for what is
// not known would do something else.
func (t Template) Steps(k Known) []verdict.Step {
	var steps []verdict.Step
	for _, s := range t.steps {
		one := verdict.Step{Text: strings.TrimSpace(s.text.Expand(k))}
		if one.Text == "" {
			continue
		}
		if s.command.Text != "" && k.knows(s.command) && k.knows(s.target) {
			one.Command, one.Effect, one.Target = s.command.Expand(k.quoted()), s.effect, s.target.Expand(k)
		}
		steps = append(steps, one)
	}
	return steps
}

// Steps picks the template and fills in its steps.
func (c Choice) Steps(k Known) []verdict.Step { return c.Pick(k).Steps(k) }

// paragraph is steps as one text.
func paragraph(steps []verdict.Step) string {
	texts := make([]string, 0, len(steps))
	for _, s := range steps {
		if s.Command != "" {
			s.Text = strings.TrimSuffix(s.Text, ".") + ": " + s.Command + "."
		}
		texts = append(texts, s.Text)
	}
	return strings.Join(texts, " ")
}

// knows reports whether all fields of t outside of brackets have a value.
func (k Known) knows(t Template) bool {
	for _, p := range t.parts {
		if p.field == "" {
			continue
		}
		if _, ok := k.Field(p.field); !ok {
			return false
		}
	}
	return true
}

// quoted is k with each value as one word of a shell: a job names its mounts itself.
func (k Known) quoted() Known {
	field := k.Field
	k.Field = func(name string) (string, bool) {
		value, ok := field(name)
		return ShellWord(value), ok
	}
	return k
}

// bare are characters that no shell reads as anything else (POSIX, 2.2 Quoting).
const bare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,-"

// ShellWord is value as one word of a POSIX shell. A word that begins with - would be an
// option, even in quotes: it becomes a path, which is what such a value is.
func ShellWord(value string) string {
	if strings.HasPrefix(value, "-") {
		value = "./" + value
	}
	if value != "" && strings.Trim(value, bare) == "" {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// remedy reads a template, or a list of steps.
func (d *decoder) remedy(to *Template, r *Rule) value {
	text := d.template(to, r, "remedy")
	steps := d.list("remedy", func() (value, func(*yaml.Node)) {
		var one step
		return d.object("", "A step", "a step of a remedy", []key{
				{"text", d.template(&one.text, r, "text"), needed, "what to do; a step whose text is empty, because all of it is in brackets, is left out"},
				{"command", d.template(&one.command, r, "command"), "", "what to type; values are quoted for a shell, and the command is left out while a field in it is unknown"},
				{"effect", d.word(&one.effect, verdict.Looks, verdict.Changes), "", "of the command: it reads, or it changes something on the target"},
				{"target", d.template(&one.target, r, "target"), "", "where the command is run: `{host}`"},
			}), func(n *yaml.Node) {
				if (one.command.Text == "") != (one.effect == "") {
					d.fail(n, "a step has a command and its effect (%s or %s), or neither", verdict.Looks, verdict.Changes)
				}
				if len(to.steps) == verdict.MaxSteps {
					d.fail(n, "a remedy has at most %d steps: join some", verdict.MaxSteps)
					return
				}
				to.steps = append(to.steps, one)
				to.Text = strings.TrimSpace(to.Text + " " + one.text.Text)
			}
	})
	return value{kind: "template or steps", section: steps.section, keys: steps.keys, read: func(n *yaml.Node) {
		if n.Kind == yaml.SequenceNode {
			steps.read(n)
			return
		}
		text.read(n)
	}}
}
