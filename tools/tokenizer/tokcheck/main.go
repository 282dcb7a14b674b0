// SPDX-License-Identifier: MIT OR Apache-2.0

// Command tokcheck runs the engine's tokenizer over pieces of text, for check_ids.py and speed.py to compare.
//
//	tokcheck -tokenizer tokenizer.json [-config tokenizer_config.json] -in pieces -out results
//	tokcheck -metadata vocab.json -in pieces -out results       # GGUF metadata written as JSON
//	tokcheck -tokenizer tokenizer.json -in pieces -bench 5      # prints seconds for a pass over the pieces, best of 5
//
// Pieces are framed: u32 length, bytes. Results, for each piece: u32 count, i32 ids, u32 length, decoded text. All numbers
// are little-endian. The streamed decoding is compared here, with Decode's, for each piece.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/tokenizer"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tokcheck:", err)
		os.Exit(1)
	}
}

func run() error {
	file := flag.String("tokenizer", "", "tokenizer.json")
	config := flag.String("config", "", "tokenizer_config.json")
	meta := flag.String("metadata", "", "GGUF metadata as JSON")
	in := flag.String("in", "", "pieces")
	out := flag.String("out", "", "results")
	bench := flag.Int("bench", 0, "passes to time instead of writing results")
	special := flag.Bool("special", false, "add special tokens")
	flag.Parse()

	start := time.Now()
	t, err := load(*file, *config, *meta)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "loaded in %v\n", time.Since(start).Round(time.Millisecond))
	data, err := os.ReadFile(*in)
	if err != nil {
		return err
	}
	var pieces []string
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data)
		pieces = append(pieces, string(data[4:4+n]))
		data = data[4+n:]
	}
	if *bench > 0 {
		return measure(t, pieces, *bench)
	}
	return write(t, pieces, *out, *special)
}

func load(file, config, meta string) (*tokenizer.Tokenizer, error) {
	if meta != "" {
		data, err := os.ReadFile(meta)
		if err != nil {
			return nil, err
		}
		m := metadata{}
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, err
		}
		return tokenizer.FromGGUF(m)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var extra []byte
	if config != "" {
		if extra, err = os.ReadFile(config); err != nil {
			return nil, err
		}
	}
	return tokenizer.FromJSON(data, extra)
}

func measure(t *tokenizer.Tokenizer, pieces []string, passes int) error {
	best, tokens := time.Duration(1<<62), 0
	var ids []int32
	for range passes {
		start := time.Now()
		tokens = 0
		for _, p := range pieces {
			ids = t.AppendEncode(ids[:0], p, tokenizer.EncodeOptions{})
			tokens += len(ids)
		}
		best = min(best, time.Since(start))
	}
	fmt.Printf("%.6f %d\n", best.Seconds(), tokens)
	return nil
}

func write(t *tokenizer.Tokenizer, pieces []string, path string, special bool) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for i, p := range pieces {
		ids := t.Encode(p, tokenizer.EncodeOptions{AddSpecial: special})
		text := t.Decode(ids, false)
		if err := checkStream(t, ids, text); err != nil {
			return fmt.Errorf("piece %d: %w", i, err)
		}
		binary.Write(w, binary.LittleEndian, uint32(len(ids)))
		binary.Write(w, binary.LittleEndian, ids)
		binary.Write(w, binary.LittleEndian, uint32(len(text)))
		w.WriteString(text)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// checkStream compares the streamed text with the whole one. Each part must consist of whole code points.
func checkStream(t *tokenizer.Tokenizer, ids []int32, want string) error {
	d := t.NewDecoder(false)
	var got []byte
	for _, id := range ids {
		part := d.Push(id)
		if !utf8.ValidString(part) {
			return fmt.Errorf("a broken code point from Push: %q", part)
		}
		got = append(got, part...)
	}
	got = append(got, d.Flush()...)
	if !bytes.Equal(got, []byte(want)) {
		return fmt.Errorf("streamed text differs from Decode's")
	}
	return nil
}

// metadata is GGUF metadata as JSON gives it.
type metadata map[string]any

func (m metadata) String(key string) (string, bool) { v, ok := m[key].(string); return v, ok }
func (m metadata) Bool(key string) (bool, bool)     { v, ok := m[key].(bool); return v, ok }

func (m metadata) Int(key string) (int64, bool) {
	v, ok := m[key].(float64)
	return int64(v), ok
}

func (m metadata) Strings(key string) ([]string, bool) { return list[string](m, key) }
func (m metadata) Ints(key string) ([]int64, bool) {
	return convert(m, key, func(v float64) int64 { return int64(v) })
}
func (m metadata) Floats(key string) ([]float32, bool) {
	return convert(m, key, func(v float64) float32 { return float32(v) })
}

func list[T any](m metadata, key string) ([]T, bool) {
	all, ok := m[key].([]any)
	out := make([]T, len(all))
	for i, v := range all {
		if out[i], ok = v.(T); !ok {
			return nil, false
		}
	}
	return out, ok
}

func convert[T any](m metadata, key string, f func(float64) T) ([]T, bool) {
	all, ok := list[float64](m, key)
	out := make([]T, len(all))
	for i, v := range all {
		out[i] = f(v)
	}
	return out, ok
}
