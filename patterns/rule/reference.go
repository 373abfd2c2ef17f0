package rule

import (
	"bytes"
	"fmt"
	"strings"
)

// Reference writes the page that lists every key of the language, from the
// definition that files are read by.
func Reference() []byte {
	d := &decoder{}
	var b bytes.Buffer
	fmt.Fprintf(&b, preface, maxFileBytes>>20, maxEvidence, maxFields, maxDuration/24/3600e9, maxOTTLBytes>>10, maxOTTLDepth, strings.Join(notPure, "`, `"))
	written := map[string]bool{}
	sections := []value{d.pattern(&Rule{})}
	for len(sections) > 0 {
		one := sections[0]
		sections = sections[1:]
		if written[one.section] {
			continue
		}
		written[one.section] = true
		sections = append(sections, writeSection(&b, one)...)
	}
	writeIdentity(&b)
	writeConditions(&b)
	return b.Bytes()
}

// writeIdentity writes what every rule can name without defining it.
func writeIdentity(b *bytes.Buffer) {
	b.WriteString("\n## Predefined fields\n\nWho or what a record is about. Every rule has them and names only its own under `fields`. A rule that reads one elsewhere in all\n" +
		"records says so under `identity` (`identity: {host: attributes[\"slurm.node\"]}`); evidence that does, under its own `fields`. A record without the attribute\n" +
		"leaves the field unknown.\n\n| field | read from | is |\n| --- | --- | --- |\n")
	for _, f := range identity() {
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", f.Name, f.Expr, f.doc)
	}
}

// writeConditions writes what every rule can ask without defining it.
func writeConditions(b *bytes.Buffer) {
	b.WriteString("\n## Predefined conditions\n\n`$name` stands for one in `where`, in `while` and under `conditions`.\n\n| condition | holds where | is |\n| --- | --- | --- |\n")
	for _, c := range predefined() {
		fmt.Fprintf(b, "| `%s` | %s | `%s` |\n", c.name, c.doc, strings.ReplaceAll(c.text, "|", `\|`))
	}
}

const preface = `# The rule language

Every key of a pattern file, generated from the definition that files are read by (` + "`go test ./patterns/rule -update`" + `). How rules work, and what a
verdict becomes: [README.md](README.md). ` + "`tracecore patterns test DIR`" + ` checks files and runs their stories; errors name file, line, column and the fix.

A file has one pattern. A **needed** key must be there. A duration is written 30s, 5m, 2h. A *field* is the name of one under ` + "`fields`" + `, *evidence* the name of one under ` + "`evidence`" + `;
names are lower-case letters, digits and _. An *expression* joins evidence with and, or, ( ). A *template* is text with {field} in it ({count}: how often
the evidence was seen; of things that occur within a window {span} is the time from the first to the last, {lead} to the second); {field: rank|ranks} is a word for one or for several, {field: number error|errors} a number with its word, {field: all rank|ranks} the same where all are meant (both ranks, all 1,023 ranks). A part in [brackets] is left out when a field in it is unknown; [a|b] is the first of its parts whose fields are known; [if EVIDENCE: text] is left out when that was not seen (EVIDENCE: an expression as in full, with the name full for a full verdict). A *choice* is a template for each value of a field.

Bounds: a file %d MiB, evidence %d, fields %d, durations %d days, OTTL text %d KiB and %d nested brackets. OTTL reads
` + "`attributes[\"…\"]`, `resource.attributes[\"…\"]`" + ` and all other paths of log records or data points; of its converters ` + "`%s`" + ` are left out, since their result
is not the record's.
`

// writeSection writes what stands in one mapping and returns the mappings in it.
func writeSection(b *bytes.Buffer, v value) (below []value) {
	fmt.Fprintf(b, "\n## %s\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n", v.section)
	for _, k := range v.keys {
		kind, standard := k.value.kind, ""
		switch k.standard {
		case "":
		case needed:
			standard = "**needed**"
		default:
			standard = "`" + k.standard + "`"
		}
		if k.value.section != "" {
			kind = fmt.Sprintf("[%s](#%s)", kind, anchor(k.value.section))
			below = append(below, k.value)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.name, kind, standard, k.doc)
	}
	return below
}

// anchor is the name that a heading gets in a link.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(strings.Trim(heading, "`")), " ", "-")
}
