// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTheCacheDropsOnlyItsOwn: what was not used for long goes, but for files that are the user's.
func TestTheCacheDropsOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	hash := strings.Repeat("0a", 32)
	own := []string{hash + ".json", hash + ".code", ".write-123456"}
	others := []string{"notes.txt", "model.json", "a.code", hash, hash + ".txt", hash[1:] + ".json", strings.ToUpper(hash) + ".json", hash + ".json.bak", ".write-", ".write-me", "x.write-1", ".bashrc"}
	folders := []string{strings.Repeat("0b", 32) + ".json", "photos"}
	old := time.Now().Add(-2 * maxAge)
	for _, name := range slices.Concat(own, others) {
		write(t, filepath.Join(dir, name), name)
	}
	for _, name := range folders {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if err := cache(dir).trim(); err != nil || len(left()) != len(own)+len(others)+len(folders) {
		t.Errorf("what is young goes, too: %v, %v", left(), err)
	}
	for _, name := range slices.Concat(own, others, folders) {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := cache(dir).trim(); err != nil {
		t.Fatal(err)
	}
	if got, want := left(), slices.Sorted(slices.Values(slices.Concat(others, folders))); !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
}

// TestAnInterruptedBuildWaitsForNobody: the compiler is ended, and a process that it started and that holds its output is not waited for.
func TestAnInterruptedBuildWaitsForNobody(t *testing.T) {
	defer func(before time.Duration) { patience = before }(patience)
	patience = 50 * time.Millisecond
	const hangs = "sleep 300 & echo $! > \"$0.pid\"; mv \"$0.pid\" \"$0.child\"; wait"
	const version = `echo "Cuda compilation tools, release 13.0, V13.0.88"`
	for what, script := range map[string]string{
		"compiling": "#!/bin/sh\nif [ \"$1\" = --version ]; then " + version + "; exit; fi\n" + hangs, "its version": "#!/bin/sh\n" + hangs + "\n" + version,
	} {
		root, o := tree(t, "nvcc", script)
		ctx, cancel := context.WithCancel(t.Context())
		child := filepath.Join(root, "nvcc.child")
		o.Parallel = 1
		done := make(chan error, 1)
		go func() { _, err := Build(ctx, o); done <- err }()
		var pid int
		for pid == 0 {
			select {
			case err := <-done:
				t.Fatalf("%s: it ends by itself: %v", what, err)
			case <-time.After(time.Millisecond):
				if text, err := os.ReadFile(child); err == nil {
					pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
				}
			}
		}
		cancel()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: an interrupted build succeeds", what)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the build waits for what the compiler started", what)
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
