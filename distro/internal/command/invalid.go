package command

import (
	"fmt"
	"regexp"
	"strings"
)

// aboutComponent is a line in which a component, or the service, refuses its configuration.
var aboutComponent = regexp.MustCompile(`^(?:invalid configuration: )?((?:receivers|processors|exporters|connectors|extensions|service)(?:::[^:\s]+)+): (.*)$`)

// located puts file and line before each line of a text that says which key it is about.
// A component may say the rest of the path itself, as patterns::straggler or mutes::0.
func located(text string, files []configFile) string {
	var component []string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		path, rest := component, line
		if parts := aboutComponent.FindStringSubmatch(line); parts != nil {
			component = strings.Split(parts[1], "::")
			path, rest = component, parts[2]
		}
		path, rest = deeper(path, rest, files)
		if where := whereIs(path, files); where != "" && (len(path) > len(component) || rest != line) {
			lines[i] = fmt.Sprintf("%s%s: %s", where, strings.Join(path, "::"), rest)
		}
	}
	return strings.Join(lines, "\n")
}

// deeper follows the keys that a text begins with, as far as a file has them.
func deeper(path []string, text string, files []configFile) ([]string, string) {
	for {
		head, rest, more := strings.Cut(text, ": ")
		if !more {
			return path, text
		}
		below := append(path[:len(path):len(path)], strings.Split(head, "::")...)
		if whereIs(below, files) == "" {
			return path, text
		}
		path, text = below, rest
	}
}

// whereIs returns file and line of a path, "" where no file has it.
func whereIs(path []string, files []configFile) string {
	for _, file := range files {
		if line := lineOf(file.root, path, ""); line > 0 && len(path) > 0 {
			return fmt.Sprintf("%s:%d: ", file.name, line)
		}
	}
	return ""
}
