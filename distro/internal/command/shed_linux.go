package command

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settled is when a start is over, on a slow machine too.
const settled = 15 * time.Second

// shedAfterStart gives back what only the start needed of the program's own file.
// The start of a collector runs through most of it (every component's types and
// tables); at rest a fifth is used. What is needed again comes from the page cache,
// which the kernel keeps while it has room.
func shedAfterStart() (stop func() bool) {
	// What cannot be given back stays, and does no harm.
	return time.AfterFunc(settled, func() { _ = shed() }).Stop
}

// shed unmaps the pages of the program's code and constants from this process.
func shed() error {
	pages, err := programPages()
	if err != nil {
		return err
	}
	for _, p := range pages {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, p.start, p.end-p.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %x-%x: %w", p.start, p.end, errno)
		}
	}
	return nil
}

func programPages() ([]pages, error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, err
	}
	defer smaps.Close()
	return cleanPages(smaps, program)
}

// pages are a part of the address space.
type pages struct{ start, end uintptr }

// cleanPages are the mappings of a program that its file can fill again: private,
// never writable, and without a page of their own ("Anonymous: 0 kB", proc(5)). A
// position-independent program has written its relocations into some, and a
// breakpoint is a page of its own too; those mappings stay whole.
func cleanPages(smaps io.Reader, program string) ([]pages, error) {
	var clean []pages
	var current *pages
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasSuffix(name, ":") {
			current = nil
			if strings.HasSuffix(rest, " "+program) && (strings.HasPrefix(rest, "r--p ") || strings.HasPrefix(rest, "r-xp ")) {
				current = new(pages)
				if _, err := fmt.Sscanf(name, "%x-%x", &current.start, &current.end); err != nil {
					return nil, fmt.Errorf("/proc/self/smaps: %q: %w", lines.Text(), err)
				}
			}
			continue
		}
		if current != nil && name == "Anonymous:" && strings.TrimSpace(rest) == "0 kB" {
			clean = append(clean, *current)
		}
	}
	return clean, lines.Err()
}
