// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/record"
)

// TestALostDeviceEndsTheServer: the request that meets the loss is answered with it, and serving ends with its exit status; also when
// it is in waiting for a step that the loss shows.
func TestALostDeviceEndsTheServer(t *testing.T) {
	for _, c := range []struct {
		at  record.Op
		n   int
		err error
	}{
		{record.Launch, 3, diag.Errorf(diag.DeviceLost, "the device fell off the bus")},
		{record.Sync, 2, diag.Errorf(diag.DeviceLost, "the device is not done after 2m0s")},
	} {
		t.Run(c.at.String(), func(t *testing.T) { loseDevice(t, c.at, c.n, c.err) })
	}
}

// loseDevice serves on a device whose n-th call of that kind loses it.
func loseDevice(t *testing.T, at record.Op, n int, fault error) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(llamaConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	var f serveFlags
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.add(fs, environment{})
	if err := fs.Parse([]string{"--port", "0", "--device", "cpu", "--threads", "1", "--load-format", "dummy"}); err != nil {
		t.Fatal(err)
	}
	url := make(chan string, 1)
	s := &serving{flags: f, model: dir, log: &bytes.Buffer{}, ready: func(u string) { url <- u },
		wrap: func(d gpu.Device) gpu.Device {
			return record.Fail(d, at, n, fault)
		}}
	ended := make(chan error, 1)
	go func() { ended <- s.run(t.Context()) }()
	var base string
	select {
	case base = <-url:
	case err := <-ended:
		t.Fatal(err)
	}
	resp, err := http.Post(base+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "hello", "max_tokens": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 500 || !strings.Contains(string(body), `"code":"device_lost"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if err := <-ended; !diag.Is(err, diag.DeviceLost) || exitStatus(err) != 70 {
		t.Errorf("serving ended with %v, status %d", err, exitStatus(err))
	}
}
