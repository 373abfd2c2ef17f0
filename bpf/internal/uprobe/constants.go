//go:build linux

package uprobe

import (
	"cmp"
	"debug/elf"
	"io"
	"slices"
)

// Constants are the parts of a file that hold what a program never changes, such as its texts, the
// smallest first: what GPUs execute lies in one of the largest.
func Constants(file io.ReaderAt) ([]*io.SectionReader, error) {
	f, err := readHeaders(file)
	if err != nil {
		return nil, err
	}
	var parts []*io.SectionReader
	const kind = elf.SHF_ALLOC | elf.SHF_WRITE | elf.SHF_EXECINSTR
	for _, s := range f.sections {
		if elf.SectionType(s.Type) == elf.SHT_PROGBITS && elf.SectionFlag(s.Flags)&kind == elf.SHF_ALLOC {
			parts = append(parts, f.Part(s.Off, s.Size))
		}
	}
	slices.SortStableFunc(parts, func(a, b *io.SectionReader) int { return cmp.Compare(a.Size(), b.Size()) })
	return parts, nil
}
