// Package catalogue says what faults of accelerators and hosts mean: what it
// takes to recover, how bad that is, what to do. It is data, xid.yaml.
package catalogue

import (
	"bytes"
	_ "embed" // the catalogue is a data file
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

//go:embed xid.yaml
var catalogueYAML []byte

// Class says what it takes to recover.
type Class string

// The recovery classes.
const (
	ClassRestartApplication Class = "restart_application"
	ClassResetGPU           Class = "reset_gpu"
	ClassRestartNode        Class = "restart_node"
	ClassRestartVM          Class = "restart_vm"
	ClassCheckHardware      Class = "check_hardware"
	ClassUpdateSoftware     Class = "update_software"
	ClassWorkflow           Class = "workflow"
	ClassInformational      Class = "informational"
	ClassUnknown            Class = "unknown"
)

// Judgement is what a fault means: what it takes to recover, how bad that is,
// and what to do in plain words.
type Judgement struct {
	Class    Class           `yaml:"class"`
	Severity record.Severity `yaml:"severity"`
	Remedy   string          `yaml:"remedy"`
}

// Xid is one entry of NVIDIA's catalogue.
type Xid struct {
	Code        uint32 `yaml:"code"`
	Name        string `yaml:"name"`
	Application bool   `yaml:"application"` // the application brings it about
	Judgement   `yaml:",inline"`
}

// Action is one recovery action of Xid 154.
type Action struct {
	Name      string   `yaml:"name"`
	Number    uint32   `yaml:"number"`
	Words     []string `yaml:"words"` // as drivers print it
	Judgement `yaml:",inline"`
}

// Catalogue says what faults mean.
type Catalogue struct {
	classes   map[Class]Judgement
	xids      map[uint32]Xid
	actions   []Action
	faults    map[string]Judgement
	libraries []string
}

// Load reads the embedded catalogue.
func Load() (*Catalogue, error) {
	c, err := read(bytes.NewReader(catalogueYAML))
	if err != nil {
		return nil, fmt.Errorf("xid.yaml: %w", err)
	}
	return c, nil
}

func read(r io.Reader) (*Catalogue, error) {
	var file struct {
		Classes   map[Class]Judgement  `yaml:"classes"`
		Xids      []Xid                `yaml:"xids"`
		Actions   []Action             `yaml:"actions"`
		Faults    map[string]Judgement `yaml:"faults"`
		Libraries []string             `yaml:"acceleration_libraries"`
	}
	decoder := yaml.NewDecoder(r)
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	c := &Catalogue{
		classes: file.Classes, xids: make(map[uint32]Xid, len(file.Xids)),
		actions: file.Actions, faults: file.Faults, libraries: file.Libraries,
	}
	return c, errors.Join(c.completeXids(file.Xids), c.completeFaults(), c.completeActions())
}

// complete fills severity and remedy from the class where an entry has none.
func (c *Catalogue) complete(what string, j *Judgement) error {
	class, known := c.classes[j.Class]
	if !known {
		return fmt.Errorf("%s: class %q is not one of classes", what, j.Class)
	}
	if j.Severity == "" {
		j.Severity = class.Severity
	}
	if j.Severity.Number() == 0 {
		return fmt.Errorf("%s: severity %q is not info, warning, error or critical", what, j.Severity)
	}
	if j.Remedy == "" {
		j.Remedy = class.Remedy
	}
	return nil
}

func (c *Catalogue) completeXids(xids []Xid) error {
	var problems []error
	for _, xid := range xids {
		what := fmt.Sprintf("xid %d", xid.Code)
		if _, twice := c.xids[xid.Code]; twice || xid.Name == "" {
			problems = append(problems, fmt.Errorf("%s: listed twice or without a name", what))
		}
		problems = append(problems, c.complete(what, &xid.Judgement))
		c.xids[xid.Code] = xid
	}
	return errors.Join(problems...)
}

func (c *Catalogue) completeFaults() error {
	var problems []error
	for name, fault := range c.faults {
		problems = append(problems, c.complete("fault "+name, &fault))
		c.faults[name] = fault
	}
	return errors.Join(problems...)
}

func (c *Catalogue) completeActions() error {
	var problems []error
	for i := range c.actions {
		problems = append(problems, c.complete("action "+c.actions[i].Name, &c.actions[i].Judgement))
	}
	return errors.Join(problems...)
}

// Xid returns the entry of code. A code that is not listed is of class unknown.
func (c *Catalogue) Xid(code uint32) Xid {
	if xid, listed := c.xids[code]; listed {
		return xid
	}
	return Xid{Code: code, Judgement: c.unknown()}
}

// Fault returns the judgement of a fault that has no code.
func (c *Catalogue) Fault(name string) Judgement {
	if fault, listed := c.faults[name]; listed {
		return fault
	}
	return c.unknown()
}

func (c *Catalogue) unknown() Judgement {
	j := c.classes[ClassUnknown]
	j.Class = ClassUnknown
	return j
}

// Action reads a recovery action as Xid 154 prints it: "0x1 (GPU Reset
// Required)". The words decide; the number does when they are new.
func (c *Catalogue) Action(text string) Action {
	_, words, _ := strings.Cut(text, "(")
	words, _, _ = strings.Cut(words, ")")
	digits, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	digits, hex := strings.CutPrefix(digits, "0x")
	value, err := strconv.ParseUint(digits, 16, 32)
	byNumber := Action{Name: "unknown", Judgement: c.unknown()}
	for _, action := range c.actions {
		for _, known := range action.Words {
			if strings.EqualFold(words, known) {
				return action
			}
		}
		if hex && err == nil && uint64(action.Number) == value {
			byNumber = action
		}
	}
	return byNumber
}

// IsAccelerationLibrary reports whether a crash inside this file is of interest.
func (c *Catalogue) IsAccelerationLibrary(file string) bool {
	for _, prefix := range c.libraries {
		if strings.HasPrefix(file, prefix) {
			return true
		}
	}
	return false
}
