package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tracecoreai/tracecore/vmtests/archive"
)

// measurement is one line that a test wrote: the rung a probe took, what became
// of a fault that was made, or what a program cost the verifier.
type measurement struct {
	Probe string `json:"probe"`
	Rung  string `json:"rung,omitempty"`

	Fault   string  `json:"fault,omitempty"`    // what was made: xid
	Result  string  `json:"result,omitempty"`   // named or missed
	DelayMS float64 `json:"delay_ms,omitempty"` // from the cause to its verdict

	Program      string `json:"program,omitempty"`
	Instructions int    `json:"instructions,omitempty"` // that the verifier went through
}

func parseMeasurement(text string) (measurement, error) {
	var m measurement
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("wrote a measurement that cannot be read: %w", err)
	}
	if m.Probe == "" || m.Rung == "" && m.Result == "" && m.Instructions == 0 {
		return m, fmt.Errorf("wrote a measurement of nothing: %s", text)
	}
	return m, nil
}

// row is what one run found on one kernel.
type row struct {
	Kernel  string  `json:"kernel"`
	Arch    string  `json:"arch"`
	Package string  `json:"package"`
	Version string  `json:"version"`
	Release string  `json:"release"`
	Date    string  `json:"date"`
	Commit  string  `json:"commit,omitempty"`
	Host    string  `json:"host"` // the machine that emulated it
	Given   int     `json:"given"`
	Passed  int     `json:"passed"`
	Seconds float64 `json:"seconds"`

	Measured []measurement `json:"measured"`
}

func newRow(k Kernel, pkg archive.Package, seen *collector, results []result, began time.Time) row {
	r := row{
		Kernel: k.Name, Arch: k.Arch, Package: pkg.Name, Version: pkg.Version, Release: seen.Release,
		Date: began.UTC().Format(time.DateOnly), Commit: commit(), Host: hostDescription(), Given: len(results),
		Seconds: time.Since(began).Round(100 * time.Millisecond).Seconds(), Measured: seen.Measured,
	}
	for _, one := range results {
		if one.Problem == "" {
			r.Passed++
		}
	}
	return r
}

// matrixFile keeps the rows of the last run of each kernel; the tables for
// people are made of it.
const matrixFile = "results.json"

// readMatrix returns the rows of earlier runs by kernel; none is no error.
func readMatrix(dir string) (map[string]row, error) {
	text, err := os.ReadFile(filepath.Join(dir, matrixFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]row{}, nil
	}
	if err != nil {
		return nil, err
	}
	var list []row
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w; take it from git again, or remove it and run every row", matrixFile, err)
	}
	rows := map[string]row{}
	for _, r := range list {
		rows[r.Kernel] = r
	}
	return rows, nil
}

// writeMatrix puts the rows of a run in the place of older ones, drops kernels
// that are in the matrix no more, and writes the tables. A kernel that could not
// be fetched or booted has found nothing, so its older row stays.
func writeMatrix(dir string, rows []row) error {
	kept, err := readMatrix(dir)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Release != "" {
			kept[r.Kernel] = r
		}
	}
	kernels, err := parseKernels(kernelsFile)
	if err != nil {
		return err
	}
	list := []row{}
	for _, k := range kernels {
		if r, run := kept[k.Name]; run {
			list = append(list, r)
		}
	}
	text, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, matrixFile), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(resultsTable(list)), 0o644),
		os.WriteFile(filepath.Join(dir, "INSTRUCTIONS.md"), []byte(instructionsTable(list)), 0o644),
	)
}
