package rule

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Bounds of one file.
const (
	maxFileBytes = 1 << 20
	maxEvidence  = 128 // one bit each
	maxFields    = 96
	maxDuration  = 7 * 24 * time.Hour
)

// Parse reads one pattern file; name is for messages. Parameters have their defaults.
func Parse(name string, content []byte) (Rule, error) { return ParseWith(name, content, Settings{}) }

// ParseWith reads one pattern file with parameters that the operator set.
func ParseWith(name string, content []byte, set Settings) (Rule, error) {
	if len(content) > maxFileBytes {
		return Rule{}, fmt.Errorf("%s: %d bytes, a pattern file has at most %d", name, len(content), maxFileBytes)
	}
	document, err := readDocument(name, content)
	if err != nil {
		return Rule{}, err
	}
	if len(document.Content) == 0 {
		return Rule{}, fmt.Errorf("%s:1:1: the file is empty: start with id, name and summary", name)
	}
	d := &decoder{file: name, lines: strings.Split(string(content), "\n"), named: predefined(), checked: map[ottlText]bool{}, used: map[string]bool{}}
	r := Rule{File: name, Trust: LeastTrust{Full: verdict.Proven, Partial: verdict.Claimed}}
	d.readParameters(document.Content[0], &r, set)
	d.readConditions(document.Content[0])
	d.pattern(&r).read(document.Content[0])
	d.afterwards(func() { d.checkEvidence(document.Content[0], &r) })
	d.afterwards(func() { d.checkParameters(&r) })
	d.afterwards(d.checkConditions)
	if err := d.finish(); err != nil {
		return Rule{}, err
	}
	r.reads = d.reads
	r.setDefaults()
	return r, nil
}

// readDocument reads the one document of a pattern file; an empty file has none.
func readDocument(name string, content []byte) (document yaml.Node, err error) {
	yamlDecoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := yamlDecoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return document, notYAML(name, err)
	}
	var another *Another
	switch err := Last(yamlDecoder); {
	case errors.As(err, &another):
		return document, fmt.Errorf("%s: one pattern a file, and this begins another: move what follows --- to a file of its own", position{line: another.Line}.in(name))
	case err != nil:
		return document, notYAML(name, err)
	}
	return document, nil
}

// readParameters reads parameters, which all other keys can use, and sets them.
func (d *decoder) readParameters(document *yaml.Node, r *Rule, set Settings) {
	for i := 0; i+1 < len(document.Content) && document.Kind == yaml.MappingNode; i += 2 {
		switch name, v := document.Content[i].Value, document.Content[i+1]; name {
		case "parameters":
			d.parameters(r).read(v)
		case "name":
			r.Name = v.Value // for messages
		}
	}
	d.errs = append(d.errs, r.apply(set)...)
	d.values = r.Parameters
}

// readConditions reads named conditions, which use parameters.
func (d *decoder) readConditions(document *yaml.Node) {
	for i := 0; i+1 < len(document.Content) && document.Kind == yaml.MappingNode; i += 2 {
		if document.Content[i].Value == "conditions" {
			d.conditions().read(document.Content[i+1])
		}
	}
}

// yamlLine finds the line in an error of the YAML parser, which knows no column.
var yamlLine = regexp.MustCompile(`line (\d+): `)

func notYAML(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	found := yamlLine.FindStringSubmatchIndex(text)
	if found == nil {
		return fmt.Errorf("%s: %s: correct the YAML", file, text)
	}
	line, _ := strconv.Atoi(text[found[2]:found[3]])
	return fmt.Errorf("%s: %s: correct the YAML here or nearby", position{line: line}.in(file), text[:found[0]]+text[found[1]:])
}

// pattern is a whole file.
func (d *decoder) pattern(r *Rule) value {
	return d.object("", "A pattern file", "a pattern file", []key{
		{"id", d.integer(&r.ID, 1).then(mark(&r.idAt)), needed, "tells patterns apart; 1000 and above are free for your own. Below, a file of yours has only the id of the pattern that it replaces"},
		{"name", d.name(&r.Name).then(mark(&r.nameAt)), needed, "of the pattern, as verdicts carry it"},
		{"summary", d.text("text", &r.Summary), needed, "the symptom in one line"},
		{"replaces", d.text("pattern", &r.Replaces).then(d.checkReplaces(r)), "", "the built-in pattern whose place this file takes; it has the same name"},
		{"parameters", d.parameters(r).described(), "", "thresholds that operators can set; `$name` stands for one in a duration, a number, OTTL or a template"},
		{"conditions", d.conditions().described(), "", "conditions that several pieces of evidence have in common, beside the [predefined ones](#predefined-conditions); `$name` stands for one in `where`, in `while` and in conditions below it"},
		{"declares", d.declares(&r.Declares), "", "names that the rule reads and tracecore does not know: any other unknown name is an error"},
		{"detector", d.text("detector", &r.Detector).then(mark(&r.detectorAt)), "", "algorithm of tracecore whose findings (`finding.…`) the evidence reads"},
		{"fields", d.fields(&r.Fields), "", "named values of each record, beside the [predefined fields](#predefined-fields)"},
		{"identity", d.fields(&r.Identity), "", "predefined fields that this pattern reads elsewhere"},
		{"key", d.fieldNames(&r.Key, r), needed, "what tells one fault from another"},
		{"culprit", d.fieldNames(&r.Culprit, r), "", "what the verdict names; all fields without it"},
		{"worst", d.worst(r), "", "which of several things names the culprit, whichever was seen first"},
		{"evidence", d.evidence(&r.Evidence, r), needed, "what the pattern looks for; the first that was seen names the culprit"},
		{"full", d.expr(&r.Full, &r.Evidence).then(d.notBelieved(r)), needed, "when the verdict is certain"},
		{"partial", d.expr(&r.Partial, &r.Evidence), "", "when it is likely"},
		{"trust", d.leastTrust(r), "", "how it must be known that the evidence is true"},
		{"within", d.duration(&r.Within), "5m", "evidence further apart is not one fault"},
		{"expires", d.duration(&r.Expires), "24h", "quiet this long, a fault leaves the state"},
		{"on_expiry", d.word((*string)(&r.OnExpiry), string(Forget), string(Resolve)), string(Forget), "what then becomes of its open verdict: it stays as it was last told, or is resolved"},
		{"resolves", d.evidence(&r.Resolves, r), "", "evidence that the fault has cleared"},
		{"of_run", d.flag(&r.OfRun), "", "it is about processes of one start of a job. What another start shows is another fault, this one explains nothing of it, and it is resolved when the job is started again. Not for hardware, mounts and machines, which outlast a job"},
		{"stands", d.flag(&r.Stands), "", "while it lasts, the ranks of its job make no progress: that time counts as lost in `job.summary`, but for verdicts of severity info"},
		{"returns", d.returns(r), "", "when what is seen again is another fault, although nothing told that the first had ended"},
		{"holds_back", d.holdBack(r), "", "a verdict that is told a moment later, because what comes at once may say that it is another"},
		{"terminal", d.flag(&r.Terminal), "", "it does not end because its cause has cleared: a dead rank stays dead"},
		{"ends", d.ends(r), "", "what else ends it: `reboot`, a later boot of its `host`, as the event `host.boot` and any proven record of that boot tell it (evidence `rebooted`)"},
		{"unless", d.unless(r), "", "evidence that refutes"},
		{"explains", d.explains(r), "", "verdicts of other patterns that this one causes"},
		{"of_itself", d.otherEvidence(&Evidence{}, r, &r.Itself), "", "evidence that it began in its own job: no verdict explains it by the machine alone (`host`, `node`)"},
		{"precedes", d.duration(&r.Precedes), "", "how long before its cause its first sign may be; without it, what explains it began before"},
		{"severity", d.choice("severity", &r.Severity, r, severities...), needed, "`info`, `warning`, `error` or `critical`"},
		{"headline", d.choice("headline", &r.Headline, r), needed, "what happened, in one sentence"},
		{"remedy", d.choiceOf("a remedy", &r.Remedy, r, func(to *Template) value { return d.remedy(to, r) }), needed, "what to do"},
	})
}

// notBelieved refuses a rule that is certain because of what a process only claims.
func (d *decoder) notBelieved(r *Rule) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.afterwards(func() {
			for _, name := range r.Full.Names() {
				if slices.ContainsFunc(r.Evidence, func(e Evidence) bool { return e.Name == name && e.Believed }) {
					d.fail(n, "full rests on %s, which is believed though only a process claims it: name it in partial alone, or take believed away", name)
				}
			}
		})
	}
}

// leastTrust reads what evidence is good enough for. A rule that says nothing wants the
// kernel or a driver for what drains a machine.
func (d *decoder) leastTrust(r *Rule) value {
	one := func(to *verdict.Trust, allowed ...string) value {
		var text string
		return d.word(&text, allowed...).then(func(*yaml.Node) { *to, _ = verdict.ParseTrust(text) })
	}
	proven, claimed, foreign := verdict.Proven.String(), verdict.Claimed.String(), verdict.Foreign.String()
	return d.object("mapping", "`trust`", "trust", []key{
		{"full", one(&r.Trust.Full, proven, claimed), proven, "the least trust of what a full verdict rests on; with less it is partial. `claimed` only for faults that a job tells of itself, never of a machine, a GPU or a fabric"},
		{"partial", one(&r.Trust.Partial, proven, claimed, foreign), claimed, "the least trust of what a partial verdict rests on; with less there is none. `foreign` only for what the job alone can say"},
	})
}

// checkReplaces fails where a file that replaces a pattern has another name: others explain
// the pattern, and are explained by it, by its name.
func (d *decoder) checkReplaces(r *Rule) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if r.Replaces != r.Name {
			d.fail(n, "this file is named %q and replaces %q: write one name in both, other patterns know it by that", r.Name, r.Replaces)
		}
	}
}

// mark notes where a value stands.
func mark(p *position) func(*yaml.Node) { return func(n *yaml.Node) { *p = at(n) } }

func (d *decoder) fields(to *[]Field) value {
	return value{kind: "names, each with an OTTL value", read: func(n *yaml.Node) {
		d.each(n, "fields", func(key, value *yaml.Node) {
			if !isName(key.Value) {
				d.fail(key, "%q is not a field name: use lower-case letters, digits and _", key.Value)
			}
			f := Field{Name: key.Value, at: at(value)}
			d.text("", &f.Expr).read(value)
			d.mentionsIn(value, f.Expr)
			f.Expr, _ = d.fill(value, f.Expr, inValue)
			*to = append(*to, f)
		})
	}}
}

func (d *decoder) unless(r *Rule) value {
	return d.list("unless", func() (value, func(*yaml.Node)) {
		u := &Unless{}
		name := func(to *string) value {
			return d.text("evidence", to).then(func(n *yaml.Node) {
				d.afterwards(func() { d.known(n, "evidence", *to, evidenceNames(r.Evidence)) })
			})
		}
		return d.object("", "`unless`", "unless", []key{
			{"evidence", name(&u.Evidence), needed, "what refutes"},
			{"before", name(&u.Before), needed, "the evidence that it explains away"},
			{"within", d.duration(&u.Within), needed, "how long before at most"},
		}), func(*yaml.Node) { r.Unless = append(r.Unless, *u) }
	})
}

func (d *decoder) explains(r *Rule) value {
	return d.list("explains", func() (value, func(*yaml.Node)) {
		x, shared := &Explain{}, []string{}
		return d.object("", "`explains`", "explains", []key{
				{"pattern", d.text("pattern", &x.Pattern), needed, "whose verdicts"},
				{"share", d.strings("field", &shared), needed, "fields that have the same value in both; `mine=theirs` when the names differ, `mine in theirs` when the other has a list of them"},
				{"within", d.duration(&x.Within), "5m", "how long after this one at most"},
				{"after", d.duration(&x.After), "", "how long after this one at least, although it expired meanwhile: what a watchdog tells"},
				{"before", d.duration(&x.Before), "", "how long before this one it may have been seen, beyond what the other allows: this one tells later what was wrong all the time"},
				{"near", d.duration(&x.Near), "", "how long before the beginning of the other this one, or one of `when`, was last seen at most: what is over by then did no harm"},
				{"lingers", d.duration(&x.Lingers), "", "how long after the end of this one the other may begin: its end is what breaks the other; with `before`, also how long before this one was seen the other may have ended"},
				{"when", d.strings("evidence", &x.When), "", "only where one of these of this pattern was seen"},
				{"except", d.strings("evidence", &x.Except), "", "not where one of these of the other was seen"},
				{"ranks", d.rankLists(x), "", "only where the ranks of this one, seen up to `after` before the other, are so in the other's lists"},
			}), func(n *yaml.Node) {
				x.at = at(n)
				lists := x.share(shared)
				if lists > 1 {
					d.fail(n, "share has %d lists, and one at most is allowed: write another explanation", lists)
				}
				d.afterwards(func() {
					d.checkAfter(n, x)
					for _, name := range x.When {
						d.known(n, "evidence", name, evidenceNames(r.Evidence))
					}
					for _, field := range x.Mine {
						d.known(n, "field", field, r.FieldNames())
					}
				})
				r.Explains = append(r.Explains, *x)
			}
	})
}

func (d *decoder) rankLists(x *Explain) value {
	return d.object("mapping", "`ranks`", "ranks", []key{
		{"in", d.strings("field", &x.In), "", "one of them at least is in one of these lists of the other"},
		{"not_in", d.strings("field", &x.NotIn), "", "none of them is in one of these"},
	})
}

func (d *decoder) checkAfter(n *yaml.Node, x *Explain) {
	switch {
	case x.After != 0 && x.After >= x.Within:
		d.fail(n, "after %v is not before within %v: write a smaller after", x.After, x.Within)
	case len(x.In)+len(x.NotIn) > 0 && x.After == 0:
		d.fail(n, "ranks looks at what was seen up to after before the other: write after")
	}
}

// share takes the fields that both patterns share, as they are written, and returns how many
// of them are lists.
func (x *Explain) share(fields []string) (lists int) {
	x.Among = -1
	for i, field := range fields {
		mine, theirs, renamed := strings.Cut(field, "=")
		if one, list, among := strings.Cut(field, " in "); among {
			mine, theirs, renamed, x.Among = one, list, true, i
			lists++
		}
		if !renamed {
			theirs = mine
		}
		x.Mine, x.Theirs = append(x.Mine, strings.TrimSpace(mine)), append(x.Theirs, strings.TrimSpace(theirs))
	}
	return lists
}

// list is a list of mappings; one makes an empty member and says what to do with
// it once it was read.
func (d *decoder) list(what string, one func() (value, func(*yaml.Node))) value {
	v, _ := one()
	v.kind = "list"
	v.read = func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			d.fail(n, "%s must be a list", what)
			return
		}
		for _, item := range n.Content {
			member, add := one()
			member.read(item)
			add(item)
		}
	}
	return v
}

// severities are those of a verdict.
var severities = []string{"info", "warning", "error", "critical"}

// choice reads a template, or one for each value of a field; where words are
// given, its templates are among them unless a field decides.
func (d *decoder) choice(what string, to *Choice, r *Rule, words ...string) value {
	return d.choiceOf("a choice", to, r, func(to *Template) value {
		return d.template(to, r, what).then(func(n *yaml.Node) {
			if len(words) > 0 && len(to.Fields()) == 0 && !slices.Contains(words, to.Text) && to.Text != "" {
				d.fail(n, "%q is not allowed here: use one of %v", to.Text, words)
			}
		})
	})
}

// choiceOf is a choice among what template reads, called what in messages.
func (d *decoder) choiceOf(what string, to *Choice, r *Rule, template func(*Template) value) value {
	plain := template(&to.Default)
	by := d.fieldName(&to.By, r)
	cases := value{kind: "values, each with a " + plain.kind, section: plain.section, keys: plain.keys, read: func(n *yaml.Node) {
		d.each(n, "cases", func(key, text *yaml.Node) {
			one := Case{Value: key.Value}
			template(&one.Text).read(text)
			to.Cases = append(to.Cases, one)
		})
	}}
	kind := plain.kind + " or choice"
	others := value{kind: kind, section: plain.section, keys: plain.keys, read: func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			to.Else = &Choice{}
			d.choiceOf(what, to.Else, r, template).read(n)
			return
		}
		plain.read(n)
	}}
	v := d.object(kind, strings.ToUpper(what[:1])+what[1:], what, []key{
		{"by", by, needed, "whose value decides"},
		{"cases", cases, "", "the " + plain.kind + " for each value"},
		{"default", others, needed, "for all other values; or by another field"},
	})
	mapping := v.read
	v.read = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			mapping(n)
			return
		}
		plain.read(n)
	}
	return v
}
