// Command step runs one step of the checks, shows it to a person and records
// its results; at the end it counts the results of all steps.
//
//	step -dir DIR -name unit -json -- go test -json ./...
//	step -dir DIR -name vet -- go vet ./...
//	step -dir DIR -summary
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	dir := flag.String("dir", ".cache/results", "where results are kept")
	name := flag.String("name", "", "name of the step; it is the name of the make target")
	stream := flag.Bool("json", false, "the command prints results as go test -json does")
	summary := flag.Bool("summary", false, "count the results of all steps")
	flag.Parse()
	var err error
	switch {
	case *summary && flag.NArg() == 0:
		err = summarise(os.Stdout, *dir)
	case *name != "" && flag.NArg() > 0:
		err = runStep(*dir, *name, *stream, flag.Args())
	default:
		fmt.Fprintln(os.Stderr, "usage: step -name NAME [-json] -- COMMAND…, or step -summary")
		os.Exit(2)
	}
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) {
		fmt.Fprintf(os.Stderr, "%s %v\n", red("FAIL"), err)
	}
	os.Exit(1)
}

// runStep runs the command and appends its results to DIR/NAME.json.
func runStep(dir, name string, stream bool, args []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, name+".json"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Printf("%s %s\n", cyan("== "+name+":"), strings.Join(args, " "))
	command := exec.Command(args[0], args[1:]...)
	if stream {
		return runTests(command, name, file)
	}
	return runCheck(command, name, file)
}

// runCheck is a command that is one check: its output matters when it fails.
func runCheck(command *exec.Cmd, name string, record *os.File) error {
	out, problem := command.CombinedOutput()
	if problem != nil {
		fmt.Printf("%s\n", out)
		return errors.Join(fmt.Errorf("%s: %w", name, problem),
			event{Action: "output", Package: name, Test: name, Output: string(out)}.write(record),
			event{Action: "fail", Package: name, Test: name}.write(record))
	}
	fmt.Printf("%s %s\n", green("ok  "), name)
	return event{Action: "pass", Package: name, Test: name}.write(record)
}

// runTests is a command that reports test by test.
func runTests(command *exec.Cmd, name string, record *os.File) error {
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	failed, readErr := show(os.Stdout, out, record)
	waitErr := command.Wait()
	if waitErr != nil && failed == 0 {
		// It stopped before its tests could say why.
		readErr = errors.Join(readErr, event{Action: "fail", Package: name, Test: name}.write(record))
	}
	if err := errors.Join(readErr, waitErr); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
