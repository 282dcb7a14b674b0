// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// tinyDir keys the folder of packed checkpoints.
type tinyDir struct{}

// arguments demands so many of them.
func arguments(ts *testscript.TestScript, neg bool, args []string, least, most int, usage string) {
	if neg || len(args) < least || len(args) > most {
		ts.Fatalf("usage: %s", usage)
	}
}

func unpackCheckpoint(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2, "checkpoint FAMILY DIR")
	files, err := fixture.Read(filepath.Join(ts.Value(tinyDir{}).(string), args[0]+".tar.gz"))
	ts.Check(err)
	dir := ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(dir, 0o755))
	for name, data := range files {
		if name == "ref.safetensors" {
			name = "../" + name // beside the checkpoint: it is no part of it
		}
		ts.Check(os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
}

func replace(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 3, "replace FILE OLD NEW")
	text := ts.ReadFile(args[0])
	changed := strings.Replace(text, args[1], args[2], 1)
	if changed == text {
		ts.Fatalf("%s has no %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(changed), 0o644))
}

func truncate(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2, "truncate FILE SIZE")
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), size))
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, math.MaxInt, "exits STATUS program …")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("the exit status is %d, not %d", got, want)
	}
}

func picture(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 3, "picture FILE WIDTH HEIGHT")
	width, err := strconv.Atoi(args[1])
	ts.Check(err)
	height, err := strconv.Atoi(args[2])
	ts.Check(err)
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = uint8(i * i)
	}
	var b bytes.Buffer
	ts.Check(png.Encode(&b, m))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o644))
}

func embed(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2, "embed FILE PICTURE")
	data := ts.ReadFile(args[1])
	replace(ts, neg, []string{args[0], args[1], "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(data))})
}

// openTensors opens a safetensors file until the story ends.
func openTensors(ts *testscript.TestScript, file string) weights.Store {
	store, _, err := weights.Open(ts.MkAbs(file), weights.Options{})
	ts.Check(err)
	ts.Defer(func() { store.Close() })
	return store
}

func printTensors(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 1, "tensors FILE")
	store := openTensors(ts, args[0])
	for _, name := range store.Names() {
		t, _ := store.Lookup(name)
		fmt.Fprintln(ts.Stdout(), name, t.DType, t.Shape)
	}
}

// readTensor reads a tensor whole.
func readTensor(ts *testscript.TestScript, file, name string) (tensor.Info, []byte) {
	store := openTensors(ts, file)
	t, ok := store.Lookup(name)
	if !ok {
		ts.Fatalf("%s has no tensor %s", file, name)
	}
	data := make([]byte, t.Size())
	ts.Check(store.Read(name, 0, data))
	return t, data
}

func setIDs(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 3, "ids FILE TENSOR VAR")
	t, data := readTensor(ts, args[0], args[1])
	if t.DType != tensor.I64 {
		ts.Fatalf("%s is %v", t.Name, t.DType)
	}
	var words []string
	for ; len(data) > 0; data = data[8:] {
		words = append(words, strconv.FormatUint(binary.LittleEndian.Uint64(data), 10))
	}
	ts.Setenv(args[2], strings.Join(words, ","))
}

// tolerance of the parity ladder's first rung, on |ours − ref| / (1 + |ref|).
const tolerance = 1e-3

func near(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 4, 4, "near FILE TENSOR FILE TENSOR")
	ours, got := readTensor(ts, args[0], args[1])
	ref, want := readTensor(ts, args[2], args[3])
	if ours.DType != ref.DType || !ours.Shape.Equal(ref.Shape) {
		ts.Fatalf("%s is %v %v, %s is %v %v", ours.Name, ours.DType, ours.Shape, ref.Name, ref.DType, ref.Shape)
	}
	if ours.DType != tensor.F32 {
		if !bytes.Equal(got, want) {
			ts.Fatalf("%s and %s differ", ours.Name, ref.Name)
		}
		return
	}
	worst := 0.0
	for i := 0; i < len(got); i += 4 {
		g, w := float32At(got, i), float32At(want, i)
		if d := math.Abs(g-w) / (1 + math.Abs(w)); !(d <= worst) { // true for NaN
			worst = d
		}
	}
	if !(worst <= tolerance) {
		ts.Fatalf("%s and %s differ by %.2g", ours.Name, ref.Name, worst)
	}
}

func float32At(data []byte, i int) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
}
