// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/metrale/metrale/internal/diag"
)

// choice is a model that can be served without a download.
type choice struct {
	name  string
	bytes int64
	note  string
}

// choices are the built-in model, if there is one, and those in a cache.
func choices(cache string) (list []choice, err error) {
	if n := demoBytes(); n > 0 {
		format, err := demoFormat()
		if err != nil {
			return nil, err
		}
		list = append(list, choice{demo, n, format + ", built in"})
	}
	repos, err := filepath.Glob(filepath.Join(cache, "models--*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range repos {
		id := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(dir), "models--"), "--", "/")
		list = append(list, choice{id, folderSize(filepath.Join(dir, "blobs")), ""})
	}
	return list, nil
}

// printChoices prints a line for each; numbered, if a person shall choose.
func printChoices(out io.Writer, list []choice, numbered bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, c := range list {
		line := c.name + "\t" + byteCount(c.bytes)
		if c.note != "" {
			line += "\t" + c.note
		}
		if numbered {
			line = strconv.Itoa(i+1) + "\t" + line
		}
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// defaultModel is what is served when no model is named: where a person is asked and the cache has models, their choice;
// else the built-in one.
func defaultModel(in io.Reader, log io.Writer, cache string) (string, error) {
	list, err := choices(cache)
	switch {
	case err != nil:
		return "", err
	case isTerminal(in) && isTerminal(log) && (len(list) > 1 || len(list) == 1 && list[0].name != demo):
		return pick(in, log, list)
	case demoBytes() == 0:
		return "", noDemo()
	}
	fmt.Fprintf(log, "serving %s, the model inside this binary; name another as an id, a folder or a .gguf file\n", demo)
	return demo, nil
}

// pick asks for one of the list; an empty line is the first.
func pick(in io.Reader, log io.Writer, list []choice) (string, error) {
	if err := printChoices(log, list, true); err != nil {
		return "", err
	}
	for {
		fmt.Fprintf(log, "which one? [1] ")
		line, err := readLine(in)
		if err != nil {
			return "", diag.Errorf(diag.Canceled, "no model was chosen").For("model").Because(err)
		}
		line = strings.TrimSpace(line)
		if line == "" {
			return list[0].name, nil
		}
		n, err := strconv.Atoi(line)
		if err == nil && n >= 1 && n <= len(list) {
			return list[n-1].name, nil
		}
		for _, c := range list {
			if c.name == line {
				return line, nil
			}
		}
		fmt.Fprintf(log, "%q is neither a number from 1 to %d nor a name of the list\n", line, len(list))
	}
}

// readLine reads no further than the end of a line: what follows is the conversation's.
func readLine(in io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		switch _, err := io.ReadFull(in, b); {
		case err != nil:
			return "", err
		case b[0] == '\n':
			return string(line), nil
		}
		line = append(line, b[0])
	}
}
