// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// emCUDA is the machine of NVIDIA's code in an ELF header.
const emCUDA = elf.Machine(190)

// MachineCode hashes, of each of a module's entries, what the device loads: instructions, constants, the size of shared memory, and what the
// module has for all entries. Line numbers, symbol tables and sources, which the code of a module carries too, do not count. Code that is
// not NVIDIA's is hashed whole.
func MachineCode(code []byte, entries []string) (map[string]string, error) {
	out := map[string]string{}
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil || f.Machine != emCUDA {
		sum := CodeSum(code)
		for _, e := range entries {
			out[e] = sum
		}
		return out, nil
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, diag.Errorf(diag.Format, "symbols of compiled code: %w", err)
	}
	c := cubin{f, symbols}
	slices.SortStableFunc(f.Sections[1:], func(a, b *elf.Section) int { return strings.Compare(a.Name, b.Name) })
	// A section that an entry owns ends with its name.
	owner := func(s *elf.Section) string { return s.Name[strings.LastIndexByte(s.Name, '.')+1:] }
	for _, e := range entries {
		if f.Section(".text."+e) == nil {
			return nil, diag.Errorf(diag.Format, "compiled code has no instructions of entry %s", e)
		}
		h := sha256.New()
		for _, s := range f.Sections {
			if o := owner(s); s.Flags&elf.SHF_ALLOC == 0 || o != e && slices.Contains(entries, o) {
				continue
			}
			if err := c.write(h, s); err != nil {
				return nil, diag.Errorf(diag.Format, "section %s of compiled code: %w", s.Name, err)
			}
		}
		out[e] = hex.EncodeToString(h.Sum(nil))
	}
	return out, nil
}

// cubin is a module of NVIDIA's as an ELF file.
type cubin struct {
	*elf.File
	symbols []elf.Symbol // from index 1 on
}

// write hashes a section that a device loads, with its relocations.
func (c *cubin) write(h hash.Hash, s *elf.Section) error {
	fmt.Fprintf(h, "%s %d %d\n", s.Name, s.Size, s.Flags)
	if s.Type != elf.SHT_NOBITS {
		if _, err := io.Copy(h, s.Open()); err != nil {
			return err
		}
	}
	for _, r := range c.Sections {
		if r.Name != ".rela"+s.Name && r.Name != ".rel"+s.Name {
			continue
		}
		data, err := r.Data()
		if err != nil {
			return err
		}
		// Elf64_Rel is offset and info (symbol in the upper half, type in the lower one); Elf64_Rela has an addend behind it.
		size := map[elf.SectionType]int{elf.SHT_REL: 16, elf.SHT_RELA: 24}[r.Type]
		if size == 0 || len(data)%size != 0 {
			return errors.New("relocations of another form")
		}
		for ; len(data) > 0; data = data[size:] {
			at, kind, index := c.ByteOrder.Uint64(data), c.ByteOrder.Uint32(data[8:]), int(c.ByteOrder.Uint32(data[12:]))
			if index > len(c.symbols) {
				return errors.New("a relocation names no symbol")
			}
			name, value := "", uint64(0)
			if index > 0 {
				name, value = c.symbols[index-1].Name, c.symbols[index-1].Value
			}
			fmt.Fprintf(h, "%d %d %s %d %x\n", at, kind, name, value, data[16:size])
		}
	}
	return nil
}
