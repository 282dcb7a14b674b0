// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/server"
)

// Prompt tokens in a step, where --max-prefill-tokens does not say: a GPU needs many rows to be busy.
const (
	cpuPrefill = 512
	gpuPrefill = 2048
)

// serveFlags are the flags of `met serve`, in the book's names.
type serveFlags struct {
	modelFromPath, modelName, cacheDir, gguf    string
	loadFormat                                  string
	bind                                        string
	port                                        int
	maxSeqLen, maxBatch, maxPrefill, maxNumSeqs int
	maxImageTokens                              int
	imageHosts                                  []string
	prefillGiven                                bool
	memoryUtilization                           float64
	deviceFlags
	kvDType, compute               string
	scheduler, router              string
	samplingPreset                 string
	noFusion, requireAuth, verbose bool
	authToken, authTokensFile      string
	drain                          time.Duration
}

func (f *serveFlags) add(fs *pflag.FlagSet, env environment) {
	fs.StringVar(&f.modelFromPath, "model-from-path", "", "serve this folder or .gguf file and look nowhere else")
	fs.StringVar(&f.modelName, "model-name", "", "name that /v1/models reports (default: the id, or the path's last part)")
	fs.StringVar(&f.modelName, "served-model-name", "", "the same as --model-name")
	fs.StringVar(&f.cacheDir, "cache-dir", "", "Hugging Face cache (default: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub)")
	fs.StringVar(&f.gguf, "gguf-file", "", "of a repository with GGUF files, which one: its name or a part of it, as Q4_K_M")
	fs.StringVar(&f.loadFormat, "load-format", "auto", "auto: the checkpoint's weights; dummy: random ones, made from config.json alone")
	fs.StringVar(&f.bind, "bind", "127.0.0.1", "address to listen on; 0.0.0.0 for every network")
	fs.IntVar(&f.port, "port", 8888, "port to listen on; 0 for a free one")
	fs.IntVar(&f.maxSeqLen, "max-seq-len", 0, "most tokens of a sequence (default: the model's, at most 32768)")
	fs.IntVar(&f.maxBatch, "max-batch-size", 8, "most sequences that run at a time")
	fs.IntVar(&f.maxPrefill, "max-prefill-tokens", cpuPrefill, "most prompt tokens in a step (default: 512 on the CPU, 2048 on a GPU)")
	fs.Lookup("max-prefill-tokens").DefValue = "0" // help would show cpuPrefill beside both
	fs.IntVar(&f.maxNumSeqs, "max-num-seqs", 128, "most sequences that wait")
	fs.IntVar(&f.maxImageTokens, "max-image-tokens", 2048, "most tokens of an image, larger ones are made smaller; 0: take no images")
	fs.StringSliceVar(&f.imageHosts, "allow-image-host", nil, "host, with its port, that images of requests may be fetched from (default: none)")
	fs.Float64Var(&f.memoryUtilization, "gpu-memory-utilization", 0.90, "share of the device's memory that may be claimed")
	fs.StringVar(&f.kvDType, "kv-cache-dtype", "", "element type of cached keys and values: f16, bf16 or f32 (default: the device's)")
	fs.StringVar(&f.compute, "compute", circuit.Declared, "declared: the precision of the checkpoint; float32: as a reference computes")
	f.deviceFlags.add(fs, env, "auto")
	fs.StringVar(&f.scheduler, "scheduler", "fifo", "scheduling policy")
	fs.StringVar(&f.router, "router", "async", "where the device draws tokens, async: the next step starts before they are seen; sync: it waits for them")
	fs.StringVar(&f.samplingPreset, "sampling-preset", "", "sampling defaults of the model's kernel target, as met kernels show names them (default: the checkpoint's own, if any)")
	fs.BoolVar(&f.noFusion, "no-fusion", false, "lower every op alone, by the reference rules")
	fs.BoolVar(&f.requireAuth, "require-auth", false, "ask for a bearer token")
	fs.StringVar(&f.authToken, "auth-token", "", "the token that --require-auth accepts")
	fs.StringVar(&f.authTokensFile, "auth-tokens-file", "", "file with accepted tokens, one a line")
	fs.DurationVar(&f.drain, "drain-timeout", 30*time.Second, "how long running answers may go on after SIGTERM")
	fs.BoolVar(&f.verbose, "verbose", false, "log every request")
}

// newServeCmd is `met serve`.
func newServeCmd(env environment) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve [demo | id | path | file.gguf]",
		Short: "Serve a model over HTTP",
		Long: `Serves a model over OpenAI-compatible HTTP: a Hugging Face id (downloaded on the first use), a checkpoint folder, or a
GGUF file. Without a model, on a terminal, it asks for one of those in the cache if there are any; else it serves "demo",
the model inside this binary. Prints "Listening on http://…" when it answers.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := asPath(f.modelFromPath)
			switch {
			case len(args) == 1 && name != "":
				return diag.Errorf(diag.Invalid, "both a model (%s) and --model-from-path are given", args[0]).For("model-from-path")
			case len(args) == 1:
				name = args[0]
			}
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			if name == "" {
				var err error
				if name, err = defaultModel(cmd.InOrStdin(), cmd.ErrOrStderr(), cmp.Or(f.cacheDir, env.hub.Cache)); err != nil {
					return err
				}
			}
			out := cmd.OutOrStdout()
			s := &serving{flags: f, env: env, model: name, log: cmd.ErrOrStderr(), ready: func(url string) { fmt.Fprintln(out, "Listening on", url) }}
			return s.run(cmd.Context())
		},
	}
	f.add(cmd.Flags(), env)
	return cmd
}

// check refuses flags that no model could run with.
func (f *serveFlags) check(fs *pflag.FlagSet) error {
	for _, c := range []struct {
		flag string
		bad  bool
		want string
	}{
		{"port", f.port < 0 || f.port > 65535, "0 to 65535"},
		{"max-seq-len", fs.Changed("max-seq-len") && (f.maxSeqLen < 2 || f.maxSeqLen > mostTokens), "2 to 16777216"},
		{"max-batch-size", f.maxBatch < 1 || f.maxBatch > 4096, "1 to 4096"},
		{"max-prefill-tokens", f.maxPrefill < 1 || f.maxPrefill > mostRows, "1 to 1048576"},
		{"max-num-seqs", f.maxNumSeqs < 1, "at least 1"},
		{"max-image-tokens", f.maxImageTokens < 0 || f.maxImageTokens > 1<<16, "0 to 65536"},
		{"gpu-memory-utilization", !(f.memoryUtilization > 0 && f.memoryUtilization <= 1), "above 0, at most 1"},
		{"scheduler", f.scheduler != "fifo", "fifo"},
		{"router", f.router != "async" && f.router != "sync", "async or sync"},
		{"compute", f.compute != circuit.Declared && f.compute != circuit.Float32, "declared or float32"},
		{"drain-timeout", f.drain < 0, "at least 0s"},
		{"allow-image-host", slices.ContainsFunc(f.imageHosts, func(h string) bool { return h == "" || strings.ContainsAny(h, "/ @") }), "hosts, as example.com or example.com:8080"},
		{"kv-cache-dtype", !slices.Contains([]string{"", "f16", "bf16", "f32"}, f.kvDType), "f16, bf16 or f32"},
	} {
		if c.bad {
			return diag.Errorf(diag.Invalid, "--%s %s: want %s", c.flag, fs.Lookup(c.flag).Value, c.want).For(c.flag)
		}
	}
	if err := f.deviceFlags.check(); err != nil {
		return err
	}
	if err := checkLoadFormat(f.loadFormat); err != nil {
		return err
	}
	f.prefillGiven = fs.Changed("max-prefill-tokens")
	switch given := f.authToken != "" || f.authTokensFile != ""; {
	case f.requireAuth && !given:
		return diag.Errorf(diag.Invalid, "--require-auth needs --auth-token or --auth-tokens-file").For("require-auth")
	case given && !f.requireAuth:
		return diag.Errorf(diag.Invalid, "tokens are given without --require-auth, which would ask for them").For("require-auth")
	}
	return nil
}

// tokens are the credentials that the server accepts.
func (f *serveFlags) tokens() ([]string, error) {
	var list []string
	if f.authToken != "" {
		list = append(list, f.authToken)
	}
	if f.authTokensFile != "" {
		data, err := os.ReadFile(f.authTokensFile)
		if err != nil {
			return nil, diag.Errorf(diag.NotFound, "--auth-tokens-file %s cannot be read", f.authTokensFile).Because(err)
		}
		list = append(list, strings.Fields(string(data))...)
	}
	if f.requireAuth && len(list) == 0 {
		return nil, diag.Errorf(diag.Invalid, "--auth-tokens-file %s has no token", f.authTokensFile).For("auth-tokens-file")
	}
	return list, nil
}

// serving is one run of a server, from the listener to the end of the drain.
type serving struct {
	flags serveFlags
	env   environment
	model string
	log   io.Writer
	ready func(url string)            // called once, when the model answers
	wrap  func(gpu.Device) gpu.Device // of tests, which put faults before the device; else nil
}

// run serves until ctx ends, or the device is lost: then every request has failed, and the process ends with the exit status of
// diag.DeviceLost. The port answers 503 while the model loads.
func (s *serving) run(ctx context.Context) error {
	tokens, err := s.flags.tokens()
	if err != nil {
		return err
	}
	level := slog.LevelWarn
	if s.flags.verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: level}))
	listener, err := net.Listen("tcp", net.JoinHostPort(s.flags.bind, strconv.Itoa(s.flags.port)))
	if err != nil {
		return diag.Errorf(diag.IO, "cannot listen on %s:%d: %w", s.flags.bind, s.flags.port, err)
	}
	srv := server.New(server.Options{Version: Version, Tokens: tokens, Log: logger})
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()

	m, dev, err := s.load(ctx)
	if err != nil {
		srv.Shutdown(context.Background())
		<-ended
		return err
	}
	defer dev.Close()
	srv.Ready(m)
	s.ready("http://" + listener.Addr().String())

	var lost error
	select {
	case err = <-ended:
		return errors.Join(err, m.Engine.Close())
	case <-ctx.Done():
	case lost = <-m.Engine.Lost():
	}
	grace, cancel := context.WithTimeout(context.Background(), s.flags.drain)
	err = srv.Shutdown(grace)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(s.log, "met: requests were still running after %v\n", s.flags.drain)
		err = nil
	}
	<-ended
	if lost != nil {
		m.Engine.Close() // whatever it says follows from the loss
		return lost
	}
	return errors.Join(err, m.Engine.Close())
}

// serveForChat serves a model on a free port for as long as a conversation lasts and gives its URL.
func serveForChat(ctx context.Context, env environment, model string, log io.Writer) (url string, stop func(), err error) {
	var f serveFlags
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.add(fs, env)
	f.port = 0
	ctx, cancel := context.WithCancel(ctx)
	started := make(chan string, 1)
	s := &serving{flags: f, env: env, model: model, log: log, ready: func(url string) { started <- url }}
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	select {
	case url = <-started:
		return url, func() { cancel(); <-ended }, nil
	case err = <-ended:
		cancel()
		return "", nil, err
	}
}
