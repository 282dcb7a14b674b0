// SPDX-License-Identifier: MIT OR Apache-2.0

package diag

import (
	"errors"
	"fmt"
	"strings"
)

// Code classifies an error. The set is closed: see table.
type Code string

const (
	Invalid     Code = "invalid_request"         // the request or flag is wrong; Param names the field
	TooLong     Code = "context_length_exceeded" // prompt and answer do not fit the model's context
	NotFound    Code = "not_found"               // no such model, file, route or response
	Denied      Code = "permission_denied"       // missing or wrong credentials
	Overloaded  Code = "overloaded"              // no room now; try again later
	Unsupported Code = "unsupported"             // well-formed, but the engine cannot do it (it says what is missing)
	Format      Code = "bad_format"              // a file does not follow its format (checkpoint, manifest, template)
	Canceled    Code = "canceled"                // the caller went away
	IO          Code = "io"                      // a file or the network failed
	DeviceLost  Code = "device_lost"             // the device's context is gone; the process must end
	Internal    Code = "internal"                // a broken invariant: our fault
)

// table is the only place where a code meets the outside.
var table = map[Code]struct{ http, exit int }{
	Invalid:     {400, 2},
	TooLong:     {400, 2},
	NotFound:    {404, 3},
	Denied:      {401, 4},
	Overloaded:  {503, 5},
	Unsupported: {400, 6},
	Format:      {400, 7},
	Canceled:    {499, 130},
	IO:          {500, 8},
	DeviceLost:  {500, 70},
	Internal:    {500, 1},
}

// Pos is a place in a file; Line and Col count from 1, 0 means unknown.
type Pos struct {
	File      string
	Line, Col int
}

// String is file, file:line or file:line:col.
func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Note is a related position with a remark, as "first declared here".
type Note struct {
	Pos Pos
	Msg string
}

// Error is the engine's error. Build it with Errorf and the chained setters.
type Error struct {
	Code  Code
	Msg   string // public
	Param string // the field, flag or key at fault, in the caller's spelling ("messages.0.content")
	Pos   Pos
	Notes []Note
	Cause error // private
}

// Errorf returns an error of that code whose public message is the formatted text.
// A %w verb is allowed and sets the cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Cause: errors.Unwrap(err)}
}

// For names the field at fault.
func (e *Error) For(param string) *Error { e.Param = param; return e }

// At sets the position.
func (e *Error) At(p Pos) *Error { e.Pos = p; return e }

// Because sets the private cause.
func (e *Error) Because(err error) *Error { e.Cause = err; return e }

// Note adds a related position.
func (e *Error) Note(p Pos, format string, args ...any) *Error {
	e.Notes = append(e.Notes, Note{p, fmt.Sprintf(format, args...)})
	return e
}

// Error is the public text: position, message, notes. The field is not repeated: messages name it.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Pos.File != "" {
		b.WriteString(e.Pos.String() + ": ")
	}
	b.WriteString(e.Msg)
	for _, n := range e.Notes {
		b.WriteString("\n\t" + n.Pos.String() + ": " + n.Msg)
	}
	return b.String()
}

// Unwrap gives the private cause.
func (e *Error) Unwrap() error { return e.Cause }

// Detail is the public text and the chain of causes, for logs. What a text tells already is not told again.
func (e *Error) Detail() string {
	text := e.Error()
	for cause := e.Cause; cause != nil; cause = errors.Unwrap(cause) {
		if more := cause.Error(); !strings.Contains(text, more) {
			text += ": " + more
		}
	}
	return text
}

// As gives the first *Error in err's chain.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// CodeOf is the code of err, Internal for an error that is not ours.
func CodeOf(err error) Code {
	if e, ok := As(err); ok {
		return e.Code
	}
	return Internal
}

// Is says whether err is of that code.
func Is(err error, code Code) bool {
	e, ok := As(err)
	return ok && e.Code == code
}

// HTTPStatus is the status that a server answers for err.
func HTTPStatus(err error) int { return table[CodeOf(err)].http }

// ExitStatus is the status that a process ends with for err; nil is 0.
func ExitStatus(err error) int {
	if err == nil {
		return 0
	}
	return table[CodeOf(err)].exit
}
