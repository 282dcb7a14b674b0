// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/telemetry"
)

// metrics gives Prometheus what the server and the engine count, under our own names, and again the five that routers and
// autoscalers know from vLLM (the Gateway API's model server protocol).
type metrics struct {
	s        *Server
	requests *prometheus.CounterVec
	finished *prometheus.CounterVec
	handler  http.Handler
}

func newMetrics(s *Server, reg *prometheus.Registry) *metrics {
	m := &metrics{s: s, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "metrale_http_requests_total", Help: "Requests answered, by route and status.",
	}, []string{"route", "status"}), finished: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "metrale_sequences_finished_total", Help: "Sequences that have ended, by reason; a stop string is a stop.",
	}, []string{"reason"})}
	for f := seq.Stopped; f <= seq.Failed; f++ {
		m.finished.WithLabelValues(f.String())
	}
	reg.MustRegister(m, m.requests, m.finished, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	return m
}

// request counts an answered request.
func (m *metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// finish counts a sequence that has ended.
func (m *metrics) finish(why seq.Finish) { m.finished.WithLabelValues(why.String()).Inc() }

func (x *exchange) metrics() error {
	x.status = http.StatusOK
	x.s.metrics.handler.ServeHTTP(x.w, x.r)
	return nil
}

// Of the engine, each under one or two names.
type gauge struct {
	desc  []*prometheus.Desc
	value func(*telemetry.Engine) float64
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"model_name"}, nil)
}

func both(name, vllm, help string) []*prometheus.Desc {
	return []*prometheus.Desc{desc(name, help), desc(vllm, help)}
}

var gauges = []gauge{
	{both("metrale_requests_running", "vllm:num_requests_running", "Sequences that are being computed."),
		func(e *telemetry.Engine) float64 { return float64(e.Running.Load()) }},
	{both("metrale_requests_waiting", "vllm:num_requests_waiting", "Sequences that wait for a place."),
		func(e *telemetry.Engine) float64 { return float64(e.Waiting.Load()) }},
	{both("metrale_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc", "Share of the KV pages that are in use, 0 to 1."),
		func(e *telemetry.Engine) float64 {
			return float64(e.PagesUsed.Load()) / float64(max(e.PagesTotal.Load(), 1))
		}},
	{[]*prometheus.Desc{desc("metrale_state_slots_used", "Recurrent-state slots in use.")},
		func(e *telemetry.Engine) float64 { return float64(e.SlotsUsed.Load()) }},
}

var counters = []struct {
	desc  *prometheus.Desc
	value func(*telemetry.Engine) int64
}{
	{desc("metrale_prompt_tokens_total", "Prompt tokens of sequences whose prompt was computed."), func(e *telemetry.Engine) int64 { return e.PromptTokens.Load() }},
	{desc("metrale_images_total", "Images run through the vision tower."), func(e *telemetry.Engine) int64 { return e.Images.Load() }},
	{desc("metrale_generation_tokens_total", "Tokens generated, end tokens too."), func(e *telemetry.Engine) int64 { return e.OutputTokens.Load() }},
	{desc("metrale_steps_total", "Steps of the engine."), func(e *telemetry.Engine) int64 { return e.Steps.Load() }},
	{desc("metrale_rows_total", "Token rows computed, recomputed ones too."), func(e *telemetry.Engine) int64 { return e.Rows.Load() }},
	{desc("metrale_preemptions_total", "Sequences that were put back to wait."), func(e *telemetry.Engine) int64 { return e.Preemptions.Load() }},
}

var histograms = []struct {
	desc  *prometheus.Desc
	value func(*telemetry.Engine) *telemetry.Histogram
}{
	{desc("metrale_time_to_first_token_seconds", "From the submission of a sequence to its first token."), func(e *telemetry.Engine) *telemetry.Histogram { return &e.FirstToken }},
	{desc("metrale_inter_token_latency_seconds", "Between two tokens of a sequence."), func(e *telemetry.Engine) *telemetry.Histogram { return &e.InterToken }},
	{desc("metrale_request_duration_seconds", "From the submission of a sequence to its end."), func(e *telemetry.Engine) *telemetry.Histogram { return &e.Duration }},
	{desc("metrale_queue_seconds", "From the submission of a sequence to its first place in a batch."), func(e *telemetry.Engine) *telemetry.Histogram { return &e.Queue }},
	{desc("metrale_step_seconds", "A step of the engine, on the device and in sampling."), func(e *telemetry.Engine) *telemetry.Histogram { return &e.Step }},
	{desc("metrale_step_overhead_seconds", "Work of the host between two steps."), func(e *telemetry.Engine) *telemetry.Histogram { return &e.Overhead }},
}

var (
	activeDesc = prometheus.NewDesc("metrale_requests_active", "Requests with a body whose answer has not ended.", nil, nil)
	uptimeDesc = prometheus.NewDesc("metrale_start_time_seconds", "When the server started, in Unix time.", nil, nil)
	readyDesc  = prometheus.NewDesc("metrale_ready", "1 when the server takes work.", nil, nil)
	cacheDesc  = prometheus.NewDesc("vllm:cache_config_info", "Sizes of the KV cache.", []string{"model_name", "block_size", "num_gpu_blocks"}, nil)
	loraDesc   = prometheus.NewDesc("vllm:lora_requests_info", "Adapters in use; the time of this answer.", []string{"model_name", "max_lora", "running_lora_adapters", "waiting_lora_adapters"}, nil)
)

// Describe names nothing: what there is depends on the model.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the engine's numbers.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	plain := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	plain(activeDesc, float64(m.s.inFlight.Load()))
	plain(uptimeDesc, float64(m.s.started.UnixMilli())/1e3)
	ready := 0.0
	if _, err := m.s.current(); err == nil {
		ready = 1
	}
	plain(readyDesc, ready)
	model := m.s.model.Load()
	if model == nil {
		return
	}
	e, name := model.Engine.Metrics(), model.Name
	for _, g := range gauges {
		for _, d := range g.desc {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, g.value(e), name)
		}
	}
	for _, c := range counters {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.value(e)), name)
	}
	for _, h := range histograms {
		out <- constHistogram(h.desc, h.value(e).Snapshot(), name)
	}
	out <- prometheus.MustNewConstMetric(cacheDesc, prometheus.GaugeValue, 1, name, strconv.Itoa(model.PageSize), strconv.FormatInt(e.PagesTotal.Load(), 10))
	out <- prometheus.MustNewConstMetric(loraDesc, prometheus.GaugeValue, float64(time.Now().Unix()), name, "0", "", "")
}

// constHistogram turns counts per bucket into Prometheus's running sums.
func constHistogram(d *prometheus.Desc, s telemetry.Snapshot, name string) prometheus.Metric {
	buckets, sum := make(map[float64]uint64, len(telemetry.Bounds)), uint64(0)
	for i, b := range telemetry.Bounds {
		sum += uint64(s.Counts[i])
		buckets[b.Seconds()] = sum
	}
	return prometheus.MustNewConstHistogram(d, uint64(s.Count), s.Sum.Seconds(), buckets, name)
}
