package verdict

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// plain makes text that anyone may have written safe for a terminal.
func plain(s string) string { return strings.TrimSpace(safetext.Line(s)) }

// placeOrder lists the culprit keys that name a place, from the outside in.
var placeOrder = []string{"host", "node", "gpu", "switch", "rank", "job", "process", "pid", "pod", "workload", "container", "cgroup", "mount", "peer"}

// where puts the places of a culprit into words: "node-17, GPU 0000:65:00.0, rank 3".
func where(culprit map[string]string) string {
	var parts []string
	for _, key := range placeOrder {
		if part := place(key, culprit); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

func place(key string, culprit map[string]string) string {
	value := plain(culprit[key])
	if name := podName(culprit); key == "pod" && name != "" {
		value = name
	}
	switch {
	case value == "":
		return ""
	case key == "host":
		return value
	case key == "node" && value == plain(culprit["host"]):
		return ""
	case key == "gpu":
		return "GPU " + value
	case key == "process" && culprit["pid"] != "":
		return "process " + value + " (pid " + plain(culprit["pid"]) + ")"
	case key == "pid" && culprit["process"] != "":
		return ""
	case key == "container" && utf8.RuneCountInString(value) > 12:
		return "container " + string([]rune(value)[:12]) // as container tools print ids
	}
	return key + " " + value
}

// podName is what the culprit's pod is called, as kubectl prints it: namespace and
// name. Its uid is what is left where nobody knew the name.
func podName(culprit map[string]string) string {
	name, namespace := plain(culprit["pod_name"]), plain(culprit["namespace"])
	if name == "" || namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// partOfPod are the keys that are told with the pod.
func partOfPod(key string, culprit map[string]string) bool {
	return (key == "pod_name" || key == "namespace") && podName(culprit) != ""
}

// facts puts what a culprit holds beside places into words: "limit 64 GiB".
func facts(culprit map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(culprit)) {
		value := plain(culprit[key])
		if slices.Contains(placeOrder, key) || partOfPod(key, culprit) || value == "" {
			continue
		}
		name, isSize := strings.CutSuffix(key, "_bytes")
		if n, err := strconv.ParseUint(value, 10, 64); isSize && err == nil {
			value = size(n)
		}
		parts = append(parts, strings.ReplaceAll(plain(name), "_", " ")+" "+value)
	}
	return strings.Join(parts, ", ")
}

// size is a number of bytes in the largest unit that keeps it above 1.
func size(n uint64) string {
	unit, value := "bytes", float64(n)
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if value < 1023.95 { // it would read 1024.0
			break
		}
		unit, value = larger, value/1024
	}
	if value == math.Trunc(value) {
		return fmt.Sprintf("%.0f %s", value, unit)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

var bytesInText = regexp.MustCompile(`\b[0-9]{4,20} bytes\b`)

// sized writes "68719476736 bytes" in a text as "64 GiB".
func sized(text string) string {
	return bytesInText.ReplaceAllStringFunc(text, func(s string) string {
		n, err := strconv.ParseUint(strings.TrimSuffix(s, " bytes"), 10, 64)
		if err != nil {
			return s
		}
		return size(n)
	})
}

// RanksInWords folds ranks into ranges: "0-7, 16".
func RanksInWords(ranks []int) string {
	ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	var parts []string
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		part := strconv.Itoa(ranks[i])
		if end > i {
			part += "-" + strconv.Itoa(ranks[end])
		}
		parts = append(parts, part)
		i = end + 1
	}
	const most = 12
	if len(parts) > most {
		return fmt.Sprintf("%s, … (%s ranks)", strings.Join(parts[:most], ", "), Number(len(ranks)))
	}
	return strings.Join(parts, ", ")
}

// lasting is a duration in at most two units, rounded down.
func lasting(d time.Duration) string {
	day := 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
}

// sameDay says whether a and b fall on one date in a's zone.
func sameDay(a, b time.Time) bool {
	return a.Format(time.DateOnly) == b.In(a.Location()).Format(time.DateOnly)
}

// plural is "1 thing" or "n things".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// Where puts the places of a culprit into words, from the outside in.
func Where(culprit map[string]string) string { return where(culprit) }

// Facts puts what a culprit holds beside places into words.
func Facts(culprit map[string]string) string { return facts(culprit) }

// Lasting is a duration in at most two units, rounded down.
func Lasting(d time.Duration) string { return lasting(d) }

// Sized writes numbers of bytes in a text in the largest unit that keeps them above 1.
func Sized(text string) string { return sized(text) }
