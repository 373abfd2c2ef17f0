package uprobe

import (
	"debug/elf"
	"io"

	"github.com/tracecoreai/tracecore/internal/elfhead"
)

// maxVariableBytes bounds the tables in which a variable is looked for: those of the C library have 100 KiB.
const maxVariableBytes = 4 << 20

// Variable is where a file has the first of some variables that it defines for others, and what the addresses of its code are ahead of
// their offsets, where code begins within so many bytes from an offset on; 0 where it has none.
func Variable(file io.ReaderAt, offset, within uint64, names ...string) (value, bias uint64, err error) {
	f, err := readHeaders(file)
	if err != nil {
		return 0, 0, err
	}
	table, texts, there := f.section(elf.SHT_DYNSYM)
	if !there || table.Size > maxVariableBytes || texts.Size > maxVariableBytes {
		return 0, 0, nil
	}
	found, err := f.defined(elf.SHT_DYNSYM, func(elf.SymType) bool { return true }, names)
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		s, there := found[name]
		if !there {
			continue
		}
		for i := range f.Segments {
			if p := &f.Segments[i]; elfhead.Executed(p) && p.Off >= offset && p.Off-offset < within {
				return s.Value, p.Vaddr - p.Off, nil
			}
		}
	}
	return 0, 0, nil
}
