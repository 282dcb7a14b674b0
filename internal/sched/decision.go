// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

import "github.com/metrale/metrale/internal/seq"

// Kind is what happened.
type Kind uint8

const (
	Submit Kind = iota // ID, At and Request: a new sequence; ids rise
	Token              // ID and Token: the oldest step whose token is not known gave this one
	Cancel             // ID: the caller went away
	Fail               // ID and Err: its work failed
)

// Event is one thing that happened since the last step.
type Event struct {
	Kind    Kind
	ID      seq.ID
	At      int64        // Submit: when, on Step's clock
	Request *seq.Request // Submit; not changed afterwards
	Token   int32        // Token
	Err     error        // Fail
}

// Decision is what to do next. Its order is: forget what is in Ends and Preempted, then compute Work as one step.
type Decision struct {
	Work      []Work   // none: nothing to do until the next event
	Ends      []End    // in the order of the events that ended them
	Started   []Start  // sequences that got their first place
	Preempted []seq.ID // put back to wait, youngest first
}

// Unknown stands in Work.Tokens for the token that the step before draws for the sequence (Config.Ahead).
const Unknown int32 = -1

// Work is the next rows of one sequence.
type Work struct {
	ID     seq.ID
	Tokens []int32 // of the rows
	First  int     // position of the first row
	Outs   int     // of the last so many rows the logits are wanted
	Sample bool    // the last row's logits give the sequence's next token
	Pages  []int32 // all its pages, in order of position
	Slot   int32   // its recurrent-state slot, or -1
	Fresh  bool    // its recurrent state starts from zero
}

// End says that a sequence is over.
type End struct {
	ID        seq.ID
	Finish    seq.Finish
	StopToken int32 // the token that stopped it, which is not part of the text; -1: none
	Err       error // with seq.Failed
}

// Start says that a sequence left the queue for the first time.
type Start struct {
	ID     seq.ID
	Waited int64 // since its Submit, in the unit of Step's clock
}

// Usage is how much is in use.
type Usage struct {
	Running, Waiting int
	Pages, Slots     int // held
}
