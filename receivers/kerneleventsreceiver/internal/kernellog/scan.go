package kernellog

import (
	"strconv"
	"strings"
)

// between returns the text after before and up to after, or all of the rest
// when after does not follow.
func between(text, before, after string) (string, bool) {
	_, rest, found := strings.Cut(text, before)
	if !found {
		return "", false
	}
	inside, _, _ := strings.Cut(rest, after)
	return inside, true
}

// number reads the digits at the start of text; rest is what follows them.
func number(text string) (value uint32, rest string, ok bool) {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(text[:end], 10, 32)
	return uint32(n), text[end:], err == nil
}

// hexNumber reads "0x..." of at most 32 bits.
func hexNumber(text string) (uint32, bool) {
	digits, found := strings.CutPrefix(text, "0x")
	if !found {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	return uint32(n), err == nil
}

// pciAddress brings an address as drivers print it (with or without "PCI:",
// domain and function) into the form dddd:bb:dd.f in lower case. A missing
// domain and a missing function are 0: an Xid line has no function.
func pciAddress(text string) (string, bool) {
	text = strings.TrimPrefix(text, "PCI:")
	function := "0"
	if base, f, found := strings.Cut(text, "."); found {
		text, function = base, f
	}
	domain := "0000"
	if strings.Count(text, ":") == 2 {
		domain, text, _ = strings.Cut(text, ":")
		for len(domain) > 4 && domain[0] == '0' {
			domain = domain[1:] // "00000000:65:00" is how NVML prints it
		}
	}
	bus, device, found := strings.Cut(text, ":")
	if !found || len(domain) < 4 || len(domain) > 8 || len(bus) != 2 || len(device) != 2 || len(function) != 1 {
		return "", false
	}
	if strings.Trim(domain+bus+device+function, "0123456789abcdefABCDEF") != "" {
		return "", false
	}
	return strings.ToLower(domain + ":" + bus + ":" + device + "." + function), true
}

// nameAndPID splits "comm:pid", in which comm may itself hold colons. In a line that the
// name has cut short, by a newline, no number is the kernel's.
func (l line) nameAndPID(text string) (name string, pid uint32) {
	if l.more != "" {
		return "", 0
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "", 0
	}
	pid, rest, ok := number(text[colon+1:])
	if !ok || rest != "" {
		return "", 0
	}
	return text[:colon], pid
}

// beforeLast is the text before the last separator, or all of it.
func beforeLast(text, separator string) string {
	if at := strings.LastIndex(text, separator); at >= 0 {
		return text[:at]
	}
	return text
}

// deviceLine splits what the kernel puts before the line of a device: the name of its
// driver, its own, and of a network interface its name too ("mlx5_core 0000:5e:00.0
// ibs3: …", drivers/base/core.c and net/core/dev.c). None of the three has a space.
func deviceLine(text string) (driver, device, name, rest string) {
	before, rest, found := strings.Cut(text, ": ")
	words := strings.Split(before, " ")
	if !found || len(words) < 2 || len(words) > 3 {
		return "", "", "", text
	}
	device, isPCI := pciAddress(words[1])
	if len(words) == 3 {
		name = words[2]
	}
	if !isPCI || strings.Count(words[1], ":") != 2 {
		device = ""
	}
	return words[0], device, name, rest
}
