// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import "github.com/metrale/metrale/internal/gpu"

const (
	chunk       = 1 << 20 // stored bytes that are read and packed at a time
	stagedChunk = 4 << 20 // the same where the device copies in the background
	stages      = 2       // of a goroutine: one is filled while the other is on its way
)

// lane is the memory that one goroutine reads rows into and packs them from.
type lane interface {
	chunk() int64
	next(bytes int64) ([]byte, error) // where to read the next rows
	pack(j *loadJob, m, row, n int64) error
	end() error
}

func newLane(dev gpu.Device) lane {
	if s, ok := dev.(gpu.Stager); ok {
		return &stagedLane{stager: s}
	}
	return &hostLane{}
}

// hostLane packs at once.
type hostLane struct{ buf []byte }

func (l *hostLane) chunk() int64 { return chunk }

func (l *hostLane) next(bytes int64) ([]byte, error) {
	if int64(cap(l.buf)) < bytes {
		l.buf = make([]byte, max(bytes, chunk))
	}
	l.buf = l.buf[:bytes]
	return l.buf, nil
}

func (l *hostLane) pack(j *loadJob, m, row, n int64) error {
	return j.layout.Pack(j.dst, j.off, j.w.DType, j.w.Axes.Shape(), m, row, n, l.buf)
}

func (l *hostLane) end() error { return nil }

// stagedLane fills its stages in turn, so that reading goes on while copies are on their way.
type stagedLane struct {
	stager gpu.Stager
	stages [stages]gpu.Stage
	at     int
}

func (l *stagedLane) chunk() int64 { return stagedChunk }

func (l *stagedLane) next(bytes int64) ([]byte, error) {
	l.at = (l.at + 1) % stages
	s := l.stages[l.at]
	if s != nil && int64(len(s.Bytes())) < bytes {
		s.Free()
		s = nil
	}
	if s == nil {
		var err error
		if s, err = l.stager.Stage("loading", max(bytes, stagedChunk)); err != nil {
			return nil, err
		}
		l.stages[l.at] = s
	}
	return s.Bytes()[:bytes], s.Wait()
}

func (l *stagedLane) pack(j *loadJob, m, row, n int64) error {
	return l.stages[l.at].Pack(j.layout, j.dst, j.off, j.w.DType, j.w.Axes.Shape(), m, row, n)
}

func (l *stagedLane) end() (err error) {
	for _, s := range l.stages {
		if s != nil {
			if e := s.Wait(); err == nil {
				err = e
			}
			s.Free()
		}
	}
	return err
}
