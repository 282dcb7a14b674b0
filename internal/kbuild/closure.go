// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

var quotedInclude = regexp.MustCompile(`(?m)^\s*#\s*include\s+"([^"]+)"`)

// Closure hashes a source with everything that it includes by quotes (looked up beside the including file, then in
// root/include), the flags, the architecture and the compiler's version. Includes in angle brackets belong to the compiler.
func Closure(root, source, arch, compiler string, flags []string) (string, error) {
	files := map[string][]byte{}
	if err := collect(root, source, files); err != nil {
		return "", err
	}
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	sort.Strings(names)
	h := sha256.New()
	fmt.Fprintf(h, "arch %s\ncompiler %s\nflags %s\n", arch, compiler, strings.Join(flags, "\x00"))
	for _, n := range names {
		fmt.Fprintf(h, "file %s %d\n", n, len(files[n]))
		h.Write(files[n])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func collect(root, file string, files map[string][]byte) error {
	if _, done := files[file]; done {
		return nil
	}
	src, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return diag.Errorf(diag.IO, "%s cannot be read", file).Because(err)
	}
	files[file] = src
	for _, m := range quotedInclude.FindAllStringSubmatchIndex(string(src), -1) {
		name := string(src[m[2]:m[3]])
		found := ""
		for _, dir := range []string{filepath.Dir(file), "include"} {
			if c := filepath.ToSlash(filepath.Join(dir, name)); exists(filepath.Join(root, c)) {
				found = c
				break
			}
		}
		if found == "" {
			line := 1 + strings.Count(string(src[:m[0]]), "\n")
			return diag.Errorf(diag.Format, "%q is neither beside the file nor in include/", name).At(diag.Pos{File: file, Line: line})
		}
		if err := collect(root, found, files); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
