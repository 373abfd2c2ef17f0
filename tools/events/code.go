package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"go.opentelemetry.io/collector/cmd/mdatagen/third_party/golint"
)

var (
	//go:embed component.tmpl
	componentTemplate string
	//go:embed shared.tmpl
	sharedTemplate string
	//go:embed groups.tmpl
	groupsTemplate string
	//go:embed setter.tmpl
	setterTemplate string
)

// write makes a file of Go from a declaration.
func write(file string, d *declaration, text string) error {
	t := template.New("code").Funcs(template.FuncMap{"name": identifier, "setter": d.setter})
	t, err := t.Parse(groupsTemplate + text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, d); err != nil {
		return err
	}
	code, err := format.Source(b.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, code, 0o644)
}

// setter is the method of one type that writes one attribute, or one key of a map. An
// optional text is left out when it is empty.
func (d *declaration) setter(of, name string, in map[string]attribute) (string, error) {
	a := in[name]
	kind := types[a.Type]
	if a.Type == "string" && a.Level == "conditionally_required" {
		kind.put = "Text"
	}
	var b strings.Builder
	err := template.Must(template.New("setter").Parse(setterTemplate)).Execute(&b, map[string]string{
		"Of": of, "Method": identifier(name), "Attribute": name, "Put": kind.put, "Argument": kind.argument,
		"Says": strings.ReplaceAll(strings.TrimSpace(a.Description), "\n", " "),
	})
	return b.String(), err
}

// Package is how code made of the file names the package of shared groups.
func (d *declaration) Package() string {
	if filepath.Base(d.file) == sharedFile {
		return ""
	}
	return "record."
}

// Holds reports whether an attribute is a list or a map: code of pdata begins those.
func (d *declaration) Holds() bool {
	all := []map[string]attribute{d.Attributes}
	for _, m := range d.Maps {
		all = append(all, m.Keys)
	}
	return slices.ContainsFunc(all, func(in map[string]attribute) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(in)), func(a attribute) bool { return types[a.Type].argument == "" })
	})
}

// HasHost reports whether records are about a host.
func (d *declaration) HasHost() bool { return d.ResourceAttributes["host.name"].Type != "" }

// Count is how many attributes an event has at most.
func (d *declaration) Count(e *event) int { return len(d.attributesOf(e)) }

// SharedGroup reports whether a group is written by the package of an included file.
func (d *declaration) SharedGroup(name string) bool { return d.Groups[name].Shared }

// identifier is the exported Go name of an attribute, event or group, as mdatagen
// makes it: "k8s.pod.uid" is K8sPodUID.
func identifier(name string) string {
	var out strings.Builder
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune("._-/", r) }) {
		out.WriteString(word(part))
	}
	return out.String()
}

// word begins with a capital; an acronym is all capitals, a digit begins a new word.
func word(part string) string {
	digit := strings.IndexAny(part, "0123456789")
	if digit > 0 {
		return word(part[:digit]) + part[digit:]
	}
	if golint.Acronyms[strings.ToUpper(part)] {
		return strings.ToUpper(part)
	}
	return strings.ToUpper(part[:1]) + part[1:]
}
