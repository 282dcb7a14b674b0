// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"fmt"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// Error is what a template did wrong, in Python's words. It is the cause of the *diag.Error that Compile or Render gives.
type Error struct {
	Class string // the Python exception: UndefinedError, TypeError, TemplateSyntaxError, …
	Msg   string
	Line  int // in the template; 0 when unknown
}

func (e *Error) Error() string { return e.Class + ": " + e.Msg }

// Raised says that the template itself refused what it was given, by raise_exception.
func (e *Error) Raised() bool { return e.Class == raisedError }

// Classes that decide something here; all others are only printed.
const (
	syntaxError      = "TemplateSyntaxError"
	assertionError   = "TemplateAssertionError"
	raisedError      = "TemplateError"    // by raise_exception
	limitError       = "LimitError"       // by this package: see limits.go
	unsupportedError = "UnsupportedError" // by this package: a part of jinja2 that it does not have
)

// maxMessage bounds a message, which may quote values of any size.
const maxMessage = 4096

// fail stops the evaluation. The statement's line is added at the door.
func fail(class, format string, args ...any) {
	panic(&Error{Class: class, Msg: fmt.Sprintf(format, args...)})
}

func failType(format string, args ...any)  { fail("TypeError", format, args...) }
func failValue(format string, args ...any) { fail("ValueError", format, args...) }

func failSyntax(line int, format string, args ...any) {
	panic(&Error{Class: syntaxError, Msg: fmt.Sprintf(format, args...), Line: line})
}

// recovered turns what stopped an evaluation into an error; a panic that is not ours goes on.
func recovered(name string, line int, r any) error {
	e, ok := r.(*Error)
	if !ok {
		panic(r)
	}
	if e.Line == 0 {
		e.Line = line
	}
	if len(e.Msg) > maxMessage {
		e.Msg = strings.ToValidUTF8(e.Msg[:maxMessage], "") + "…"
	}
	code := diag.Invalid
	switch e.Class {
	case raisedError:
		return diag.Errorf(diag.Invalid, "%s", e.Msg).Because(e)
	case syntaxError, assertionError:
		code = diag.Format
	case unsupportedError:
		code = diag.Unsupported
	}
	return diag.Errorf(code, "chat template: %s", e).At(diag.Pos{File: name, Line: e.Line}).Because(e)
}
