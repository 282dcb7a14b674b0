// SPDX-License-Identifier: MIT OR Apache-2.0

// Package jinja renders chat templates byte for byte as Python's jinja2 3.1 does in the environment that transformers
// sets up: ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, the generation tag, its own tojson,
// dict, namespace, raise_exception and strftime_now.
//
// A template goes through four stages, each in its own files:
//
//	source ──lexer.go──► tokens ──parser*.go──► tree (ast.go) ──scope.go, compile*.go──► code (code*.go) ──Render──► text
//
// The lexer does the whitespace control. The parser gives jinja2's messages and line numbers. The compiler resolves every
// name to a slot of an activation record (jinja2's scoping rules are in scope.go), folds constants and binds filters and
// tests. Code is a tree of small nodes that evaluate themselves on a state.
//
// Contract:
//
//  1. A Template is immutable and safe for concurrent use; so is every Value handed to Render. Templates cannot change a
//     value (the sandbox refuses append, update, …), so values are shared freely; only namespaces change, and they live
//     no longer than one render.
//  2. Where jinja2 raises, Render fails, with Python's class and message: 'a' + 1 is a TypeError here too. Errors are
//     *diag.Error: Format for a template that does not compile, Unsupported for what this package refuses (include,
//     import, extends, urlize, lipsum, …), Invalid for all that happens while rendering. The cause is an *Error.
//     raise_exception gives Invalid with the template's own message and nothing added.
//  3. Templates are untrusted. Time and memory are bounded by the constants of limits.go, whatever the template does;
//     a template that needs more is refused like any other error. Nothing here panics outwards.
//
// Inside, evaluation reports errors by panicking with *Error; Compile and Render are the only doors and catch it.
//
// What differs from Python, on purpose: objects print without their memory address (<function f>); lone surrogates are
// refused in literals; urlize, lipsum, bytes (str.encode) and non-constant autoescape are refused; pprint works up to 80 columns;
// Unicode tables are those of the Go release; powers with a fraction may differ in the last digit; {% set d.key %} blocks
// cannot write into a dict (in jinja2 they can, past the sandbox); the loop variable cannot be iterated over.
package jinja
