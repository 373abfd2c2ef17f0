package rule

import "gopkg.in/yaml.v3"

// endReboot is what else ends a fault: a later boot of its machine.
const endReboot = "reboot"

// EventBoot tells of a boot of a machine.
const EventBoot = "host.boot"

// ends reads what else ends a fault: evidence that resolves, written once for all rules.
func (d *decoder) ends(r *Rule) value {
	var what string
	return d.word(&what, endReboot).then(func(*yaml.Node) {
		if what == endReboot {
			r.Resolves = append(r.Resolves, rebooted())
		}
	})
}

func rebooted() Evidence {
	shows, _ := ParseTemplate("{host} was booted again")
	return Evidence{
		Name: "rebooted", Logs: []string{EventBoot}, Match: []string{"host"}, Reboot: true,
		Shows: shows, Operator: Occur, Occurs: Occurs{Count: 1, Values: 1},
	}
}

// holdBack reads what a verdict waits for before it is told: one mapping, or a list.
func (d *decoder) holdBack(r *Rule) value {
	one := func() (value, func(*yaml.Node)) {
		h := &HoldBack{}
		return d.oneHoldBack(r, h), func(*yaml.Node) { r.HoldBack = append(r.HoldBack, *h) }
	}
	v := d.list("holds_back", one)
	list := v.read
	v.kind = "mapping, or a list"
	v.read = func(n *yaml.Node) {
		if n.Kind == yaml.SequenceNode {
			list(n)
			return
		}
		member, add := one()
		member.read(n)
		add(n)
	}
	return v
}

func (d *decoder) oneHoldBack(r *Rule, h *HoldBack) value {
	known := func(n *yaml.Node, names ...string) {
		d.afterwards(func() {
			for i, name := range names {
				d.known(item(n, i), "evidence", name, evidenceNames(r.Evidence))
			}
		})
	}
	return d.object("mapping", "`holds_back`", "holds_back", []key{
		{"evidence", d.text("evidence", &h.Evidence).then(func(n *yaml.Node) {
			d.afterwards(func() { d.known(n, "evidence", h.Evidence, evidenceNames(r.Evidence)) })
		}), needed, "the verdict begins with it"},
		{"for", d.duration(&h.For), needed, "how long the verdict then waits"},
		{"unless", d.strings("evidence", &h.Unless).then(func(n *yaml.Node) { known(n, h.Unless...) }), "", "evidence with which it waits no longer"},
	})
}

// worst reads which of several things names the fault.
func (d *decoder) worst(r *Rule) value {
	return d.object("mapping", "`worst`", "worst", []key{
		{"by", d.fieldName(&r.Worst.By, r), needed, "whose value decides"},
		{"values", d.strings("value", &r.Worst.Values), needed, "the worst first; others come after them, in the order of the evidence"},
	})
}

// returns reads when a fault has begun anew.
func (d *decoder) returns(r *Rule) value {
	return d.object("mapping", "`returns`", "returns", []key{
		{"with", d.fieldNames(&r.Returns.With, r), needed, "fields: another value of one of them"},
		{"after", d.duration(&r.Returns.After), needed, "how long after it was last seen at least"},
		{"ended", d.text("evidence", &r.Returns.Ended).then(func(n *yaml.Node) {
			d.afterwards(func() { d.known(n, "evidence", r.Returns.Ended, evidenceNames(r.Evidence)) })
		}), "", "evidence of the end of a process: once all that it named have ended, another process is another fault, unless `worst` lists what was seen"},
	})
}
