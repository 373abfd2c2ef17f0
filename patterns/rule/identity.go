package rule

import "slices"

// identity returns the predefined fields: who or what a record is about. This is the one
// place that says which attributes they are read from. Record attributes describe the
// subject; the resource describes the sender, so only what both share is read there.
//
// OpenTelemetry has no attribute for a boot; host.boot.id is ECS's name, and host.* is
// where the semantic conventions put it. gen_ai.training is our own prefix.
func identity() []Field {
	return []Field{
		{Name: "host", Expr: `resource.attributes["host.name"]`, doc: "the machine; host, job, pid and rank are always read: they say whose fault it is"},
		{Name: "node", Expr: `resource.attributes["k8s.node.name"]`, doc: "its Kubernetes node"},
		{Name: "boot", Expr: `resource.attributes["host.boot.id"]`, doc: "one boot of the machine; it is always read, too: a verdict says in which boot its newest evidence was seen"},
		{Name: "gpu", Expr: `attributes["gpu.id"]`, doc: "the GPU's PCI address"},
		{Name: "rank", Expr: `attributes["gen_ai.training.rank"]`, doc: "the rank; it fills the blast radius of a rule without a field `ranks`"},
		{Name: "local_rank", Expr: `attributes["gen_ai.training.local_rank"]`, doc: "the rank's number on its machine"},
		{Name: "process", Expr: `attributes["process.executable.name"]`, doc: "the process, by the name of its program"},
		{Name: "pid", Expr: processID, doc: "the process id"},
		{Name: "started", Expr: `attributes["process.start_ns"]`, doc: "when the process of `pid` was started, since the boot; always read: what joins by `pid` joins one process, not the next one of that pid"},
		{Name: "job", Expr: `Coalesce([attributes["gen_ai.training.job_id"], attributes["gen_ai.training.rendezvous"]])`, doc: "the job; without an id the place where its ranks meet"},
		{Name: "job_domain", Expr: `attributes["gen_ai.training.job_domain"]`, doc: "whose job it is, as the kernel tells it; always read, no join by the job joins two of them"},
		{Name: "run", Expr: `attributes["gen_ai.training.run_id"]`, doc: "one start of the job. The engine tells it by the processes of the ranks; it is always there, where it is known"},
		{Name: "pod", Expr: `attributes["k8s.pod.uid"]`, doc: "the pod, by its uid"},
		{Name: "namespace", Expr: `attributes["k8s.namespace.name"]`, doc: "the pod's namespace"},
		{Name: "pod_name", Expr: `attributes["k8s.pod.name"]`, doc: "the pod's name"},
		{Name: "workload", Expr: `attributes["k8s.workload"]`, doc: "what made the pod: `statefulset/llama-worker`"},
		{Name: "container", Expr: `attributes["container.id"]`, doc: "the container"},
	}
}

// processID is what process.start_ns belongs to.
const processID = `attributes["process.pid"]`

// fieldCalled finds a field by name.
func fieldCalled(fields []Field, name string) *Field {
	at := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
	if at < 0 {
		return nil
	}
	return &fields[at]
}

// override returns fields with those of own in place of the ones of the same name, and
// the others of own behind them.
func override(fields, own []Field) []Field {
	fields = slices.Clone(fields)
	for _, f := range own {
		if same := fieldCalled(fields, f.Name); same != nil {
			*same = f
		} else {
			fields = append(fields, f)
		}
	}
	return fields
}

// checkIdentity fails where the file defines a predefined field again, or where identity
// names a field that is not predefined.
func (d *decoder) checkIdentity(r *Rule) {
	predefined := identity()
	for _, f := range r.Fields {
		if known := fieldCalled(predefined, f.Name); known != nil {
			d.failAt(f.at, "field %s is predefined as %s: leave it out, or write it under identity to read it elsewhere", f.Name, known.Expr)
		}
	}
	for _, f := range r.Identity {
		switch known := fieldCalled(predefined, f.Name); {
		case known == nil:
			d.failAt(f.at, "identity names the predefined field %q, which does not exist: %s", f.Name, suggest(f.Name, fieldNames(predefined)))
		case known.Expr == f.Expr:
			d.failAt(f.at, "%s is predefined as %s: leave it out", f.Name, known.Expr)
		}
	}
	for _, e := range r.All() {
		for _, f := range e.Fields {
			if known := fieldCalled(override(predefined, r.Identity), f.Name); known != nil && known.Expr == f.Expr {
				d.failAt(f.at, "%s is %s without this line: leave it out", f.Name, known.Expr)
			}
		}
	}
}

func fieldNames(fields []Field) []string {
	return namesOf(fields, func(f Field) string { return f.Name })
}

func namesOf[T any](all []T, name func(T) string) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = name(all[i])
	}
	return names
}

// AllFields returns the predefined fields and those of the file, without what single
// evidence has of its own.
func (r *Rule) AllFields() []Field { return override(override(identity(), r.Identity), r.Fields) }

// FieldsOf returns the fields as they are read from records of e. Where its pid is not that of
// the process which the record is about, nothing says when that one was started.
func (r *Rule) FieldsOf(e *Evidence) []Field {
	fields := override(r.AllFields(), e.Fields)
	if own := append(slices.Clone(r.Identity), e.Fields...); fieldCalled(fields, "pid").Expr != processID && fieldCalled(own, "started") == nil {
		fieldCalled(fields, "started").Expr = "nil"
	}
	return fields
}

// FieldNames returns the names of all fields that the rule can use: the predefined ones,
// its own and those of its evidence.
func (r *Rule) FieldNames() []string {
	names := fieldNames(r.AllFields())
	for _, e := range r.All() {
		names = append(names, fieldNames(e.Fields)...)
	}
	return unique(names)
}

// owner names the fields that say whose room a record takes in what is bounded.
func owner() []string { return []string{"host", "node", "job", "job_domain"} }

// FieldPIDs is the field of a rule that lists processes of the host which have some evidence, beside
// the one that its record is about.
const FieldPIDs = "pids"

// FieldsInUse returns the names of the fields that have to be read from records: all of the
// rule's own, the predefined ones that it names, those that say whose fault it is, and what
// others share with it.
func (r *Rule) FieldsInUse(others []string) []string {
	used := slices.Concat([]string{"rank", "pid", "started", "boot", "run"}, owner(), others, r.Key, r.Culprit, r.Returns.With, []string{r.Worst.By}, fieldNames(r.Identity), fieldNames(r.Fields))
	for _, e := range r.All() {
		used = slices.Concat(used, fieldNames(e.Fields), e.Match, e.Occurs.By, e.Median.Of, e.Shows.Fields(), e.Absent.Fields(), e.Accuses, e.Hides, e.Quotes)
		if e.Until != nil {
			used = append(used, e.Until.By...)
		}
		if len(e.Unsaid) > 0 { // its process may be one of many
			used = append(used, FieldPIDs)
		}
	}
	for _, c := range []Choice{r.Severity, r.Headline, r.Remedy} {
		used = append(used, c.Fields()...)
	}
	for _, x := range r.Explains {
		used = append(used, x.Mine...)
	}
	return slices.DeleteFunc(r.FieldNames(), func(name string) bool { return !slices.Contains(used, name) })
}

// Shared returns the fields of each pattern that explanations of others read.
func Shared(rules []Rule) map[string][]string {
	shared := map[string][]string{}
	for i := range rules {
		for _, x := range rules[i].Explains {
			shared[x.Pattern] = slices.Concat(shared[x.Pattern], x.Theirs, x.In, x.NotIn)
		}
	}
	return shared
}

// unique returns names without repetitions, in their order.
func unique(names []string) []string {
	var out []string
	for _, name := range names {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
