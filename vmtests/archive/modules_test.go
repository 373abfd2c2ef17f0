package archive

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// module makes an ELF file with nothing but the section .modinfo.
func module(t *testing.T, info string) []byte {
	t.Helper()
	const names = "\x00.modinfo\x00.shstrtab\x00"
	header := binary.Size(elf.Header64{})
	var out bytes.Buffer
	write := func(v any) { require.NoError(t, binary.Write(&out, binary.LittleEndian, v)) }
	write(elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: uint16(header),
		Shoff: uint64(header + len(info) + len(names)), Shentsize: uint16(binary.Size(elf.Section64{})), Shnum: 3, Shstrndx: 2,
	})
	write([]byte(info + names))
	write(elf.Section64{})
	write(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: uint64(header), Size: uint64(len(info))})
	write(elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(header + len(info)), Size: uint64(len(names))})
	return out.Bytes()
}

// moduleTree is what a package with these modules unpacks to.
func moduleTree(t *testing.T, files map[string][]byte) string {
	t.Helper()
	tree := t.TempDir()
	for name, content := range files {
		path := filepath.Join(tree, "lib/modules/6.1/kernel", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
	return tree
}

func TestModulesComeAfterWhatTheyNeed(t *testing.T) {
	tree := moduleTree(t, map[string][]byte{
		"net/bridge/bridge.ko": module(t, "license=GPL\x00depends=stp,llc\x00"),
		"net/802/stp.ko":       module(t, "depends=llc\x00"),
		"net/llc/llc.ko":       module(t, "depends=\x00"),
		"net/sch-netem.ko":     module(t, "license=GPL\x00"),
		"fs/xfs.ko":            []byte("not asked for, never read"),
	})
	into := filepath.Join(t.TempDir(), "modules")
	require.NoError(t, place(context.Background(), tree, []string{"built_in", "bridge", "llc", "sch_netem"}, into))
	entries, err := os.ReadDir(into)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"000-llc.ko", "001-stp.ko", "002-bridge.ko", "003-sch_netem.ko"}, names)
	require.NoError(t, place(context.Background(), tree, []string{"llc"}, into), "another run was first")
}

func TestModulesThatCannotBeUsedAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		files   map[string][]byte
		problem string
	}{
		"need is missing": {map[string][]byte{"fuse.ko": module(t, "depends=elsewhere\x00")}, "module fuse: needs elsewhere, which the package does not have"},
		"no ELF":          {map[string][]byte{"fuse.ko": []byte("text")}, "module fuse: fuse.ko: "},
		"damaged":         {map[string][]byte{"fuse.ko.xz": []byte("text")}, "module fuse: unpack fuse.ko.xz: "},
		"no modinfo":      {map[string][]byte{"fuse.ko": bytes.Replace(module(t, ""), []byte(".modinfo"), []byte(".nothing"), 1)}, "no section .modinfo"},
	} {
		t.Run(name, func(t *testing.T) {
			into := filepath.Join(t.TempDir(), "modules")
			require.ErrorContains(t, place(context.Background(), moduleTree(t, tc.files), []string{"fuse"}, into), tc.problem)
			require.NoDirExists(t, into)
		})
	}
}

func TestChangedListOfModulesHasAnotherFolder(t *testing.T) {
	require.NotEqual(t, listID([]string{"fuse"}), listID([]string{"fuse", "veth"}))
}
