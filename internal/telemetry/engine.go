// SPDX-License-Identifier: MIT OR Apache-2.0

package telemetry

import "github.com/metrale/metrale/internal/seq"

// Engine is what one engine counts. Its device thread writes, everyone reads.
type Engine struct {
	Running    Gauge // sequences that hold memory
	Waiting    Gauge // sequences that wait for a place
	PagesUsed  Gauge // KV pages held
	PagesTotal Gauge
	SlotsUsed  Gauge // recurrent-state slots held
	SlotsTotal Gauge

	Steps        Counter                 // steps that ran
	Rows         Counter                 // token rows computed, recomputed ones too
	PromptTokens Counter                 // of sequences whose prompt was computed whole
	Images       Counter                 // run through the vision tower
	OutputTokens Counter                 // generated, stop tokens too
	Preemptions  Counter                 // sequences put back to wait, to be computed again
	Finished     [seq.Failed + 1]Counter // by finish reason
	Queue        Histogram               // from submission to the first place in a batch
	FirstToken   Histogram               // from submission to the first token
	InterToken   Histogram               // between tokens of a sequence
	Duration     Histogram               // from submission to the end
	Step         Histogram               // a step on the device
	Overhead     Histogram               // from the end of a step to the begin of the next: sampling, scheduling, publishing
}
