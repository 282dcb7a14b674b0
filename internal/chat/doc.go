// SPDX-License-Identifier: MIT OR Apache-2.0

// Package chat turns a conversation into a prompt by the chat template of a checkpoint.
//
//	Compile(name, source) ──► Template ──Render(Input)──► prompt
//
// The template engine is in chat/jinja; its contract (byte-equal to jinja2, untrusted templates, limits, errors) holds here.
// What this package adds is the way of messages into a template. Messages come as the client sent them, unknown keys
// included, and are brought into the form that transformers and vLLM give them:
//
//  1. Keys whose value is null are dropped from messages, as transformers does.
//  2. Reasoning is passed under all the names that templates read: what the client gave as reasoning_content, thinking or
//     reasoning (the first of them) becomes reasoning_content, and thinking where the client gave none.
//  3. Content: text parts are joined with "\n" for a template that takes only str there, and a str becomes one text part
//     for a template that takes only parts. A template that takes both gets what the client sent. Parts that are not text
//     go in as {"type": "image"}, "audio" or "video"; a template that takes only str refuses them.
//  4. Tool calls: the arguments, which clients send as JSON in a str, are parsed into an object, and missing ones are {};
//     a template that joins them with text (some of DeepSeek) gets the str. Bad JSON is refused and named.
//  5. An assistant message with tool calls and without content gets none, null or "", whichever the template can render.
//  6. A template that insists on tool call ids of nine letters and digits (Mistral's) gets such ids: others are hashed,
//     in the call and in its result alike.
//
// Which form a template takes is found once, in Compile, by rendering small conversations with it (probe.go). An empty
// list of tools is the same as none. Names of Kwargs that Render itself passes are refused.
//
// Input.Text sees every text of the conversation after that, so also what was JSON in a str.
//
// Errors are *diag.Error: Invalid and the name of the field for what is wrong with the input ("messages.2.content.0") and
// for whatever goes wrong in the template; raise_exception gives exactly the template's message, and the name of the message that
// it is about when the template renders those before it.
package chat
