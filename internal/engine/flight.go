// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/sched"
)

// router takes steps to the runner and brings their tokens back.
type router interface {
	// launch takes a step, whose parts with outputs are those of the flight, on its way. It may return before the step has run.
	launch(*flight, *exec.Step) error
	// land ends the oldest flight: the streams of its parts have their prompts' and new tokens, or the parts their faults.
	land(*flight) error
	// join is called before the first step that a sequence is in, since it began or was put back; leave when it ends or is put back.
	join(*Stream) error
	leave(*Stream)
	close()
}

// flight is a step that was launched and whose outcome is to come.
type flight struct {
	parts []part
	rows  int
	began int64
}

// part is a sequence's share of a step.
type part struct {
	stream *Stream
	first  int  // position of the row of the first output
	outs   int  // rows with outputs: those of the prompt for Echo, then that of the next token
	sample bool // there is a next token
	fault  error
}

// launch takes the decided work on its way, or leaves its failure in events; false: it failed.
func (d *device) launch(dec *sched.Decision) bool {
	f := &d.flights[d.launched%2]
	f.parts, f.rows = f.parts[:0], 0
	for i := range dec.Work {
		w := &dec.Work[i]
		f.parts = append(f.parts, part{stream: d.streams[w.ID], first: w.First + len(w.Tokens) - w.Outs, outs: w.Outs, sample: w.Sample})
		f.rows += len(w.Tokens)
	}
	if err := d.tryLaunch(dec, f); err != nil {
		d.fail(f, err)
		return false
	}
	d.launched++
	return true
}

// tryLaunch turns a panic into an error.
func (d *device) tryLaunch(dec *sched.Decision, f *flight) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked("the step failed", p)
		}
	}()
	for i := range f.parts {
		if err := d.join(f.parts[i].stream); err != nil {
			return err
		}
	}
	d.build(dec)
	if err := d.see(dec); err != nil {
		return err
	}
	f.began = d.now()
	if d.ranUntil > 0 && d.launched == d.landed {
		d.metrics.Overhead.Observe(time.Duration(f.began - d.ranUntil))
	}
	if err := d.router.launch(f, &d.step); err != nil {
		return err
	}
	d.seen(dec)
	return nil
}

// join lets a sequence take its place with the router.
func (d *device) join(s *Stream) error {
	if s.joined {
		return nil
	}
	s.joined = true
	return d.router.join(s)
}

// land waits for the oldest flight and leaves its tokens and failures in events. What it was for sequences that have ended
// meanwhile is dropped.
func (d *device) land() {
	f := &d.flights[d.landed%2]
	d.landed++
	err := d.tryLand(f)
	now := d.now()
	began := max(f.began, d.ranUntil)
	d.ranUntil = now
	if err != nil {
		d.fail(f, err)
		return
	}
	for i := range f.parts {
		p := &f.parts[i]
		switch {
		case p.stream.gone:
		case p.fault != nil:
			d.events = append(d.events, sched.Event{Kind: sched.Fail, ID: p.stream.id, Err: p.fault})
		case p.sample:
			d.drawn = append(d.drawn, p.stream)
			d.events = append(d.events, sched.Event{Kind: sched.Token, ID: p.stream.id, Token: p.stream.drawn.ID})
		}
	}
	clear(f.parts)
	d.metrics.Steps.Add(1)
	d.metrics.Rows.Add(int64(f.rows))
	d.metrics.Step.Observe(time.Duration(now - began))
}

func (d *device) tryLand(f *flight) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked("the step failed", p)
		}
	}()
	return d.router.land(f)
}

// fail makes the sequences of a flight fail, and of a lost device all.
func (d *device) fail(f *flight, err error) {
	if diag.Is(err, diag.DeviceLost) {
		if d.lost == nil {
			d.lostTo <- err
		}
		d.lost = err
		d.stopTaking(err)
	}
	for i := range f.parts {
		d.events = append(d.events, sched.Event{Kind: sched.Fail, ID: f.parts[i].stream.id, Err: err})
	}
	clear(f.parts)
}

// build writes the step that the decision describes. A row whose token is being drawn is fed from its sequence's seat.
func (d *device) build(dec *sched.Decision) {
	s := &d.step
	s.Tokens, s.Positions, s.RowSeq, s.Slots = s.Tokens[:0], s.Positions[:0], s.RowSeq[:0], s.Slots[:0]
	s.CuRows, s.Pages, s.StateSlot, s.Fresh, s.OutRows = append(s.CuRows[:0], 0), s.Pages[:0], s.StateSlot[:0], s.Fresh[:0], s.OutRows[:0]
	d.feed, s.Feed = d.feed[:0], nil
	fed := false
	size := d.cfg.PageSize
	for i := range dec.Work {
		w := &dec.Work[i]
		s.Tokens = append(s.Tokens, w.Tokens...)
		for j, t := range w.Tokens {
			pos := w.First + j
			s.Positions = append(s.Positions, int32(pos))
			s.RowSeq = append(s.RowSeq, int32(i))
			s.Slots = append(s.Slots, w.Pages[pos/size]*int32(size)+int32(pos%size))
			from := int32(-1)
			if t == sched.Unknown {
				from, fed = d.streams[w.ID].seat, true
			}
			d.feed = append(d.feed, from)
		}
		rows := int32(len(s.Tokens))
		for r := rows - int32(w.Outs); r < rows; r++ {
			s.OutRows = append(s.OutRows, r)
		}
		s.CuRows = append(s.CuRows, rows)
		s.Pages = append(s.Pages, w.Pages)
		s.StateSlot = append(s.StateSlot, max(w.Slot, 0))
		fresh := int32(0)
		if w.Fresh {
			fresh = 1
		}
		s.Fresh = append(s.Fresh, fresh)
	}
	if fed {
		s.Feed = d.feed
	}
}
