// SPDX-License-Identifier: MIT OR Apache-2.0

// Package tokenizer turns text into token ids and back, as a checkpoint's tokenizer.json or GGUF vocabulary says.
//
// A text goes through these stages; each is a list of components of the file, and any may be empty:
//
//	text ─ added tokens ─ normalizer ─ added tokens ─ pre-tokenizers ─ model ─ post-processor ─ ids
//	       (as it is)                  (normalized)   (pieces)         (BPE)   (begin, end of text)
//
//	ids ─ their texts ─ decoders ─ text
//
// Contract:
//
//  1. The ids are those that Hugging Face's tokenizers library gives for the same tokenizer.json, and the texts those that
//     it decodes, for every text. What cannot be honoured exactly is refused when the file is loaded, by an error that
//     names the component: models other than BPE, random dropout, regular expressions that mean something else here.
//     Truncation and padding are off.
//  2. A GGUF vocabulary counts as the tokenizer.json that it was made from. tokenizer.ggml.pre names its pre-tokenizers
//     (and NFC, for Qwen); a name that is not known is refused. Scores merge as in SentencePiece, equal ones from the left.
//     add_space_prefix matters for scores only.
//  3. A Tokenizer does not change after it was loaded, and goroutines may share it. A Decoder is for one of them.
//  4. A streamed text is Decode's text in parts: only whole code points, and only what later tokens cannot change. (With
//     byte fallback a run of <0xNN> tokens waits for its end: one bad byte makes all of it U+FFFD.)
//  5. Text that comes in may be malformed UTF-8 (it then has U+FFFD in it); text that goes out never is.
//  6. Encode's time grows with the length of the text times, at worst, its logarithm, unless the file brings a regular
//     expression of its own; those backtrack.
//
// tokenizer_config.json adds names (begin and end of text, padding), the chat template, and tokens that only it knows. As in
// transformers 5, its add_bos_token and add_eos_token do not change what tokenizer.json puts around a text, and
// clean_up_tokenization_spaces is ignored for BPE unless a second key insists. A named token that is in neither file's
// vocabulary is a name without id.
//
// The library's notion of Unicode is a mix of versions. tables.go holds it, probed code point by code point by
// tools/tokenizer/make_tables.py; splitters, classes in regular expressions and normalizers all go by it.
package tokenizer
