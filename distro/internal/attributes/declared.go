package attributes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"

	"gopkg.in/yaml.v3"
)

// outsideFile says what others send.
const outsideFile = "distro/internal/attributes/outside.yaml"

// declaredIn are the files in which emitters say what they emit: components, and the
// packages that write records of their own.
var declaredIn = []string{"*/*/metadata.yaml", "patterns/*/events.yaml", "patterns/*/findings.yaml", "internal/*/events.yaml"}

// emitter is who emits events and metrics, and with which attributes: the part of a
// metadata.yaml, or of a file of shared groups that it includes, that is read here.
// tools/events makes code of the same.
type emitter struct {
	Type               string               `yaml:"type"`
	Include            []string             `yaml:"include"`
	ResourceAttributes map[string]described `yaml:"resource_attributes"`
	Attributes         map[string]described `yaml:"attributes"`
	Groups             map[string]signal    `yaml:"groups"`
	Events             map[string]signal    `yaml:"events"`
	Metrics            map[string]signal    `yaml:"metrics"`

	file string // that declares it, "" for others than us
}

type described struct {
	Type        string `yaml:"type"`
	Description string `yaml:"description"`
}

// signal is an event or a metric.
type signal struct {
	Description string `yaml:"description"`

	Feature    string   `yaml:"feature"`
	Groups     []string `yaml:"groups"`
	Attributes []string `yaml:"attributes"`
}

// readAll returns every emitter that a source tree declares, in order of their files.
func readAll(tree fs.FS) ([]emitter, error) {
	var all []emitter
	for _, pattern := range declaredIn {
		files, err := fs.Glob(tree, pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			e, err := readEmitter(tree, file)
			if err == nil {
				err = e.check()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			e.file = file
			all = append(all, *e)
		}
	}
	outside, err := readOutside(tree)
	return append(all, outside...), err
}

// readOutside returns the senders of outsideFile, by name.
func readOutside(tree fs.FS) ([]emitter, error) {
	text, err := fs.ReadFile(tree, outsideFile)
	if err != nil {
		return nil, err
	}
	var senders map[string]emitter
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&senders); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", outsideFile, err)
	}
	var all []emitter
	for _, name := range slices.Sorted(maps.Keys(senders)) {
		sender := senders[name]
		sender.Type = name
		sender.ResourceAttributes = sender.Attributes // they send all of them, on records of others too
		if err := sender.check(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", outsideFile, name, err)
		}
		all = append(all, sender)
	}
	return all, nil
}

// readEmitter reads a file and takes over the groups and attributes that it includes.
func readEmitter(tree fs.FS, file string) (*emitter, error) {
	text, err := fs.ReadFile(tree, file)
	if err != nil {
		return nil, err
	}
	e := &emitter{}
	if err := yaml.Unmarshal(text, e); err != nil {
		return nil, err
	}
	for _, name := range e.Include {
		shared, err := readEmitter(tree, path.Join(path.Dir(file), name))
		if err != nil {
			return nil, fmt.Errorf("include %s: %w", name, err)
		}
		e.Attributes, e.Groups = merged(shared.Attributes, e.Attributes), merged(shared.Groups, e.Groups)
	}
	return e, nil
}

func merged[V any](a, b map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// check fails where an event or a metric names what is not declared.
func (e *emitter) check() error {
	for kind, signals := range map[string]map[string]signal{"event": e.Events, "metric": e.Metrics} {
		for name, s := range signals {
			for _, g := range s.Groups {
				if _, ok := e.Groups[g]; !ok {
					return fmt.Errorf("%s %s has the group %s without a declaration", kind, name, g)
				}
			}
			for _, a := range e.attributesOf(s) {
				if _, ok := e.Attributes[a]; !ok {
					return fmt.Errorf("%s %s has the attribute %s without a declaration", kind, name, a)
				}
			}
		}
	}
	return nil
}

// attributesOf lists the attributes of an event or metric, sorted.
func (e *emitter) attributesOf(s signal) []string {
	all := slices.Clone(s.Attributes)
	for _, g := range s.Groups {
		all = append(all, e.Groups[g].Attributes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// emitted lists every attribute that leaves, with those of the resource.
func (e *emitter) emitted() map[string]described {
	all := merged(e.ResourceAttributes, nil)
	for _, signals := range []map[string]signal{e.Events, e.Metrics} {
		for _, s := range signals {
			for _, name := range e.attributesOf(s) {
				all[name] = e.Attributes[name]
			}
		}
	}
	return all
}
