// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strings"
)

// Survey are the summaries of many models.
type Survey []Summary

// Summaries goes over models.
func Summaries(lib *Library, models []Model, on Target) Survey {
	var out Survey
	for _, m := range models {
		out = append(out, Summarise(lib, m, on))
	}
	return out
}

// Runs is how many are not refused.
func (s Survey) Runs() (n int) {
	for i := range s {
		if s[i].Refused == "" {
			n++
		}
	}
	return n
}

var surveyHead = []string{"model", "model_type", "circuit", "parts", "layers", "parameters", "active", "weights", "stored", "status"}

// Table prints one line a model, in padded columns.
func (s Survey) Table() string {
	rows := [][]string{surveyHead}
	for i := range s {
		rows = append(rows, s[i].row())
	}
	var b strings.Builder
	columns(&b, rows)
	fmt.Fprintf(&b, "\n%d of %d run\n", s.Runs(), len(s))
	if lacks := s.lacks(); len(lacks) > 0 {
		b.WriteString("\nmissing\n")
		rows = nil
		for _, l := range lacks {
			rows = append(rows, []string{"  " + l.String(), l.Why})
		}
		columns(&b, rows)
	}
	return b.String()
}

const surveyIntro = "# Known models\n\n" +
	"Written by `met circuit configs --markdown`; `go test ./internal/circuit -update` rewrites it. %d of %d published configs run.\n\n" +
	"Parameters, weights and stored bytes are those of the decoder; parts beside it are counted by themselves. Active parameters are those\n" +
	"that one token passes: all but the experts that are not chosen. A model runs if its config is understood key by key, its weights' formats\n" +
	"can be read, and every op of it has a kernel; the reference checkpoints of `testdata/tiny` hold the logits of their families.\n\n"

// Markdown is a page with the table: docs/models.md.
func (s Survey) Markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	fmt.Fprintf(&b, surveyIntro, s.Runs(), len(s))
	line(surveyHead)
	line(slices.Repeat([]string{"---"}, len(surveyHead)))
	for i := range s {
		cells := s[i].row()
		for j := range cells {
			cells[j] = strings.ReplaceAll(cells[j], "|", "\\|")
		}
		line(cells)
	}
	if lacks := s.lacks(); len(lacks) > 0 {
		b.WriteString("\n## What is missing\n\n")
		line([]string{"generator", "why"})
		line([]string{"---", "---"})
		for _, l := range lacks {
			line([]string{l.String(), l.Why})
		}
	}
	return b.String()
}

// lacks lists what refused models need, each once.
func (s Survey) lacks() (out []Lack) {
	for i := range s {
		for _, l := range s[i].Lacks {
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

func (s *Summary) row() []string {
	parts, layers, params, active, weights, stored, status := "", "", "", "", "", "", "runs"
	if s.Circuit != "" {
		var shares, list []string
		for _, f := range s.Formats {
			if pc := 100 * float64(f.Params) / float64(s.Params); len(s.Formats) == 1 {
				shares = append(shares, f.Format)
			} else if pc >= 0.1 {
				shares = append(shares, fmt.Sprintf("%s %.3g %%", f.Format, pc))
			}
		}
		for _, p := range s.Parts {
			list = append(list, p.Name+" "+short(p.Params))
		}
		parts, layers, params, active = strings.Join(list, ", "), fmt.Sprint(s.Layers), short(s.Params), short(s.Active)
		weights, stored = strings.Join(shares, ", "), size(s.Bytes)
	}
	if s.Refused != "" {
		status = "refused: " + s.Refused
	}
	return []string{s.Name, s.ModelType, s.Circuit, parts, layers, params, active, weights, stored, status}
}

// short prints a number of parameters: 30.5B.
func short(n int64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if f := float64(n); f >= u.size {
			return fmt.Sprintf("%.3g%s", f/u.size, u.unit)
		}
	}
	return fmt.Sprint(n)
}
